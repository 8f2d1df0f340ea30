//go:build linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// A detached sandbox's guest cannot speak over the container's streams: they end with the attached client, and carry no
// descriptors. It calls a socket that is shown to it when it begins, and is given over that connection what a guest of
// the native engine is: the door at which it waits for the next process of Cove, the lock that says that it lives, and
// its listeners.

// keep records a detached sandbox, and removes what a restart left. Errors: Conflict, StorageFull, Unavailable.
func (e *Engine) keep(ctx context.Context, t engine.Template) (*local.Detached, error) {
	self, err := instance.Hold(e.o.RunDir)
	if err != nil {
		return nil, err
	}
	k, err := e.keeper.New(self, local.Record{Under: e.api.c.DaemonHost(), Template: t})
	if err != nil {
		self.Release()
		return nil, err
	}
	if err := e.removeDead(ctx, t.ID); err != nil {
		return nil, errors.Join(err, k.Remove())
	}
	return k, nil
}

// removeDead removes the container of a dead instance: a daemon has it still when the machine was restarted.
func (e *Engine) removeDead(ctx context.Context, id cove.SandboxID) error {
	found, err := e.api.list(ctx, e.realm)
	if err != nil {
		return err
	}
	for _, c := range found {
		if owned(c.Names, c.Labels) && c.Labels[labelSandbox] == string(id) &&
			!instance.Alive(e.o.RunDir, cove.InstanceID(c.Labels[labelInstance])) {
			return e.api.remove(ctx, c.ID)
		}
	}
	return nil
}

// keepRunning binds a guest that is to last, and gives it the door and the sockets. It returns them as the guest has
// them.
func (s *sandbox) keepRunning(ctx context.Context, c *running, plan guest.Bind, asked []guest.Listen,
	sockets []*os.File) ([]*os.File, error) {
	defer local.CloseAll(sockets)
	for i, l := range asked {
		l.FD = new(i)
		plan.Listeners = append(plan.Listeners, l)
	}
	s.keep.Record.Name, s.keep.Record.Tasks = c.id, c.own
	fds, sent, err := s.keep.Bind(&plan, sockets)
	if err != nil {
		return nil, err
	}
	listeners, err := c.client.Bind(ctx, plan, local.Descriptors(fds))
	sent(err == nil)
	return listeners, err
}

// unixSockets makes the sockets of a binding that are among the sandbox's files, at their places in it and nil for the
// others, and the binds that show them. Only the user's processes may connect to them.
func (s *sandbox) unixSockets(listeners []guest.Listen) (sockets []*os.File, shown []bind, err error) {
	sockets = make([]*os.File, len(listeners))
	for i, l := range listeners {
		if l.Network != guest.UnixNetwork {
			continue
		}
		if s.keep == nil {
			return sockets, nil, cove.Errorf(cove.Unsupported,
				"only long-lived sandboxes have sockets among their files with the docker engine").WithHint("use --engine native")
		}
		path := s.keep.Path(fmt.Sprint("socket-", i))
		f, err := unixconn.Listen(path)
		if err != nil {
			return sockets, nil, cove.Errorf(cove.StorageFull, "cannot make a socket for a sandbox: %w", err).
				WithHint("free some space in the run directory")
		}
		sockets[i] = f
		if !s.engine.owns {
			if err := os.Chown(path, s.template.User.UID, s.template.User.GID); err != nil {
				return sockets, nil, err
			}
		}
		if err := unix.Listen(int(f.Fd()), unix.SOMAXCONN); err != nil {
			return sockets, nil, os.NewSyscallError("listen", err)
		}
		shown = append(shown, bind{source: path, target: l.Address, readOnly: true})
	}
	return sockets, shown, nil
}
