//go:build linux

package gitservice

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// workIndex is, in the repository, the index that a snapshot is made with.
const workIndex = "cove-work.index"

// Snapshot makes a commit of what is not committed, for ref to lead to, and touches no file that the user works with:
// it has an index of its own. Where everything is committed the ref of it goes. Errors: Conflict with what git says,
// StorageFull, Unavailable.
func (c *companion) Snapshot(ctx context.Context, ref string) error {
	b, leave, err := c.enter(ctx, false)
	if err != nil {
		return err
	}
	defer leave()
	if c.person != nil {
		if err := c.person.bring(ctx, b); err != nil {
			return err
		}
	}
	c.snapshot.Lock()
	defer c.snapshot.Unlock()
	remove, err := c.copyIndex()
	if err != nil {
		return cove.Errorf(cove.StorageFull, "look at what is not committed: %w", err)
	}
	defer remove()
	if err := b.snapshot(ctx, ref); err != nil {
		if exitCode(err) >= 0 {
			e := cove.Errorf(cove.Conflict, "git cannot say what has changed: %w", err).
				WithHint("look at it inside: \"git status\"")
			if hostgit.CodeOf(err.Error()) == cove.StorageFull {
				e.Code, e.Hint = cove.StorageFull, "free some space on the disk of this machine"
			}
			return e
		}
		return err
	}
	return nil
}

func (b *box) snapshot(ctx context.Context, ref string) error {
	env := []string{"GIT_INDEX_FILE=" + gitDir + "/" + workIndex,
		"GIT_AUTHOR_NAME=Cove", "GIT_AUTHOR_EMAIL=cove@localhost", "GIT_COMMITTER_NAME=Cove",
		"GIT_COMMITTER_EMAIL=cove@localhost"}
	line := func(args ...string) (string, error) {
		out, err := b.answerWith(ctx, env, nil, args...)
		return strings.TrimSpace(string(out)), err
	}
	if _, err := line("add", "--all"); err != nil {
		return err
	}
	tree, err := line("write-tree")
	if err != nil {
		return err
	}
	head, err := line("rev-parse", "--verify", "HEAD^{commit}") // a worktree begins at a commit
	if err != nil {
		return err
	}
	was, err := line("rev-parse", "--verify", head+"^{tree}")
	if err != nil {
		return err
	}
	if tree == was {
		_, err := line("update-ref", "-d", ref)
		return err
	}
	commit, err := line("commit-tree", "-p", head, "-m", "Work that is not committed", tree)
	if err != nil {
		return err
	}
	_, err = line("update-ref", ref, commit)
	return err
}

// copyIndex copies the worktree's index to where a snapshot changes it.
func (c *companion) copyIndex() (remove func(), err error) {
	w := c.o.Workspace
	to := filepath.Join(c.repository(), workIndex)
	clean := func() error {
		var errs []error
		for _, name := range []string{to, to + ".lock"} {
			if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	remove = func() {
		if err := clean(); err != nil {
			c.o.Log.Warn("the index of a snapshot is left", "sandbox", w.ID, "error", err)
		}
	}
	if err := clean(); err != nil { // of a process that was killed
		return nil, err
	}
	in, err := os.OpenFile(filepath.Join(w.Hidden, "worktrees", w.Worktree, "index"),
		os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return remove, nil // nothing is in it
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err == nil {
		// Git reads a file again that has changed in the second of this time.
		err = os.Chtimes(to, info.ModTime(), info.ModTime())
	}
	if err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

// Send starts "git upload-pack" on the worktree's repository. asIs has it send objects as they are, and not as
// differences to others. done lets the companion go, once the process has ended.
func (c *companion) Send(ctx context.Context, asIs bool) (p *process.Process, done func(), err error) {
	b, leave, err := c.enter(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	args := []string{gitProgram, "upload-pack", "--strict", gitDir + "/worktrees/" + c.o.Workspace.Worktree}
	if asIs {
		args = slices.Insert(args, 1, "-c", "pack.depth=0")
	}
	if p, err = b.begun(ctx, guest.ProcessSpec{Args: args, Env: b.env, Dir: cove.Workspace, Stdin: true}); err != nil {
		leave()
		return nil, nil, err
	}
	return p, leave, nil
}
