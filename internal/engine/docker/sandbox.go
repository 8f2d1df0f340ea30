//go:build linux

package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

func newSandbox(e *Engine, t engine.Template) *sandbox {
	life, stop := context.WithCancel(context.Background())
	return &sandbox{engine: e, template: t, done: make(chan struct{}), life: life, stop: stop}
}

// launch makes a container and waits for its guest; called with changing held.
func (s *sandbox) launch(ctx context.Context, hostname string, attached []bind, rate engine.Throughput) error {
	img, binds, err := s.engine.image(ctx, s.template.Rootfs)
	if err != nil {
		return err
	}
	w := wish{
		name: containerName(s.ID()), nonce: s.engine.newNonce(), realm: s.engine.realm, instance: s.engine.o.Instance,
		template: s.template, hostname: hostname, guest: s.engine.o.Guest, cpus: s.engine.cpus, image: img,
		binds: slices.Concat(binds, attached), rate: rate, owns: s.engine.owns,
	}
	if s.engine.here {
		files, err := s.engine.resolver(hostname)
		if err != nil {
			return err
		}
		w.binds = append(w.binds, files...)
	} else if err := deliver(ctx, s, &w); err != nil {
		s.engine.disown([]trace{{nonce: w.nonce}})
		return err
	}
	var door *os.File
	if s.keep != nil {
		w.instance, w.call = s.keep.Record.Instance, s.keep.Path(callFile)
		if door, err = unixconn.Listen(w.call); err != nil {
			return cove.Errorf(cove.StorageFull, "cannot make a socket for a sandbox: %w", err).
				WithHint("free some space in the run directory")
		}
		defer os.Remove(w.call)
		defer door.Close()
		if s.engine.owns { // the guest has another id; the socket's directory is this user's alone
			if err := os.Chmod(w.call, 0o666); err != nil {
				return err
			}
		}
	}
	c, err := s.run(ctx, w, door)
	if err != nil {
		return err
	}
	s.use(c)
	return nil
}

func (s *sandbox) use(c *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.latest = c, c.client
	group := c.id // it is in the name of the container's group
	if s.engine.groups != nil {
		group = path.Base(c.group.Name())
	}
	s.engine.locks.Add(group, s.endForLocks)
	s.watched.Go(func() {
		s.watch(c)
		s.engine.locks.Remove(group)
	})
}

// bindsOf returns the mounts to request of the daemon. The daemon walks the paths by itself, so its mounts are compared
// with the places before their first use.
func bindsOf(all []engine.Attachment) (binds []bind, err error) {
	for _, a := range all {
		is, err := engine.Identify(a.Place)
		if err != nil {
			return nil, err
		}
		binds = append(binds, bind{source: is.Path, target: a.Target, readOnly: a.ReadOnly, attributes: attributes(a)})
	}
	return binds, nil
}

// compare asks the guest what is mounted, and refuses anything but what was opened: a path that was changed while the
// daemon walked it, or that means something else where the daemon is. The guest is sealed by now, and no process of the
// user's has begun.
func compare(ctx context.Context, g *guest.Client, all []engine.Attachment) error {
	for _, a := range all {
		want, err := engine.Identify(a.Place)
		if err != nil {
			return err
		}
		got, err := g.Stat(ctx, a.Target)
		if err != nil {
			return cove.Errorf(cove.Unavailable, "the mount at %s cannot be checked: %w", a.Target, err).
				WithHint("choose a target whose parents the sandbox's user may enter")
		}
		if got.Ino != want.Ino || got.Dev != want.Dev {
			return cove.Errorf(cove.Forbidden, "the engine mounted something else than %q at %s",
				a.Place.Name(), a.Target).
				WithHint("the path was changed meanwhile, the target is a symbolic link in the image, " +
					"or the daemon is not on this host")
		}
	}
	return nil
}

// run takes a container from its creation to its guest's first word. What it leaves on failure, Destroy removes.
func (s *sandbox) run(ctx context.Context, w wish, door *os.File) (*running, error) {
	e := s.engine
	config, host, err := plan(w)
	if err != nil {
		return nil, err
	}
	id, err := create(ctx, s, w.name, config, host)
	if err != nil {
		return nil, err
	}
	c := &running{id: id}
	if err := c.connect(ctx, e.api, door); err != nil {
		return nil, err
	}
	if err := e.settle(ctx, c, w, host, &s.traces[len(s.traces)-1]); err != nil {
		c.client.Close()
		return nil, err
	}
	return c, nil
}

// settle finds out how the container is accounted, limits its sockets where the daemon does not, and adds the
// guest's own tasks to the user's limit.
func (e *Engine) settle(ctx context.Context, c *running, w wish, asked *container.HostConfig, t *trace) error {
	limits := w.template.Limits
	made, err := e.api.inspect(ctx, c.id)
	if err != nil {
		return err
	}
	if made.State == nil || !made.State.Running {
		return c.failed("stay", guest.ErrClosed)
	}
	if c.pid = made.State.Pid; e.groups == nil {
		c.group = groupOf(made.State.Pid, made.ID)
	} else if c.group, err = enclose(ctx, e, w.instance, t, made.State.Pid, asked.Resources); err != nil {
		return err
	}
	if shared := sharedNamespaces(made.State.Pid); c.group != nil && len(shared) > 0 {
		return cove.Errorf(cove.Unsupported, "the %s made a container that shares namespaces with the host: %s",
			e.api.name(), strings.Join(shared, ", ")).WithHint("use Docker Engine 20.10 or newer, or --engine native")
	}
	if e.capabilities.MountFlags {
		if c.group == nil {
			return notHere("mounts")
		}
		if err := restrict(ctx, e, made.State.Pid, w.binds); err != nil {
			return err
		}
	}
	if e.limitsSockets {
		if c.group == nil {
			return notHere("limits of sockets")
		}
		if err := c.group.Limit(cgroup.Limits{Sockets: local.SocketMemory(limits.Memory)}); err != nil {
			return cove.Errorf(cove.Unsupported, "cannot limit the sockets of a container: %w", err).
				WithHint("run \"cove doctor\"")
		}
	}
	if e.api.podman.engine {
		if err := check(ctx, e, c, w, asked); err != nil {
			return err
		}
	}
	s, err := e.measure(ctx, c)
	if err != nil {
		return err
	}
	c.own = s.PIDs
	switch {
	case limits.PIDs == 0:
		return nil
	case e.api.podman.engine:
		return c.group.Limit(cgroup.Limits{PIDs: limits.PIDs + c.own})
	}
	return e.api.limitPIDs(ctx, c.id, limits.PIDs+c.own)
}

// sharedNamespaces lists the namespaces that a process of this host shares with us, as far as we may look.
func sharedNamespaces(pid int) []string {
	var shared []string
	for _, name := range []string{"pid", "mnt", "net", "ipc", "uts", "cgroup"} {
		theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		ours, err2 := os.Readlink("/proc/self/ns/" + name)
		if err1 == nil && err2 == nil && theirs == ours {
			shared = append(shared, name)
		}
	}
	return shared
}

// watch owns the end of a container: when its connection ends, so does the sandbox, unless the container is being made
// anew or goes on without us.
func (s *sandbox) watch(c *running) {
	<-c.client.Done()
	s.mu.Lock()
	others := s.current != c || s.left
	s.mu.Unlock()
	if others {
		return
	}
	// The guest ends with its streams; the result is not waited for.
	ctx, cancel := context.WithTimeout(context.Background(), attempts*s.engine.api.timeout)
	defer cancel()
	if err := s.engine.api.kill(ctx, c.id); err != nil {
		s.engine.o.Log.Warn("a container that has lost its guest could not be ended", "sandbox", s.ID(), "error", err)
	}
	s.end()
}

func (s *sandbox) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.done)
	}
}

func (s *sandbox) Bind(ctx context.Context, b engine.Binding) (err error) {
	if err := s.engine.capabilities.CheckBinding(b); err != nil {
		return err
	}
	s.mu.Lock()
	again := s.bound || s.destroyed
	s.bound = true
	s.mu.Unlock()
	if again {
		return cove.Errorf(cove.Conflict, "sandbox %s is bound already, or destroyed", s.ID())
	}
	closeMounts, err := b.OpenMounts(ctx, s.engine.o.Paths, s.template.User)
	defer closeMounts()
	if err != nil {
		return err
	}
	attached, err := bindsOf(b.Attachments)
	if err != nil {
		return err
	}
	b.Hostname = cmp.Or(b.Hostname, rootfs.Hostname)
	shown, err := s.shown(ctx, b.Files)
	if err != nil {
		return err
	}
	sockets, among, err := s.unixSockets(b.Listeners)
	defer func() {
		if err != nil {
			local.CloseAll(sockets)
		}
	}()
	if err != nil {
		return err
	}
	attached = slices.Concat(attached, shown, among)
	if len(attached) > 0 || b.Hostname != rootfs.Hostname || b.Throughput != (engine.Throughput{}) {
		err := s.make(ctx, func(ctx context.Context) error { return s.remake(ctx, b.Hostname, attached, b.Throughput) })
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()
	if err := s.cover(ctx, c, b.Attachments); err != nil {
		return errors.Join(err, s.Kill())
	}
	sealed, err := seal(s.template, b.Attachments)
	if err != nil {
		return err
	}
	if err := s.listen(ctx, c, b.Listeners, sockets); err != nil {
		return err
	}
	sealing, cancel := context.WithTimeout(ctx, s.engine.api.timeout)
	defer cancel()
	if s.keep != nil {
		sockets, err = s.keepRunning(sealing, c, sealed, b.Listeners, sockets)
	} else {
		_, err = c.client.Bind(sealing, sealed, nil)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.failed("seal the sandbox", err)
	}
	if err := compare(ctx, c.client, b.Attachments); err != nil {
		return errors.Join(err, s.Kill())
	}
	s.mu.Lock()
	s.listeners, s.lasts = sockets, s.keep != nil
	s.mu.Unlock()
	return nil
}

// remake replaces the container by one with what the binding needs; called with changing held. Nothing has run in it
// but the guest.
func (s *sandbox) remake(ctx context.Context, hostname string, attached []bind, rate engine.Throughput) error {
	s.mu.Lock()
	old := s.current
	s.current = nil // its end is not the sandbox's
	s.mu.Unlock()
	old.client.Close()
	err := s.erase(ctx)
	if err == nil {
		err = s.launch(ctx, hostname, attached, rate)
	}
	if err != nil {
		s.mu.Lock()
		s.current = old // for who asks about it
		s.mu.Unlock()
		s.end()
	}
	return err
}

func (s *sandbox) Kill() error {
	s.mu.Lock()
	c, ended := s.current, s.ended
	s.mu.Unlock()
	if c == nil || ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), attempts*s.engine.api.timeout)
	defer cancel()
	s.Stats(ctx) // the last chance to read them
	return s.engine.api.kill(ctx, c.id)
}

// endForLocks kills a sandbox that holds too many locks of files.
func (s *sandbox) endForLocks(held int) error {
	s.mu.Lock()
	s.last.Locks = int64(held)
	s.mu.Unlock()
	return s.Kill()
}

func (s *sandbox) Destroy(ctx context.Context) error {
	s.mu.Lock()
	left := s.left
	s.destroyed = !left
	c := s.current
	s.mu.Unlock()
	if left {
		return nil // it is not this process's any more
	}
	s.stop()
	if c != nil {
		c.client.Close() // a call under way comes back
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.removed {
		return nil
	}
	if err := s.erase(ctx); err != nil {
		s.engine.disown(s.traces) // Sweep tries again
		return err
	}
	s.removed = true
	if s.sidecar != nil {
		s.sidecar.Close()
	}
	s.watched.Wait()
	s.end()
	s.engine.present.Remove(s)
	if s.keep != nil {
		return s.keep.Remove()
	}
	return nil
}

var _ engine.Pauser = (*sandbox)(nil)

func (s *sandbox) Pause(ctx context.Context) error { return s.freeze(ctx, true) }

func (s *sandbox) Resume(ctx context.Context) error { return s.freeze(ctx, false) }

func (s *sandbox) freeze(ctx context.Context, frozen bool) error {
	s.mu.Lock()
	c, destroyed := s.current, s.destroyed
	s.mu.Unlock()
	if destroyed || c == nil {
		return cove.Errorf(cove.NotFound, "sandbox %s has been destroyed", s.ID())
	}
	return s.engine.api.freeze(ctx, c.id, frozen)
}

// freeze has a container's processes do nothing, or go on, if it is not so already.
func (a *api) freeze(ctx context.Context, id string, frozen bool) error {
	return a.do(ctx, "pause or resume a container", func(ctx context.Context) error {
		var err error
		if frozen {
			_, err = a.c.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		} else {
			_, err = a.c.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		}
		if err == nil || cerrdefs.IsNotFound(err) {
			return err
		}
		// A daemon says in several ways that it is so already.
		now, ierr := a.c.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if state := now.Container.State; ierr == nil && state != nil && state.Running && state.Paused == frozen {
			return nil
		}
		return err
	})
}
