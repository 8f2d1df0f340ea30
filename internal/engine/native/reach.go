//go:build linux

package native

import (
	"context"
	"net"
	"os"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
)

var _ engine.Reacher = (*sandbox)(nil)

// Reach implements engine.Reacher: the guest makes the socket.
func (s *sandbox) Reach(ctx context.Context, port uint16) (net.Conn, error) {
	return local.Reach(ctx, s.ID(), port, func(ctx context.Context) (*os.File, error) {
		return guest.MakeSocket(ctx, s.client)
	})
}
