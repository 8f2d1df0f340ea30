//go:build linux

package local

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/netconnect"
)

// reachPatience bounds one attempt to connect: nothing lies between the host and a sandbox's loopback.
const reachPatience = 10 * time.Second

// loopbacks are the addresses at which a program may listen, in the order in which they are tried.
var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// Reach connects to a TCP port of a sandbox as engine.Reacher does: socket makes a socket in its network, which this
// process connects.
func Reach(ctx context.Context, id cove.SandboxID, port uint16,
	socket func(context.Context) (*os.File, error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	for _, a := range loopbacks {
		f, err := socket(ctx)
		if err != nil {
			return nil, cove.Errorf(cove.Unavailable, "no socket in sandbox %s: %w", id, err)
		}
		c, err := netconnect.Connect(ctx, f, netip.AddrPortFrom(a, port))
		if err == nil {
			return c, nil
		}
		// Container engines turn IPv6 off where they give no address.
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return nil, cove.Errorf(cove.Unavailable, "port %d of sandbox %s cannot be connected to: %w", port, id, err)
		}
	}
	return nil, cove.Errorf(cove.Unavailable, "nothing listens on port %d of sandbox %s: %w", port, id,
		unix.ECONNREFUSED)
}
