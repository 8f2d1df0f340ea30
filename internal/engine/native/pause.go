//go:build linux

package native

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// pausePatience is how long the kernel may take to freeze a sandbox: a process that it is doing something for is frozen
// when that is done.
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
