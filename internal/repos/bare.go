package repos

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/hostgit"
)

// emptyRepository makes a git directory without commits.
func emptyRepository(dir, config string) error {
	for _, name := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return storageFull("make a repository", err)
		}
	}
	if err := writeFile(filepath.Join(dir, "config"), config); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "HEAD"), "ref: refs/heads/main\n")
}

// coreConfig returns the beginning of the configuration of Cove's repositories. format is that of ids: "sha1" or
// "sha256".
func coreConfig(format string, bare bool, extensions ...string) string {
	if format != "sha1" {
		extensions = append(extensions, "objectFormat = "+format)
	}
	version, section := 0, ""
	if len(extensions) > 0 {
		version, section = 1, "[extensions]\n\t"+strings.Join(extensions, "\n\t")+"\n"
	}
	return fmt.Sprintf("[core]\n\trepositoryFormatVersion = %d\n\tfileMode = true\n\tbare = %v\n%s",
		version, bare, section)
}

// cleanRepository removes the remains of a git process that was killed while writing. The caller must hold the lock
// that excludes writers.
func cleanRepository(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name := d.Name(); strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_") ||
			strings.HasPrefix(name, ".tmp-") {
			return os.Remove(path)
		}
		return nil
	})
}

// promised returns the settings that make git treat missing objects as available at an address. Git does not fetch
// them.
func promised(address, filter string) []hostgit.Setting {
	return []hostgit.Setting{{Key: "remote." + address + ".promisor", Value: "true"},
		{Key: "remote." + address + ".partialCloneFilter", Value: filter}}
}

// leavingOut returns a fetch from an address with a filter.
func leavingOut(run hostgit.Run, address, filter string) hostgit.Run {
	run.Flags = append(run.Flags, "--filter="+filter)
	run.Settings = slices.Concat(run.Settings, promised(address, filter))
	return run
}

// fetchRun returns a fetch of refspecs, one a line, into a repository.
func fetchRun(dir string, refspecs *bytes.Buffer) hostgit.Run {
	return hostgit.Run{
		Dir: dir, Command: []string{"fetch"}, Stdin: refspecs,
		Flags: []string{"--progress", "--no-tags", "--no-write-fetch-head", "--atomic", "--stdin"},
		// A pack stays whole, whatever its size: its borrowers read few files.
		Settings: []hostgit.Setting{{Key: "fetch.unpackLimit", Value: "1"}},
	}
}

// packFiles returns the files of a repository's own packs. Packs come before their indexes, so that no index is without
// its pack.
func packFiles(git string) ([]string, error) {
	packs, err := filepath.Glob(filepath.Join(git, "objects/pack/pack-*"))
	slices.SortFunc(packs, func(a, b string) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), strings.Compare(a, b))
	})
	return packs, err
}

// movePacks moves a repository's own packs into another one, which may have them.
func movePacks(from, to string) error {
	packs, err := packFiles(from)
	for _, p := range packs {
		if err == nil {
			err = os.Rename(p, filepath.Join(to, "objects/pack", filepath.Base(p)))
		}
	}
	if err != nil {
		return storageFull("copy objects", err)
	}
	return nil
}

// copyPacks copies a repository's own objects.
func copyPacks(from, to string) error {
	packs, err := packFiles(from)
	if err != nil {
		return err
	}
	for _, p := range packs {
		if err := copyFile(p, filepath.Join(to, "objects/pack", filepath.Base(p)), 0o444); err != nil {
			return storageFull("copy objects", err)
		}
	}
	return copyShallow(from, to)
}

// copyShallow has a new repository's history begin where that of another one begins, whose objects it has.
func copyShallow(from, to string) error {
	err := copyFile(filepath.Join(from, "shallow"), filepath.Join(to, "shallow"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return storageFull("copy objects", err)
	}
	return nil
}

// shallowCommits returns the sorted commits of a git directory whose parents it lacks.
func shallowCommits(git string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(git, "shallow"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, storageFull("look where a history begins", err)
	}
	ids := strings.Fields(string(text))
	slices.Sort(ids)
	return ids, nil
}

func order(pack string) int {
	return slices.Index([]string{".pack", ".rev", ".idx"}, filepath.Ext(pack))
}

func copyFile(from, to string, mode os.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src) // shares blocks where the file system supports it
	return errors.Join(err, dst.Close())
}

// writeFile writes a file of a repository that is not in use yet.
func writeFile(path, content string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		return storageFull("make a repository", err)
	}
	return nil
}

// contents is the filter of a partial mirror: it omits the contents of files. All commits and trees are present, so
// that reachability is known.
const contents = "blob:none"

// notFiltered is git's message for a remote without filters.
const notFiltered = "filtering not recognized by server"

// fields splits its input at a byte and passes each field on; an error ends the writing.
type fields struct {
	end  byte
	each func(string) error
	part []byte // the beginning of a field
}

func (f *fields) Write(p []byte) (int, error) {
	for rest := p; ; {
		part, more, whole := bytes.Cut(rest, []byte{f.end})
		rest = more
		if len(f.part) < maxField {
			f.part = append(f.part, part...)
		}
		if !whole {
			return len(p), nil
		}
		if err := f.each(string(f.part)); err != nil {
			return 0, err
		}
		f.part = f.part[:0]
	}
}

// maxField bounds a field, in bytes; the rest is irrelevant.
const maxField = 8 << 10
