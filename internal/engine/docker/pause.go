//go:build linux

package docker

import (
	"context"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

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
		if now, ierr := a.c.ContainerInspect(ctx, id, client.ContainerInspectOptions{}); ierr == nil &&
			now.Container.State != nil &&
			now.Container.State.Running && now.Container.State.Paused == frozen {
			return nil
		}
		return err
	})
}
