//go:build linux

package native

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/remote"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

func (s *sandbox) Guest() *guest.Client { return s.client }

func (s *sandbox) Done() <-chan struct{} { return s.done }

func (s *sandbox) Listeners() []*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners
}

func (s *sandbox) Bind(ctx context.Context, b engine.Binding) error {
	if err := s.engine.capabilities.CheckBinding(b); err != nil {
		return err
	}
	defer s.engine.refill(s.template)
	s.mu.Lock()
	again := s.bound
	s.bound = true
	s.mu.Unlock()
	if again {
		return cove.Errorf(cove.Conflict, "sandbox %s is bound already", s.ID())
	}
	shared := slices.ContainsFunc(b.Mounts, func(m cove.Mount) bool { return !m.ReadOnly })
	program, err := seccomp.Filter(seccomp.Processes{User: s.template.User, Shared: shared,
		Debuggers: s.template.Debuggers})
	if err != nil {
		return err
	}
	if err := s.throttle(b.Throughput); err != nil {
		return err
	}
	b.Hostname = cmp.Or(b.Hostname, rootfs.Hostname)
	closeMounts, err := b.OpenMounts(ctx, s.engine.o.Paths, s.template.User)
	defer closeMounts()
	if err != nil {
		return err
	}
	trees, sources, err := s.attach(&b)
	defer local.CloseAll(trees)
	s.dropOwnerships()
	if err != nil {
		return err
	}
	plan := planBind(s.template, b, sources, program, shared)
	fds, sent := trees, func(bool) {}
	if s.keep != nil {
		s.keep.Record.Executor = new(remote.Known(s.begun, plan))
		if fds, sent, err = s.keep.Bind(&plan, trees, s.ranges.Held()...); err != nil {
			return err
		}
	}
	if c := b.Copy; c != nil {
		plan.Copy = &guest.Copy{FD: len(fds), Path: c.Path, Spec: c.Spec, Sparse: c.Sparse}
		fds = append(slices.Clip(fds), c.Zygote)
	}
	listeners, err := s.client.Bind(ctx, plan, local.Descriptors(fds))
	sent(err == nil)
	if err != nil {
		return s.explain("seal the sandbox", err)
	}
	if s.keep != nil {
		s.ranges.Close()
		if err := s.haveKeeper(ctx); err != nil {
			local.CloseAll(listeners)
			return s.explain("seal the sandbox", err)
		}
	}
	s.mu.Lock()
	s.listeners, s.lasts = listeners, s.keep != nil
	s.mu.Unlock()
	s.watchLocks()
	return nil
}

// throttle limits the throughput of a device. No program of the user's runs yet.
func (s *sandbox) throttle(t engine.Throughput) error {
	if t == (engine.Throughput{}) {
		return nil
	}
	if err := s.group.Throttle(t.Device, cgroup.Throughput{Bytes: t.Bytes, Operations: t.Operations}); err != nil {
		return cove.Errorf(cove.Unsupported, "cannot limit the throughput of %s: %w", t.Device, err).
			WithHint("run \"cove doctor\"")
	}
	return nil
}

func (s *sandbox) Stats(context.Context) (engine.Stats, error) {
	g, err := s.group.Stats()
	if err != nil {
		return engine.Stats{}, s.destroyed()
	}
	limit := s.template.Limits.PIDs
	s.mu.Lock()
	keeper := s.keeper
	s.mu.Unlock()
	now, most := s.tasks, s.tasks // the guest's own
	if keeper != nil {
		now, most = now+keeper.Threads(), most+guest.Threads // no process of the user's has begun without a keeper
	}
	g.PIDs, g.PIDsPeak = min(max(g.PIDs-now, 0), limit), min(max(g.PIDsPeak-most, 0), limit)
	return engine.Stats{CPUTime: g.CPUTime, MemoryPeak: g.MemoryPeak, PIDs: g.PIDs, PIDsPeak: g.PIDsPeak,
		OOMKills: g.OOMKills, PIDsDenied: g.PIDsDenied, Locks: s.locks.Load()}, nil
}

func (s *sandbox) Destroy(context.Context) error {
	s.mu.Lock()
	left := s.left
	s.mu.Unlock()
	if left {
		return nil // it is not this process's any more
	}
	var err error
	if s.blank != nil {
		s.engine.locks.Remove(s.group.Name())
		err = s.remove()
	}
	if s.keep != nil && err == nil {
		s.keepOnce.Do(func() { s.keepErr = s.keep.Remove() })
		err = s.keepErr
	}
	s.engine.present.Remove(s)
	s.engine.refill(s.template) // it may never have been bound
	return err
}

// close is the end of the engine: a long-lived sandbox goes on.
func (s *sandbox) close() error {
	s.mu.Lock()
	s.left = s.lasts && s.alive()
	left := s.left
	s.mu.Unlock()
	if !left {
		return s.Destroy(context.Background())
	}
	s.engine.present.Remove(s)
	s.engine.locks.Remove(s.group.Name())
	s.leave() // if its guest ends at this moment, Sweep removes the rest
	return s.keep.Disown()
}

// pausePatience is how long the kernel may take to freeze a sandbox, while it finishes what it does for a process.
const pausePatience = 10 * time.Second

var _ engine.Pauser = (*sandbox)(nil)

func (s *sandbox) Pause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pausePatience)
	defer cancel()
	err := s.group.Freeze(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s.destroyed()
	}
	return errors.Join(cove.Errorf(cove.Unavailable, "sandbox %s cannot be paused: %w", s.ID(), err).
		WithHint("try again, or stop it instead"), s.group.Thaw())
}

func (s *sandbox) Resume(context.Context) error {
	if _, err := s.group.Stats(); err != nil {
		return s.destroyed()
	}
	if err := s.group.Thaw(); err != nil {
		return cove.Errorf(cove.Unavailable, "sandbox %s cannot be resumed: %w", s.ID(), err)
	}
	return nil
}
