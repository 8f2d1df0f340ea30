// Package gateway is the host side of everything that leaves a sandbox. For
// each sandbox it puts together a policy, a certificate authority, a DNS filter
// and a proxy, on sockets that were made inside and handed over: so the socket
// tells whose a connection is, and without a gateway there is no way out.
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
	"github.com/cove-sandbox/cove/internal/stock"
)

// Options configure a Gateway.
type Options struct {
	Dir string // for what sandboxes are shown; made when it is needed
	// Keep is where authorities are kept of sandboxes that outlive this process,
	// which then go on trusting what they trust. Nil: none does.
	Keep *ca.Store
	// Ahead is for how many sandboxes what they are to trust is made before they
	// are there (Next): when a way has closed, since nobody waits then. With Keep
	// it is for none.
	Ahead   int
	Bundle  []byte         // roots the sandboxes trust beside their own authority, PEM
	Roots   *x509.CertPool // who vouches for origins; the host's own by default
	Dialer  proxy.Direct   // how origins are reached
	Machine policy.Machine
	// Credentials are those of this machine, beside the presets.
	Credentials []credential.Credential
	// Providers are those of models, as model.Parse gives them; those that Cove
	// knows if nil.
	Providers []model.Provider
	Budget    cove.Budget // where a sandbox has none of its own
	GitHub    github.Servers
	// Packs looks into what is pushed where a policy judges git. Nil: no pack is
	// let through there.
	Packs     Inspector
	Spool     string // directory on disk, where pushes are kept until they are judged; that of the system for such if empty
	Rate      Rate
	Timeouts  proxy.Timeouts
	Patience  time.Duration          // how long a request waits to be approved; 2 min
	Approvals Approvals              // nil remembers nothing beyond a sandbox
	OwnPort   func(port uint16) bool // whether Cove's API is there on this machine, where no sandbox gets; nil: nowhere
	Recorder  *Recorder              // told of every decision; none if nil
	Clock     clock.Clock
	Log       *slog.Logger
}

const defaultPatience = 2 * time.Minute

// Gateway holds the ways out of all sandboxes of this process.
type Gateway struct {
	o        Options
	resolver proxy.Resolver
	values   *credential.Values

	java  java
	ahead *stock.Stock[*trust]
	clean sync.WaitGroup // what removes files

	mu     sync.Mutex
	ways   map[cove.SandboxID]*Way
	next   map[cove.SandboxID]*trust // by ids that Next has given out
	closed bool
}

// New makes a Gateway.
func New(o Options) *Gateway {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Providers == nil {
		o.Providers, _ = model.Known() // which a test has read
	}
	g := &Gateway{o: o, values: credential.NewValues(o.Clock), ways: map[cove.SandboxID]*Way{}, next: map[cove.SandboxID]*trust{}}
	g.java.roots = sync.OnceValue(func() ca.JavaRoots { return ca.NewJavaRoots(o.Bundle) })
	if o.Keep != nil {
		o.Ahead = 0
	}
	g.ahead = stock.New(o.Ahead, g.makeAhead, (*trust).remove)
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

// ownPort reports whether Cove's API is at a port of this machine.
func (g *Gateway) ownPort(port uint16) bool { return g.o.OwnPort != nil && g.o.OwnPort(port) }

// Spec is what a sandbox's way out is made of.
type Spec struct {
	Sandbox     cove.SandboxID
	Name        string             // by which "cove policy allow" knows it: its execution
	Client      string             // who asked for it, for the record
	Policy      []*policy.Document // merged first to last
	Credentials []string           // names
	// Remote is a repository that gets what credential the machine has for it;
	// and with PullRequests the API that opens them.
	Remote       string
	PullRequests bool
	Providers    []string    // names of model providers it may use, the first one by default
	Budget       cove.Budget // for all models together
}

// Open makes a sandbox's way out, which is closed until Serve. Errors:
// InvalidArgument for a policy that cannot be, NotFound for a credential or
// provider, Conflict, StorageFull.
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

// Discard removes what has been kept of a sandbox that is gone for good.
func (g *Gateway) Discard(sandbox cove.SandboxID) error {
	os.RemoveAll(filepath.Join(g.o.Dir, string(sandbox)))
	return g.o.Keep.Remove(sandbox)
}

// State is what passes through now.
type State struct {
	Connections int // from sandboxes
	Holds       int // requests that wait for somebody's word
	Open        int // circuits: upstreams that are left alone because they fail
	HalfOpen    int // and those of them that are being tried again
}

// State adds up what passes through now.
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

// Close closes every way out, and removes what is not kept.
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

// discard removes the files of a sandbox that has no way out any more, without
// waiting for it.
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
