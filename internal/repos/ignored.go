package repos

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// maxIgnored bounds the files of ignored paths that are copied, against taking a disk by mistake.
const maxIgnored = 1_000_000

// checkIgnored returns the named paths of a directory without repeats, relative to the top of its working files, which
// has to ignore them. Errors: InvalidArgument, NotFound.
func checkIgnored(ctx context.Context, dir string, named []string) (top string, paths []string, err error) {
	st, err := folder.Stand(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	for _, name := range named {
		p := path.Clean(filepath.ToSlash(name))
		if !filepath.IsLocal(p) || p == "." || slices.Contains(strings.Split(p, "/"), ".git") {
			return "", nil, cove.Errorf(cove.InvalidArgument, "%q is no path of ignored files", name).
				WithHint("name it relative to the top of the repository, such as node_modules")
		}
		if _, err := os.Lstat(filepath.Join(st.Top, p)); err != nil {
			return "", nil, cove.Errorf(cove.NotFound, "there is no %s in %s", p, st.Top).
				WithHint("name it relative to the top of the repository")
		}
		if !st.Ignores(p) {
			return "", nil, cove.Errorf(cove.InvalidArgument, "git does not ignore %s in %s", p, st.Top).
				WithHint("name what is ignored; --uncommitted takes what is not committed")
		}
		if !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	return st.Top, paths, nil
}

// takeIgnored copies ignored paths of a person's working files into a checkout, where git then ignores them. Links are
// copied as links, and none is followed; sockets, devices and pipes are left out, and so is what the checkout has
// already. Errors: TooLarge, StorageFull.
func takeIgnored(ctx context.Context, top string, paths []string, checkout string, progress func(workspace.Step)) error {
	from, err := os.OpenRoot(top)
	if err != nil {
		return cove.Errorf(cove.NotFound, "cannot read %s: %w", top, err)
	}
	defer from.Close()
	to, err := os.OpenRoot(checkout)
	if err != nil {
		return storageFull("make a workspace", err)
	}
	defer to.Close()
	c := copying{from: from, to: to}
	for _, p := range paths {
		tell(progress, "copying "+p)
		if err := to.MkdirAll(path.Dir(p), 0o755); err != nil {
			return storageFull("copy "+p, err)
		}
		if err := fs.WalkDir(from.FS(), p, func(name string, d fs.DirEntry, err error) error {
			return errors.Join(err, ctx.Err(), c.entry(name, d))
		}); err != nil {
			if _, known := errors.AsType[*cove.Error](err); known || ctx.Err() != nil {
				return err
			}
			return storageFull("copy "+p, err)
		}
	}
	return exclude(filepath.Join(checkout, ".git"), paths)
}

// exclude has git ignore the paths in a checkout with the git directory git, whatever told a person's git to.
func exclude(git string, paths []string) error {
	if info, err := os.Lstat(git); err != nil || !info.IsDir() {
		return nil // a worktree, whose repository's list is its owner's
	}
	file := filepath.Join(git, "info/exclude")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return storageFull("make a workspace", err)
	}
	have, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFull("make a workspace", err)
	}
	for _, p := range paths {
		have = append(have, "/"+excluded.Replace(p)+"\n"...)
	}
	if err := os.WriteFile(file, have, 0o644); err != nil {
		return storageFull("make a workspace", err)
	}
	return nil
}

// excluded escapes what a line of a list of excluded files takes for a pattern.
var excluded = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `)

// copying copies entries of one tree into another.
type copying struct {
	from, to *os.Root
	files    int
}

func (c *copying) entry(name string, d fs.DirEntry) error {
	if d == nil {
		return nil
	}
	if c.files++; c.files > maxIgnored {
		return cove.Errorf(cove.TooLarge, "there are more than %d ignored files", maxIgnored).
			WithHint("name fewer paths, or mount them: --mount SOURCE:TARGET:ro")
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		err = c.to.Mkdir(name, mode.Perm()|0o700)
	case mode&fs.ModeSymlink != 0:
		var target string
		if target, err = c.from.Readlink(name); err == nil {
			err = c.to.Symlink(target, name)
		}
	case mode.IsRegular():
		err = c.file(name, info)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (c *copying) file(name string, info fs.FileInfo) (err error) {
	in, err := c.from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in) // by copy_file_range, which shares blocks where the file system can
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return c.to.Chtimes(name, info.ModTime(), info.ModTime())
}
