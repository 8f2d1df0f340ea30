// Package gateway is the host side of all egress of sandboxes. For each sandbox it assembles a policy, a certificate
// authority, a DNS filter and a proxy, on sockets that were made inside and handed over. The socket therefore
// identifies the sandbox of a connection, and without a gateway there is no egress.
package gateway

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

// Gateway holds the routes of all sandboxes of this process.
type Gateway struct {
	o           Options
	resolver    proxy.Resolver
	authorities *authorities
	presets     *presetIndex
	registries  *registries
	signers     *signers
	sums        *goSums
	indexes     *semaphore.Weighted // see indexAsker

	mu     sync.Mutex
	routes map[cove.SandboxID]*Route
	closed bool
}

// New returns a Gateway.
func New(o Options) *Gateway {
	o.Patience = cmp.Or(o.Patience, 2*time.Minute)
	if o.Values == nil {
		o.Values = credential.NewValues(o.Clock)
	}
	o.Dialer.Resolver = hostService{cmp.Or[proxy.Resolver](o.Dialer.Resolver, net.DefaultResolver)}
	return &Gateway{o: o, resolver: o.Dialer.Resolver, presets: newPresetIndex(o.Machine),
		registries:  &registries{machine: o.Machine, found: map[string][]policy.Endpoint{}},
		signers:     newSigners(&o),
		sums:        newGoSums(&o),
		indexes:     semaphore.NewWeighted(maxIndexBytes),
		authorities: newAuthorities(&o), routes: map[cove.SandboxID]*Route{}}
}

// described returns what the machine's owner has described, with the built-in providers where there are no others.
func (g *Gateway) described() (d Described, err error) {
	if g.o.Described != nil {
		d, err = g.o.Described()
	}
	if err == nil && d.Providers == nil {
		d.Providers, err = model.Known()
	}
	return d, err
}

type hostService struct{ proxy.Resolver }

func (h hostService) LookupNetIP(ctx context.Context, network, name string) ([]netip.Addr, error) {
	if name == policy.HostService || name == policy.HostService+"." {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	return h.Resolver.LookupNetIP(ctx, network, name)
}

// Next returns the id for a sandbox that is about to get a route. Its authority may have been made ahead, and no other
// sandbox uses it, so the caller must open the route.
func (g *Gateway) Next() cove.SandboxID { return g.authorities.nextID() }

func (g *Gateway) add(r *Route) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.routes[r.sandbox] != nil {
		return false
	}
	g.routes[r.sandbox] = r
	return true
}

func (g *Gateway) remove(r *Route) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.routes[r.sandbox] == r {
		delete(g.routes, r.sandbox)
	}
}

// Discard removes the stored files of a destroyed sandbox.
func (g *Gateway) Discard(sandbox cove.SandboxID) error { return g.authorities.remove(sandbox) }

// State counts present activity.
type State struct {
	Connections int // from sandboxes
	Holds       int // requests that wait for an approval
	Open        int // circuits of failing upstreams
	HalfOpen    int // circuits that a request probes

	Packages cache.Counts // of the life of the cache, which gateways of a process share
}

// State returns the sums of present activity.
func (g *Gateway) State() (s State) {
	if g.o.Packages != nil {
		s.Packages = g.o.Packages.Counts()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.routes {
		s.Connections += r.proxy.Connections()
		s.Holds += r.holds.count()
		open, halfOpen := r.breakers.states()
		s.Open, s.HalfOpen = s.Open+open, s.HalfOpen+halfOpen
	}
	return s
}

// Close closes every route, and removes everything that is not stored.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	for _, r := range g.all() {
		r.Close()
	}
	g.authorities.close()
}

func (g *Gateway) all() []*Route {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.routes))
}
