//go:build linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// A lasting sandbox's guest cannot speak over the container's streams: they end with the attached client, and carry no
// descriptors. It calls a socket that is shown to it when it begins, and is given over that connection what a guest of
// the native engine is: the door at which it waits for the next process of Cove, the lock that says that it lives, and
// its listeners.

// callFile is that socket, in the directory of a sandbox that is kept, and callPath where it is inside. It is closed
// before the first process of the user may begin.
const (
	callFile = "call"
	callPath = "/.cove/call"
)

var _ engine.Adopter = (*Engine)(nil)

// keep has a sandbox kept, of which there is nothing yet but what a restart of the machine has left. Errors: Conflict,
// StorageFull, Unavailable.
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

// removeDead removes the container of a sandbox whose instance is dead: a daemon has it still when the machine was
// restarted.
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

// Left implements engine.Adopter.
func (e *Engine) Left(context.Context) ([]cove.SandboxID, error) { return e.keeper.Left() }

// Adopt implements engine.Adopter.
func (e *Engine) Adopt(ctx context.Context, id cove.SandboxID) (engine.Sandbox, error) {
	k, err := e.keeper.Take(id, e.api.c.DaemonHost(), "DOCKER_HOST")
	if err != nil {
		return nil, err
	}
	s := newSandbox(e, k.Record.Template)
	s.keep, s.bound, s.lasts, s.traces = k, true, true, []trace{{id: k.Record.Name}}
	if err := e.present.Add(s); err != nil {
		k.Disown()
		return nil, err
	}
	if err := s.adopt(ctx); err != nil {
		e.present.Remove(s)
		k.Disown()
		return nil, err
	}
	return s, nil
}

// adopt connects to the guest.
func (s *sandbox) adopt(ctx context.Context) error {
	record := s.keep.Record
	made, err := s.engine.api.inspect(ctx, record.Name)
	if err != nil {
		return err
	}
	if made.State == nil || !made.State.Running {
		return cove.Errorf(cove.NotFound, "no lasting sandbox %s runs", s.ID())
	}
	if made.State.Paused { // its guest does not answer
		if err := s.engine.api.freeze(ctx, record.Name, false); err != nil {
			return err
		}
	}
	conn, err := s.keep.Dial()
	if err != nil {
		return err
	}
	c := &running{id: record.Name, own: record.Tasks, group: groupOf(made.State.Pid, record.Name)}
	if c.client, err = guest.NewClient(ctx, conn); err != nil {
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not answer: %w", s.ID(), err)
	}
	if s.listeners, err = c.client.Listeners(ctx); err != nil {
		c.client.Close()
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not hand over its sockets: %w", s.ID(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.latest = c, c.client
	s.watched.Go(func() { s.watch(c) })
	return nil
}

// called is the guest's connection, and what it says on its streams.
type called struct {
	*unixconn.Conn
	stream *stream
}

func (c called) Close() error {
	c.stream.Close()
	return c.Conn.Close()
}

// wait has the container started and waits at door for its guest's call.
func (c *running) wait(ctx context.Context, a *api, door *os.File) error {
	var err error
	if c.stream, err = a.attach(ctx, c.id, false); err != nil {
		return err
	}
	if err := a.start(ctx, c.id); err != nil {
		c.stream.Close()
		return err
	}
	c.silent = make(chan struct{})
	go func() {
		defer close(c.silent)
		io.Copy(io.Discard, c.stream) // only what it complains about is kept
		door.Close()                  // a container that has ended does not call
	}()
	hello, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	stop := context.AfterFunc(hello, func() { door.Close() })
	conn, err := unixconn.Accept(door)
	stop()
	if err == nil {
		c.client, err = guest.NewClient(hello, called{conn, c.stream})
	} else {
		defer c.stream.Close()
	}
	if err != nil && ctx.Err() == nil {
		return c.failed("begin", err)
	}
	return err
}

// complaint returns the errors that the guest has written by now, or within a moment.
func (c *running) complaint() string {
	if c.stream == nil { // adopted: it was bound long ago
		return ""
	}
	if c.silent != nil {
		select {
		case <-c.silent:
		case <-time.After(100 * time.Millisecond):
		}
	}
	return c.stream.text()
}

// keepRunning binds a guest that is to last, and gives it the door and the sockets. It returns them as the guest has
// them.
func (s *sandbox) keepRunning(
	ctx context.Context, c *running, plan guest.Bind, asked []guest.Listen, sockets []*os.File,
) ([]*os.File, error) {
	defer closeAll(sockets)
	for i, l := range asked {
		l.FD = new(i)
		plan.Listeners = append(plan.Listeners, l)
	}
	s.keep.Record.Name, s.keep.Record.Tasks = c.id, c.own
	fds, sent, err := s.keep.Bind(&plan, sockets)
	if err != nil {
		return nil, err
	}
	raw := make([]int, len(fds))
	for i, f := range fds {
		raw[i] = int(f.Fd())
	}
	listeners, err := c.client.Bind(ctx, plan, raw)
	sent(err == nil)
	return listeners, err
}

// unixSockets makes the sockets of a binding that are among the sandbox's files, by their place in it, and the binds
// that show them. Only the user's processes may connect to them.
func (s *sandbox) unixSockets(listeners []guest.Listen) (sockets map[int]*os.File, shown []bind, err error) {
	sockets = map[int]*os.File{}
	for i, l := range listeners {
		if l.Network != guest.UnixNetwork {
			continue
		}
		if s.keep == nil {
			return sockets, nil, cove.Errorf(cove.Unsupported,
				"only sandboxes that last have sockets among their files with the docker engine").WithHint("use --engine native")
		}
		path := s.keep.Path(fmt.Sprint("socket-", i))
		f, err := unixconn.Listen(path)
		if err != nil {
			return sockets, nil, cove.Errorf(cove.StorageFull, "cannot make a socket for a sandbox: %w", err).
				WithHint("free some space in the run directory")
		}
		sockets[i] = f
		uid := s.template.User.UID
		if err := os.Chown(path, uid, uid); err != nil {
			return sockets, nil, err
		}
		if err := unix.Listen(int(f.Fd()), unix.SOMAXCONN); err != nil {
			return sockets, nil, os.NewSyscallError("listen", err)
		}
		shown = append(shown, bind{path, l.Address, true})
	}
	return sockets, shown, nil
}

// close is the end of the engine: a sandbox that lasts goes on.
func (s *sandbox) close(ctx context.Context) error {
	s.mu.Lock()
	c := s.current
	s.left = s.lasts && !s.destroyed && !s.ended && c != nil && c.answers()
	left := s.left
	s.mu.Unlock()
	if !left {
		return s.Destroy(ctx)
	}
	c.client.Close()
	s.watched.Wait()
	s.engine.present.Remove(s)
	return s.keep.Disown()
}

func (c *running) answers() bool {
	select {
	case <-c.client.Done():
		return false
	default:
		return true
	}
}
