// Package gateway is the host side of all egress of sandboxes. For each sandbox it assembles a policy, a certificate
// authority, a DNS filter and a proxy, on sockets that were made inside and handed over. The socket therefore
// identifies the sandbox of a connection, and without a gateway there is no egress.
package gateway

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/prewarm"
	"github.com/cove-sandbox/cove/internal/store"
)

// Options configure a Gateway.
type Options struct {
	Dir string // for files that are mounted into sandboxes; made on demand
	// Keep stores the authorities of sandboxes that outlive this process, so that their trust continues. Nil: no
	// sandbox does.
	Keep *ca.Store
	// Ahead is the number of sandboxes whose authority and files are made in advance (Next), after a route has closed,
	// when no caller waits. With Keep there are none.
	Ahead   int
	Bundle  []byte         // roots that sandboxes trust beside their own authority, PEM
	Roots   *x509.CertPool // trusted for origins; the host's own by default
	Dialer  proxy.Direct   // connects to origins
	Machine policy.Machine
	// Credentials are those of this machine, in addition to the presets.
	Credentials []credential.Credential
	// Providers are the providers of models, as returned by model.Parse; nil means the built-in ones.
	Providers []model.Provider
	Budget    cove.Budget // for a sandbox without its own
	GitHub    github.Servers
	// Packs inspects pushed packs where a policy judges git. Nil: such pushes are refused.
	Packs     Inspector
	Spool     string // directory on disk for pushes until they are judged; the system's temporary one if empty
	Rate      Rate
	Timeouts  proxy.Timeouts
	Patience  time.Duration // how long a request waits for an approval; 2 min
	Approvals *store.Vault  // nil stores no approval beyond a sandbox
	// reports the port of Cove's API on this machine, which sandboxes may not reach; nil: none
	OwnPort  func(port uint16) bool
	Recorder *Recorder // receives every decision; may be nil
	Clock    clock.Clock
	Log      *slog.Logger
}

const defaultPatience = 2 * time.Minute

// Gateway holds the routes of all sandboxes of this process.
type Gateway struct {
	o        Options
	resolver proxy.Resolver
	values   *credential.Values

	java  java
	ahead *prewarm.Buffer[*trust]
	clean sync.WaitGroup // removals of files

	mu     sync.Mutex
	ways   map[cove.SandboxID]*Way
	next   map[cove.SandboxID]*trust // by ids that Next has returned
	closed bool
}

// New returns a Gateway.
func New(o Options) *Gateway {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Providers == nil {
		o.Providers, _ = model.Known() // a test parses them
	}
	g := &Gateway{o: o, values: credential.NewValues(o.Clock), ways: map[cove.SandboxID]*Way{},
		next: map[cove.SandboxID]*trust{}}
	g.java.roots = sync.OnceValue(func() ca.JavaRoots { return ca.NewJavaRoots(o.Bundle) })
	if o.Keep != nil {
		o.Ahead = 0
	}
	g.ahead = prewarm.New(o.Ahead, g.makeAhead, (*trust).remove)
	g.resolver = hostService{o.Dialer.Resolver}
	if o.Dialer.Resolver == nil {
		g.resolver = hostService{net.DefaultResolver}
	}
	g.o.Dialer.Resolver = g.resolver
	return g
}

// hostService resolves the name of the machine's own services.
type hostService struct{ proxy.Resolver }

func (h hostService) LookupNetIP(ctx context.Context, network, name string) ([]netip.Addr, error) {
	if name == policy.HostService || name == policy.HostService+"." {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	return h.Resolver.LookupNetIP(ctx, network, name)
}

// ownPort reports whether a port of this machine serves Cove's API.
func (g *Gateway) ownPort(port uint16) bool { return g.o.OwnPort != nil && g.o.OwnPort(port) }

// Spec describes the egress route of a sandbox.
type Spec struct {
	Sandbox cove.SandboxID
	Name    string         // its name for "cove policy allow": its execution
	Owner   cove.Principal // the principal whose sandbox it is
	// Asker sees and answers the route's questions, and Object is the route in the audit log of that; Owner and Sandbox if
	// not set. They differ where the host acts for a sandbox, on a route of its own.
	Asker       cove.Principal
	Object      string
	Policy      []*policy.Document // merged first to last
	Credentials []string           // names
	// Remote is a repository whose requests get the machine's own credential for it; with PullRequests so do requests
	// to the API that opens them.
	Remote       string
	PullRequests bool
	Providers    []string    // names of permitted model providers, the default first
	Budget       cove.Budget // for all models together
}

// Open makes a sandbox's route, which admits nothing until Serve. Errors: InvalidArgument for an invalid policy,
// NotFound for a credential or provider, Conflict, StorageFull.
func (g *Gateway) Open(s Spec) (*Way, error) {
	w, err := g.newWay(s)
	if err != nil {
		if t := g.claim(s.Sandbox); t != nil {
			g.discard(t)
		}
		return nil, err
	}
	g.mu.Lock()
	_, taken := g.ways[s.Sandbox]
	refuse := taken || g.closed
	if !refuse {
		g.ways[s.Sandbox] = w
	}
	g.mu.Unlock()
	if refuse {
		w.end()
		return nil, cove.Errorf(cove.Conflict, "sandbox %s has a way out already, or the gateway is closing", s.Sandbox)
	}
	return w, nil
}

func (g *Gateway) forget(w *Way) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ways[w.sandbox] == w {
		delete(g.ways, w.sandbox)
	}
}

// Discard removes the stored files of a destroyed sandbox.
func (g *Gateway) Discard(sandbox cove.SandboxID) error {
	os.RemoveAll(filepath.Join(g.o.Dir, string(sandbox)))
	return g.o.Keep.Remove(sandbox)
}

// State counts present activity.
type State struct {
	Connections int // from sandboxes
	Holds       int // requests that wait for an approval
	Open        int // circuits of failing upstreams
	HalfOpen    int // circuits that a request probes
}

// State returns the sums of present activity.
func (g *Gateway) State() (s State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.ways {
		s.Connections += w.proxy.Connections()
		s.Holds += w.holds.count()
		open, halfOpen := w.breakers.states()
		s.Open, s.HalfOpen = s.Open+open, s.HalfOpen+halfOpen
	}
	return s
}

// Close closes every route, and removes everything that is not stored.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	for _, t := range g.next {
		g.discard(t)
	}
	clear(g.next)
	g.mu.Unlock()
	for _, w := range g.all() {
		w.Close()
	}
	g.ahead.Close()
	g.clean.Wait()
}

// discard removes the files of a closed sandbox in the background.
func (g *Gateway) discard(t *trust) {
	if g.o.Keep == nil {
		g.clean.Go(t.remove)
		g.ahead.Refill()
	}
}

func (g *Gateway) all() []*Way {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.ways))
}
