//go:build linux

package native

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/netconnect"
)

var _ engine.Reacher = (*sandbox)(nil)

// reachPatience bounds one attempt to connect: nothing lies between the host and a sandbox's loopback.
const reachPatience = 10 * time.Second

// loopbacks are the addresses at which a program may listen, in the order in which they are tried.
var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// Reach implements engine.Reacher: the guest makes the socket, which the host connects.
func (s *sandbox) Reach(ctx context.Context, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	for _, a := range loopbacks {
		socket, err := guest.MakeSocket(ctx, s.client)
		if err != nil {
			return nil, cove.Errorf(cove.Unavailable, "no socket in sandbox %s: %w", s.ID(), err)
		}
		c, err := netconnect.Connect(ctx, socket, netip.AddrPortFrom(a, port))
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return nil, cove.Errorf(cove.Unavailable, "port %d of sandbox %s cannot be connected to: %w", port, s.ID(), err)
		}
	}
	return nil, cove.Errorf(cove.Unavailable, "nothing listens on port %d of sandbox %s: %w", port, s.ID(),
		unix.ECONNREFUSED)
}
