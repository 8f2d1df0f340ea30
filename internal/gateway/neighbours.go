package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// neighbours are the services of the group of a route's sandbox, with the way to them.
type neighbours struct {
	egress.Neighbours
	names []string
}

func newNeighbours(of egress.Neighbours) neighbours {
	if of == nil {
		return neighbours{}
	}
	return neighbours{of, of.Names()}
}

// verdict returns the verdict on a request to a neighbour, unless it is for another host.
func (n neighbours) verdict(r policy.Request) (policy.Verdict, bool) {
	return policy.Neighbour(n.names, r)
}

// has reports whether a host is a neighbour.
func (n neighbours) has(h policy.Host) bool { return slices.Contains(n.names, h.Name()) }

const noProxy = "localhost,127.0.0.1,::1"

// without returns the hosts that programs are told to reach without the proxy.
func (n neighbours) without() string { return strings.Join(append([]string{noProxy}, n.names...), ",") }

// neighbourDialer is a proxy.Dialer that connects to neighbours, and has another one connect to every other host. A
// neighbour has no address to check: its name alone says where the connection goes.
type neighbourDialer struct {
	neighbours
	proxy.Dialer
}

// Dial implements proxy.Dialer.
func (d neighbourDialer) Dial(ctx context.Context, host policy.Host, port uint16, known []netip.Addr,
	check func(netip.Addr) error) (net.Conn, error) {
	if d.has(host) {
		return d.neighbours.Dial(ctx, host.Name(), port)
	}
	return d.Dialer.Dial(ctx, host, port, known, check)
}
