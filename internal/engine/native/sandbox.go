//go:build linux

package native

import (
	"context"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
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
	program, err := seccomp.Filter(s.template.User)
	if err != nil {
		return err
	}
	trees, sources, err := s.openBinding(b)
	defer closeAll(trees)
	s.dropOwnerships()
	if err != nil {
		return err
	}
	plan := planBind(s.template, hostname(b), sources, program)
	fds, sent := trees, func(bool) {}
	if s.keep != nil {
		if fds, sent, err = s.keep.Bind(&plan, trees, s.ranges.Held()...); err != nil {
			return err
		}
	}
	listeners, err := s.client.Bind(ctx, plan, descriptors(fds))
	sent(err == nil)
	if err == nil && s.keep != nil {
		s.ranges.Close()
	}
	if err != nil {
		return s.explain("seal the sandbox", err)
	}
	s.mu.Lock()
	s.listeners, s.lasts = listeners, s.keep != nil
	s.mu.Unlock()
	return nil
}

func (s *sandbox) Stats(context.Context) (engine.Stats, error) {
	g, err := s.group.Stats()
	if err != nil {
		return engine.Stats{}, s.destroyed()
	}
	limit := s.template.Limits.PIDs
	users := func(n int64) int64 { return min(max(n-s.tasks, 0), limit) }
	return engine.Stats{
		CPUTime: g.CPUTime, MemoryPeak: g.MemoryPeak, OOMKills: g.OOMKills, PIDsDenied: g.PIDsDenied,
		PIDs: users(g.PIDs), PIDsPeak: users(g.PIDsPeak),
	}, nil
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
		err = s.remove()
	}
	if s.keep != nil && err == nil {
		s.keepOnce.Do(func() { s.keepErr = s.keep.Remove() })
		s.ranges.Close()
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
	s.leave() // if its guest ends at this moment, Sweep removes the rest
	return s.keep.Disown()
}
