//go:build linux

package docker

import (
	"context"
	"net"
	"os"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/enter"
)

var _ engine.Reacher = (*sandbox)(nil)

// Reach implements engine.Reacher: a socket is made in the container's network, without a word of its guest's.
func (s *sandbox) Reach(ctx context.Context, port uint16) (net.Conn, error) {
	if c := s.engine.capabilities; !c.Reach {
		return nil, cove.Errorf(cove.Unsupported, "nothing connects into sandbox %s: %s", s.ID(), c.Missing["reach"])
	}
	s.mu.Lock()
	c, bound := s.current, s.bound && !s.destroyed
	s.mu.Unlock()
	if !bound || c == nil {
		return nil, cove.Errorf(cove.Unavailable, "sandbox %s does not run", s.ID())
	}
	return local.Reach(ctx, s.ID(), port, func(ctx context.Context) (*os.File, error) {
		return c.socket(ctx, s.engine)
	})
}

// socket makes a socket in the container's network.
func (c *running) socket(ctx context.Context, e *Engine) (*os.File, error) {
	done, err := do(ctx, e, enter.Job{PID: c.pid, Socket: true})
	if err != nil {
		return nil, err
	}
	// Asked after it was made: another process may have the id meanwhile.
	if is, err := cgroup.Of(c.pid); err != nil || c.group == nil || !strings.HasSuffix(is.Name(), c.group.Name()) {
		done.Sockets[0].Close()
		return nil, cove.Errorf(cove.Unavailable, "its container does not run")
	}
	return done.Sockets[0], nil
}

// addReach says whether programs in containers can be connected to, by who is root on the daemon's own machine.
func addReach(c *engine.Capabilities, root, here bool) {
	switch {
	case !root:
		c.Missing["reach"] = "only root can enter a container's network; run cove as root, or use --engine native"
	case !here:
		c.Missing["reach"] = "a container's network can be entered only on the daemon's own machine; use --engine native"
	default:
		c.Reach = true
	}
}
