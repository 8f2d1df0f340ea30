package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/dns"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/linux/lent"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
)

// Route is the egress route of one sandbox, in this process.
type Route struct {
	*identity
	*rules
	*decider
	*holds
	*models
	*secrets
	*journal

	authorities  *authorities
	trust        *trust
	placeholders map[string]string // the sandbox's own, by variable
	names        dns.Names
	lookups      *lookups
	filter       *dns.Filter
	proxy        *proxy.Server

	api      *gitHubStage
	git      *gitStage
	bodies   *bodies
	rates    *rates
	breakers *breakers
	pipeline []stage
	presets  *presetIndex
	packages *packageStage

	clock   clock.Clock
	log     *slog.Logger
	serving sync.WaitGroup
	done    chan struct{} // closed by shut
	shut    func()        // may be called again
	forget  func()        // has the gateway forget the route
	endOnce sync.Once

	lending sync.Mutex
	lent    []syscall.Conn // sockets that PID 1 of the sandbox has, too; guarded by lending
	back    *lent.Sockets  // of a route that has been shut, and whose sandbox does not go on
	stays   atomic.Bool    // the sandbox goes on
}

var (
	_ egress.Route  = (*Route)(nil)
	_ egress.Leaver = (*Route)(nil)
)

// providers are the providers of the models of a route.
type providers struct {
	*model.Refusals
	route *Route
}

// Providers implements egress.Route.
func (r *Route) Providers() egress.Providers { return providers{&r.refusals, r} }

// Of, Outage and Latest implement egress.Providers: what a provider said may quote its key.
func (p providers) Of(provider string) (err error, changed <-chan struct{}) {
	err, changed = p.Refusals.Of(provider)
	return p.route.secrets.error(err), changed
}

func (p providers) Outage(provider string) error {
	return p.route.secrets.error(p.Refusals.Outage(provider))
}

func (p providers) Latest(provider string) error {
	return p.route.secrets.error(p.Refusals.Latest(provider))
}

// Reach connects to a provider as a request of the sandbox for it does, and sends nothing. Errors: NotFound for an
// unknown provider, and those of the connection.
func (p providers) Reach(ctx context.Context, provider string) error {
	to := policy.Request{Layer: policy.LayerDial}
	for _, own := range p.route.models.providers {
		if own.Name == provider {
			to.Host, to.Port = own.Host()
			to.Endpoint = true
			return p.route.secrets.error(p.route.proxy.Reach(ctx, to))
		}
	}
	all := p.route.models.known
	i := slices.IndexFunc(all, func(known model.Provider) bool { return known.Name == provider })
	if i < 0 {
		return cove.Errorf(cove.NotFound, "there is no model provider %.64q", provider)
	}
	to.Host, to.Port = all[i].Host()
	return p.route.secrets.error(p.route.proxy.Reach(ctx, to))
}

// Bind adds to a binding what the route needs inside, where the root filesystem is root. The caller closes the binding,
// also on error. Errors: StorageFull, and those of hostpath.Own.
func (r *Route) Bind(b *engine.Binding, root engine.Rootfs) error {
	b.Listeners = append(b.Listeners, engine.RouteListeners()...)
	r.packages.show(b)
	if err := r.trust.bind(b); err != nil {
		return err
	}
	return r.authorities.java.bind(r.trust, b, root, r.clock)
}

// Env returns the environment that leads programs to the proxy and has them trust the sandbox's authority; they get
// there without it, too. It holds placeholders in place of credentials.
func (r *Route) Env() map[string]string {
	return r.EnvAt(fmt.Sprintf("127.0.0.1:%d", engine.ProxyPort), ca.Dir)
}

// EnvAt returns the same for programs that find the proxy at another address, or none, and Files in the directory dir.
func (r *Route) EnvAt(proxy, dir string) map[string]string {
	env := ca.Environment(path.Join(dir, path.Base(ca.Bundle)), path.Join(dir, path.Base(ca.Certificate)))
	maps.Copy(env, r.models.env())
	maps.Copy(env, r.placeholders)
	if proxy == "" {
		return env
	}
	proxyURL := "http://" + proxy
	maps.Copy(env, map[string]string{
		"HTTP_PROXY": proxyURL, "HTTPS_PROXY": proxyURL, "ALL_PROXY": proxyURL, "NO_PROXY": r.neighbours.without(),
		"http_proxy": proxyURL, "https_proxy": proxyURL, "all_proxy": proxyURL, "no_proxy": r.neighbours.without(),
	})
	return env
}

// Files returns the directory on this machine of the files that the sandbox trusts, by their names inside.
func (r *Route) Files() string { return r.trust.dir }

// Certificate returns that of the sandbox's authority, as PEM.
func (r *Route) Certificate() []byte { return r.trust.Certificate() }

// Serve opens the route on the sockets that Bind asked for, as the engine handed them over, and takes them over.
func (r *Route) Serve(sockets []*os.File) error {
	defer func() {
		for _, f := range sockets {
			f.Close() // the listeners have their own
		}
	}()
	if len(sockets) != len(engine.RouteListeners()) {
		return cove.Errorf(cove.Internal, "%d sockets for a sandbox's egress route, want %d", len(sockets),
			len(engine.RouteListeners()))
	}
	var streams []net.Listener
	var packets []net.PacketConn
	for i, l := range engine.RouteListeners() {
		var err error
		if l.Network[:3] == "udp" {
			var p net.PacketConn
			p, err = relayed.PacketConn(sockets[i], l.Address)
			packets = append(packets, p)
		} else {
			var s net.Listener
			s, err = relayed.Listener(sockets[i], l.Address)
			streams = append(streams, s)
		}
		if err != nil {
			return fmt.Errorf("a socket of sandbox %s: %w", r.sandbox, err)
		}
	}
	r.lend(streams, packets)
	r.serve("tcp4", func() error { return r.proxy.ServeTransparent(streams[0]) })
	r.serve("tcp6", func() error { return r.proxy.ServeTransparent(streams[1]) })
	r.ServeProxy(streams[2])
	r.serve("dns", func() error {
		ctx, cancel := context.WithCancel(context.Background())
		r.serving.Go(func() { <-r.done; cancel() })
		return r.filter.Serve(ctx, streams[3:], packets)
	})
	return nil
}

// lend keeps the sockets for the end of the route: PID 1 has them, too.
func (r *Route) lend(streams []net.Listener, packets []net.PacketConn) {
	r.lending.Lock()
	defer r.lending.Unlock()
	for _, s := range streams {
		r.lent = append(r.lent, s.(syscall.Conn))
	}
	for _, p := range packets {
		r.lent = append(r.lent, p.(syscall.Conn))
	}
}

// takeBack opens the sockets once more, for their end.
func (r *Route) takeBack() {
	r.lending.Lock()
	defer r.lending.Unlock()
	r.back = lent.Take(r.lent...)
}

// ServeProxy opens the route to every client that connects to l and speaks to a proxy. It takes over l.
func (r *Route) ServeProxy(l net.Listener) {
	r.serve("proxy", func() error { return r.proxy.ServeExplicit(l) })
}

func (r *Route) serve(what string, f func() error) {
	r.serving.Go(func() {
		err := f()
		select {
		case <-r.done: // its sockets end in any way
			return
		default:
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			r.log.Error("an egress route has closed", "sandbox", r.sandbox, "what", what, "error", err)
		}
	})
}

// Extend adds documents to the policy, at once and for connections that exist: what is no longer allowed is cut.
// Errors: InvalidArgument, and nothing has changed.
func (r *Route) Extend(documents ...*policy.Document) (cut int, err error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	return r.change(append(slices.Clip(r.documents), documents...))
}

// Replace replaces the policy by documents, in the same way.
func (r *Route) Replace(documents ...*policy.Document) (cut int, err error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	return r.change(documents)
}

func (r *Route) change(documents []*policy.Document) (cut int, err error) {
	err = r.rules.change(documents, func() { cut = r.proxy.Rejudge(r.stands) })
	if err == nil {
		r.reconsider()
	}
	return cut, err
}

// Shut ends all use of the route, and waits until it is recorded. Close comes later, when no caller waits.
func (r *Route) Shut() {
	r.shut()
	r.proxy.Shut()
	r.recorder.Flush()
}

// Leave implements egress.Leaver. A sandbox that lets its sockets block keeps it from returning.
func (r *Route) Leave() {
	r.stays.Store(true)
	r.Close()
}

// Close shuts the route and removes its files.
func (r *Route) Close() {
	r.endOnce.Do(func() {
		r.forget()
		r.Shut()
		r.proxy.Close()
		r.serving.Wait()
		if r.back != nil {
			r.back.Free()
		}
		r.authorities.discard(r.trust)
	})
}
