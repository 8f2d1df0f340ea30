//go:build linux

package docker

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

var _ engine.Adopter = (*Engine)(nil)

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
