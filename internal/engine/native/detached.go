//go:build linux

package native

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/remote"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

var _ engine.Adopter = (*Engine)(nil)

// newDetached starts a guest for a detached sandbox, which is an instance of its own, with the namespace for mounts of
// this process's own user. On error nothing is left.
func (e *Engine) newDetached(ctx context.Context, u cove.User, online bool) (*blank, error) {
	self, err := instance.Hold(e.o.RunDir)
	if err != nil {
		return nil, err
	}
	ranges := local.NewRanges()
	b, err := e.newBlank(ctx, u, online, e.names.Group(self.ID, 1), ranges)
	if err != nil {
		ranges.Close()
		return nil, errors.Join(err, self.Release())
	}
	b.self, b.ranges, b.releaseIDs = self, ranges, ranges.Close
	if e.root {
		if _, err := e.ownership(b, e.ids.Self(), u); err != nil {
			b.remove()
			return nil, err
		}
	}
	return b, nil
}

// keep records a sandbox, which takes over the instance of its guest. Errors: Conflict, StorageFull.
func (e *Engine) keep(t engine.Template, b *blank) (*local.Detached, error) {
	record := local.Record{Under: e.o.CgroupParent, Name: b.group.Name(), Tasks: b.tasks, Template: t}
	k, err := e.keeper.New(b.self, record)
	if err == nil {
		b.self = nil
	}
	return k, err
}

// Left implements engine.Adopter.
func (e *Engine) Left(context.Context) ([]cove.SandboxID, error) { return e.keeper.Left() }

// Runs implements engine.Adopter.
func (e *Engine) Runs(_ context.Context, id cove.SandboxID) (bool, error) { return e.keeper.Runs(id) }

// Adopt implements engine.Adopter.
func (e *Engine) Adopt(ctx context.Context, id cove.SandboxID) (engine.Sandbox, error) {
	k, err := e.keeper.Take(id, e.o.CgroupParent, "sandbox.cgroup_parent")
	if err != nil {
		return nil, err
	}
	s := &sandbox{engine: e, template: k.Record.Template, bound: true, lasts: true, keep: k}
	if err := e.present.Adopt(k, s, func() error { return s.adopt(ctx) }); err != nil {
		return nil, err
	}
	return s, nil
}

// adopt connects to the guest, which does not answer while it is paused. A guest of an earlier version of Cove is a
// program, which goes on as it was, and holds its processes itself.
func (s *sandbox) adopt(ctx context.Context) error {
	record := s.keep.Record
	b := &blank{group: s.engine.hierarchy.Group(record.Name), tasks: record.Tasks, releaseIDs: func() {}, adopted: true,
		done: make(chan struct{})}
	if record.Executor != nil && record.Executor.Version != executor.Version {
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s was started by another version of Cove: it executes "+
			"scripts of version %d, and this Cove writes version %d", s.ID(), record.Executor.Version, executor.Version).
			WithHint("start that version of Cove again, and stop the sandbox with it; this one can start it then")
	}
	if err := b.group.Thaw(); err != nil {
		return cove.Errorf(cove.Unavailable, "sandbox %s cannot be resumed: %w", s.ID(), err)
	}
	var speak func(*unixconn.Conn) guest.Conn
	if record.Executor != nil {
		speak = func(conn *unixconn.Conn) guest.Conn { return remote.Resume(conn, *record.Executor) }
	}
	var err error
	if b.client, s.listeners, err = s.keep.Connect(ctx, speak); err != nil {
		return err
	}
	s.blank = b
	if record.Executor != nil {
		if err := s.haveKeeper(ctx); err != nil {
			b.client.Close()
			local.CloseAll(s.listeners)
			return cove.Errorf(cove.Unavailable, "what holds the processes of sandbox %s does not answer: %w", s.ID(), err)
		}
	}
	go b.collect()
	s.watchLocks()
	return nil
}

// haveKeeper has a keeper hold the sandbox's processes.
func (s *sandbox) haveKeeper(ctx context.Context) error {
	k, err := guest.NewKeeper(ctx, s.client, keeperDoor{s.keep, s.client, s.engine.forks.sealed})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper = k
	return err
}

// keeperDoor implements guest.KeeperDoor. The socket lies where the door of PID 1 does.
type keeperDoor struct {
	keep    *local.Detached
	client  *guest.Client
	program func(context.Context) (*os.File, error)
}

const keeperSocket = "keeper"

func (d keeperDoor) Dial() (guest.Conn, error) {
	conn, err := unixconn.Dial(d.keep.Path(keeperSocket))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, guest.ErrNoKeeper
	}
	return conn, err
}

func (d keeperDoor) Launch(ctx context.Context) (guest.Conn, error) {
	if err := os.Remove(d.keep.Path(keeperSocket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	door, err := unixconn.Listen(d.keep.Path(keeperSocket))
	if err != nil {
		return nil, err
	}
	defer door.Close()
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	program, err := d.program(ctx)
	if err == nil {
		defer program.Close()
		err = guest.Launch(ctx, d.client, guest.Keep{Env: guestEnv}, int(theirs.Fd()), int(door.Fd()), int(program.Fd()))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
