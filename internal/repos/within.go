package repos

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// A checkout within another sandbox is a workspace of its own, with its record
// and its import.git, whose checkout is in the home of that sandbox. It is made
// where nobody of the sandbox sees it, and then moved there, directly below the
// directory that is the home: that one is Cove's, and whatever the sandbox has put
// where the checkout goes, or in its place, is neither followed nor replaced.

// within finds the sandbox that the checkout is to be in.
func (w *making) within() error {
	if w.spec.Within == "" {
		return nil
	}
	host, err := w.s.read(w.spec.Within)
	if err != nil {
		return err
	}
	switch want := w.spec.Repository; {
	case want == nil || want.Worktree || want.Uncommitted || w.spec.Bind != "":
		return cove.Errorf(cove.Unsupported, "within another sandbox there are checkouts of repositories alone").WithHint("leave out what is not committed, worktrees and directories")
	case cove.ParsePrincipal(host.Client) != w.spec.Owner || host.Within != "":
		return cove.Errorf(cove.Forbidden, "no checkout of this is possible within the sandbox %s", host.ID)
	}
	w.host = host
	w.record.Within, w.record.Place = host.ID, "work-"+strings.TrimPrefix(string(w.spec.ID), "sb_")[:12]
	return nil
}

// borrowWithin has a repository borrow from where its sandbox finds the objects:
// by that name alone, since on the host it is in another place.
func (w *making) borrowWithin(dir string) error {
	if w.spec.Within == "" || w.record.Mirror == "" {
		return nil
	}
	if w.record.Mirror != w.host.Mirror {
		return cove.Errorf(cove.Conflict, "the sandbox %s has no objects of this repository to borrow", w.host.ID)
	}
	return writeFile(filepath.Join(dir, "objects/info/alternates"), "/"+borrowedDir+"\n")
}

// lent is where a checkout within another sandbox is, on the host.
func (s *Store) lent(r record) string {
	return filepath.Join(s.directory(r.Within), homeDir, r.Place)
}

// lend moves a checkout to where its sandbox has it.
func (s *Store) lend(r record) error {
	err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(s.directory(r.ID), checkoutDir), unix.AT_FDCWD, s.lent(r), unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOENT) {
		return cove.Errorf(cove.Conflict, "the sandbox %s has gone meanwhile", r.Within).WithHint("try again: another one is made")
	}
	if err != nil {
		return storageFull("put a checkout into the sandbox "+string(r.Within), err)
	}
	return nil
}

// takeHome takes a checkout out of its sandbox, if it is there: what is to be
// removed is removed where nobody changes it.
func (s *Store) takeHome(r record) error {
	if r.Within == "" {
		return nil
	}
	err := os.Rename(s.lent(r), filepath.Join(s.directory(r.ID), "taken-"+rand.Text()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFull("take a checkout out of the sandbox "+string(r.Within), err)
	}
	return nil
}
