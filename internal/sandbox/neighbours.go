package sandbox

import (
	"context"
	"net"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/store"
)

// withNeighbours returns the network of a sandbox with the way to the services of its group. One that has no network
// besides reaches those alone.
func withNeighbours(rs *residents, record store.Sandbox, n egress.Network) egress.Network {
	if len(record.Spec.Services) == 0 {
		return n
	}
	if n.Mode == "" || n.Mode == cove.NetworkNone {
		n = egress.Network{Mode: cove.NetworkLimited,
			Policy: []*policy.Document{{Source: "services", Mode: cove.NetworkLimited}}}
	}
	n.Neighbours = neighbours{rs, record.Spec.Services}
	return n
}

// neighbours implements egress.Neighbours.
type neighbours struct {
	*residents
	all []store.Service
}

// Names implements egress.Neighbours.
func (n neighbours) Names() (names []string) {
	for _, s := range n.all {
		names = append(names, s.Name)
	}
	return names
}

// Dial implements egress.Neighbours.
func (n neighbours) Dial(ctx context.Context, name string, port uint16) (net.Conn, error) {
	i := slices.IndexFunc(n.all, func(s store.Service) bool { return s.Name == name })
	var sb *provision.Sandbox
	if i >= 0 {
		n.mu.Lock()
		if r := n.held[n.all[i].ID]; r != nil {
			sb = r.box
		}
		n.mu.Unlock()
	}
	if sb == nil || sb.State() != cove.StateRunning {
		return nil, cove.Errorf(cove.Unavailable, "the service %s does not run", name)
	}
	return connect(ctx, sb, "the service "+name, port)
}
