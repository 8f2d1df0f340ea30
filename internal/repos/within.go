package repos

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// A checkout within another sandbox is a workspace of its own, with its own record and import.git, and its checkout
// lies in that sandbox's home. It is made out of the sandbox's sight and then moved directly below the home's
// directory. That directory is Cove's, and nothing that the sandbox has put at the target is followed or replaced.

// hostOf returns the sandbox that will contain a checkout, whose disk it makes ready. Errors: NotFound, Unsupported,
// Forbidden.
func (s *Store) hostOf(ctx context.Context, spec workspace.Spec) (record, error) {
	host, err := s.read(spec.Within)
	if err != nil {
		return record{}, err
	}
	switch want := spec.Repository; {
	case want == nil || want.Worktree || want.Uncommitted || want.Upload != nil || spec.Bind != "":
		return record{}, cove.Errorf(cove.Unsupported, "within another sandbox there are checkouts of repositories alone").
			WithHint("leave out what is not committed, worktrees and directories")
	case cove.ParsePrincipal(host.Client) != spec.Owner || host.Within != "":
		return record{}, cove.Errorf(cove.Forbidden, "no checkout of this is possible within the sandbox %s", host.ID)
	}
	return host, errors.Join(s.disks.mounted(ctx, host), s.disks.freeWithin(host))
}

// lent returns the host's path of a checkout within another sandbox.
func (s *Store) lent(r record) string {
	return filepath.Join(s.directory(r.Within), r.Files, homeDir, r.Place)
}

// lend moves a checkout to its place in the sandbox.
func (s *Store) lend(r record) error {
	from := filepath.Join(s.filesIn(s.directory(r.ID), r), checkoutDir)
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, s.lent(r), unix.RENAME_NOREPLACE)
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
func (s *Store) takeHome(ctx context.Context, r record) error {
	if r.Within == "" {
		return nil
	}
	if r.Files != "" {
		host, err := s.read(r.Within)
		if cove.ErrorCode(err) == cove.NotFound {
			return nil // it has gone with its disk
		}
		stays := s.disks.use(r.Within)
		stays.RLock()
		defer stays.RUnlock()
		if err = cmp.Or(err, s.disks.mounted(ctx, host)); err != nil {
			return err
		}
	}
	files := s.filesIn(s.directory(r.ID), r)
	err := os.Rename(s.lent(r), filepath.Join(files, "taken-"+rand.Text()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFull("take a checkout out of the sandbox "+string(r.Within), err)
	}
	if r.Files != "" {
		return removeAll(files)
	}
	return nil
}
