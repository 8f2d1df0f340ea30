package repos

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/hostgit"
)

// maxMerged bounds each side of a merged file, in bytes.
const maxMerged = 16 << 20

// merge returns the change to make to a file that differs from the sandbox's base: the merge of both sides, whose
// content it adds, or none.
func (s *Store) merge(ctx context.Context, dir string, t *tree, c Change, have Entry, content map[string][]byte,
	done *Applied) (Change, error) {
	clash := func(why string) (Change, error) {
		done.Conflicts = append(done.Conflicts, Clash{Path: c.Path, Why: why})
		return Change{Path: c.Path}, nil
	}
	switch {
	case have == Entry{}:
		return clash("it is changed in the sandbox, and not there any more")
	case c.New == Entry{}:
		return clash("it is deleted in the sandbox, and changed here")
	case !isFile(have) || !isFile(c.New) || c.Old != Entry{} && !isFile(c.Old):
		return clash("it is not a file on both sides")
	}
	ours, err := t.read(c.Path)
	if err != nil {
		return c, err
	}
	var base []byte
	if c.Old != (Entry{}) {
		found, err := s.contents(ctx, dir, []string{c.Old.ID}, maxApplied)
		if err != nil {
			return c, err
		}
		base, _ = t.form(c.Path, c.Old, found)
	}
	theirs, _ := t.form(c.Path, c.New, content)
	if max(len(ours), len(base), len(theirs)) > maxMerged {
		return clash("it is too large to be merged")
	}
	merged, clean, err := s.mergeFile(ctx, dir, ours, base, theirs)
	if errors.Is(err, errNoText) {
		return clash("it is no text, and changed on both sides")
	}
	if err != nil {
		return c, err
	}
	if clean {
		done.Merged = append(done.Merged, c.Path)
	} else {
		done.Conflicts = append(done.Conflicts, Clash{Path: c.Path, Why: "the same lines are changed on both sides",
			Markers: true})
	}
	id, err := blobID(len(c.New.ID), bytes.NewReader(merged), int64(len(merged)))
	if err != nil {
		return c, err
	}
	content[id] = merged
	mode := have.Mode
	if c.Old.Mode != c.New.Mode {
		mode = c.New.Mode
	}
	return Change{Path: c.Path, Old: have, New: Entry{mode, id}}, nil
}

// read reads a file of the checkout.
func (t *tree) read(p string) ([]byte, error) {
	fd, err := t.parent(p, false)
	if err != nil {
		return nil, storageFull("look at the checkout", err)
	}
	defer unix.Close(fd)
	f, err := unix.Openat(fd, path.Base(p), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, storageFull("look at the checkout", err)
	}
	file := os.NewFile(uintptr(f), path.Base(p))
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxMerged+1))
	if err != nil {
		return nil, storageFull("look at the checkout", err)
	}
	return data, nil
}

// errNoText reports a binary file, which git cannot merge.
var errNoText = errors.New("it is no text")

// mergeFile merges two contents with a common base. Where both change the same lines it is not clean, and contains both
// sides between markers.
func (s *Store) mergeFile(ctx context.Context, dir string,
	ours, base, theirs []byte) (merged []byte, clean bool, err error) {
	for _, side := range [][]byte{ours, base, theirs} {
		if bytes.IndexByte(side, 0) >= 0 {
			return nil, false, errNoText
		}
	}
	aside, err := os.MkdirTemp(dir, "merge-")
	if err != nil {
		return nil, false, storageFull("merge a file", err)
	}
	defer os.RemoveAll(aside)
	var files []string
	for i, side := range [][]byte{ours, base, theirs} {
		file := filepath.Join(aside, []string{"here", "base", "sandbox"}[i])
		if err := os.WriteFile(file, side, 0o600); err != nil {
			return nil, false, storageFull("merge a file", err)
		}
		files = append(files, file)
	}
	out, err := s.git(ctx, nil, hostgit.Run{Command: []string{"merge-file"},
		Flags: []string{"--stdout", "--quiet", "-Lhere", "-Lbase", "-Lsandbox"}, Args: files})
	if n := hostgit.ExitCode(err); n > 0 && n < 128 { // number of conflicts (git-merge-file(1))
		return out, false, nil
	}
	return out, err == nil, err
}
