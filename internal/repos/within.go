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

// A checkout within another sandbox is a workspace of its own, with its own record and import.git, and its checkout
// lies in that sandbox's home. It is made out of the sandbox's sight and then moved directly below the home's
// directory. That directory is Cove's, and nothing that the sandbox has put at the target is followed or replaced.

// within finds the sandbox that will contain the checkout.
func (w *making) within() error {
	if w.spec.Within == "" {
		return nil
	}
	host, err := w.s.read(w.spec.Within)
	if err != nil {
		return err
	}
	switch want := w.spec.Repository; {
	case want == nil || want.Worktree || want.Uncommitted || want.Upload != nil || w.spec.Bind != "":
		return cove.Errorf(cove.Unsupported, "within another sandbox there are checkouts of repositories alone").WithHint(
			"leave out what is not committed, worktrees and directories")
	case cove.ParsePrincipal(host.Client) != w.spec.Owner || host.Within != "":
		return cove.Errorf(cove.Forbidden, "no checkout of this is possible within the sandbox %s", host.ID)
	}
	w.host = host
	w.record.Within, w.record.Place = host.ID, "work-"+strings.TrimPrefix(string(w.spec.ID), "sb_")[:12]
	return nil
}

// lent returns the host's path of a checkout within another sandbox.
func (s *Store) lent(r record) string {
	return filepath.Join(s.directory(r.Within), homeDir, r.Place)
}

// lend moves a checkout to its place in the sandbox.
func (s *Store) lend(r record) error {
	err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(s.directory(r.ID), checkoutDir), unix.AT_FDCWD, s.lent(r),
		unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOENT) {
		return cove.Errorf(cove.Conflict, "the sandbox %s has gone meanwhile",
			r.Within).WithHint("try again: another one is made")
	}
	if err != nil {
		return storageFull("put a checkout into the sandbox "+string(r.Within), err)
	}
	return nil
}

// takeHome moves a checkout out of its sandbox, if it exists, so that it can be removed out of the sandbox's reach.
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
