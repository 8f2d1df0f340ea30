package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/dns"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Way is the way out of one sandbox.
type Way struct {
	gateway *Gateway
	sandbox cove.SandboxID
	name    atomic.Pointer[string] // see Rename
	owner   cove.Principal
	asker   cove.Principal // see Spec
	object  string         // see Spec
	started string         // digest of the policy and credentials that it has begun with
	trust   *trust
	names   dns.Names
	lookups *lookups
	filter  *dns.Filter
	proxy   *proxy.Server
	holds   holds
	denied  denials
	// deadline is the time by which the program has ended; see EndBy
	deadline atomic.Pointer[time.Time]

	credentials    *credential.Set // set on what the sandbox itself asks
	hasCredentials bool
	known          *credential.Set   // those, and those of providers
	placeholders   map[string]string // the sandbox's own, by variable
	shown          *redact.Set       // them, for the record
	redactor       redactor

	providers []*provider
	ledger    *model.Ledger

	repos   gitRepos
	spooled chan struct{} // a place for each push that is kept

	rates    *rates
	breakers *breakers
	pipeline []stage

	policy    atomic.Pointer[policy.Policy]
	next      atomic.Pointer[policy.Policy] // while a change cuts
	changing  sync.Mutex
	documents []*policy.Document // of policy; guarded by changing

	ctx     context.Context // ends with Shut
	cancel  context.CancelFunc
	serving sync.WaitGroup
	endOnce sync.Once
}

func (g *Gateway) newWay(s Spec) (w *Way, err error) {
	w = &Way{gateway: g, sandbox: s.Sandbox, owner: s.Owner, asker: s.asker(), object: s.object(), holds: holds{clock: g.o.Clock},
		spooled: make(chan struct{}, maxSpooled)}
	w.name.Store(&s.Name)
	w.rates = newRates(g.o.Rate, g.o.Clock)
	w.breakers = newBreakers(g.o.Log.With("sandbox", s.Sandbox))
	chosen, err := credential.Choose(g.o.Credentials, s.Credentials...)
	if err != nil {
		return nil, err
	}
	remote, err := g.forRemote(s)
	if err != nil {
		return nil, err
	}
	if w.credentials, err = credential.NewSet(g.values, append(chosen, remote...)...); err != nil {
		return nil, err
	}
	w.hasCredentials, w.ledger = len(chosen)+len(remote) > 0, model.NewLedger(s.Budget.Over(g.o.Budget))
	var of []string
	if w.providers, of, err = g.choose(s.Providers, s.Budget.Over(g.o.Budget)); err != nil {
		return nil, err
	}
	if chosen, err = credential.Choose(g.o.Credentials, unique(append(slices.Clip(s.Credentials), of...))...); err != nil {
		return nil, err
	}
	if w.known, err = credential.NewSet(g.values, append(chosen, remote...)...); err != nil {
		return nil, err
	}
	w.pipeline = w.stages(w.credentials, nil)
	for _, p := range w.providers {
		p.pipeline = w.stages(p.credentials, p.Provider)
	}
	w.placeholders = w.known.Placeholders()
	if w.shown, err = concealed(w.placeholders); err != nil {
		return nil, err
	}
	p, err := w.compile(s.Policy)
	if err != nil {
		return nil, err
	}
	w.documents = s.Policy
	w.policy.Store(p)
	if w.started, err = digest(p, append(slices.Clip(s.Credentials), s.Remote)); err != nil {
		return nil, err
	}
	if w.trust, err = g.trust(w); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.filter = dns.New(w, &w.names)
	w.lookups = newLookups(g.resolver, g.o.Clock)
	w.proxy = proxy.New((*client)(w), proxy.Options{Dialer: &g.o.Dialer, Roots: g.o.Roots, Timeouts: g.o.Timeouts, Log: g.o.Log})
	return w, nil
}

// forRemote returns the machine's own credentials for the remote of a spec.
func (g *Gateway) forRemote(s Spec) ([]credential.Credential, error) {
	if s.Remote == "" {
		return nil, nil
	}
	var pulls *credential.API
	if s.PullRequests {
		r, err := policy.ParseRemote(s.Remote)
		if err != nil {
			return nil, err
		}
		if api, ok := g.o.GitHub.API(r.Host); ok {
			pulls = &credential.API{Host: api.Host, Port: api.Port(r.Port), Prefix: api.Prefix}
		}
	}
	return credential.ForRemote(s.Remote, pulls)
}

// unique is a list without what is there already.
func unique(list []string) (once []string) {
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// maySign allows leaves for what the sandbox may connect to, at some port.
func (w *Way) maySign(h policy.Host) error {
	v := w.decide(policy.Request{Layer: policy.LayerDNS, Host: h})
	if _, address := h.Addr(); address || v.Action != policy.Deny {
		return nil // an address has been judged with its port
	}
	return cove.Errorf(cove.Forbidden, "%s", v.Reason)
}

// Bind adds to a binding what the way out needs inside, where the root
// filesystem is root. The caller closes the binding, also on error. Errors:
// StorageFull, and those of hostpath.Own.
func (w *Way) Bind(b *engine.Binding, root engine.Rootfs) error {
	b.Listeners = append(b.Listeners, engine.WayOut()...)
	if err := w.trust.bind(b); err != nil {
		return err
	}
	return w.bindJava(b, root)
}

// Env is the environment that leads programs to the proxy and has them trust
// the sandbox's authority; they get there without it, too. In place of
// credentials it has placeholders.
func (w *Way) Env() map[string]string {
	return w.EnvAt(fmt.Sprintf("127.0.0.1:%d", engine.ProxyPort), path.Dir(bundlePlace))
}

// EnvAt is the same for who finds the proxy at an address of its own, or none,
// and what is in Files in the directory dir.
func (w *Way) EnvAt(proxy, dir string) map[string]string {
	env := ca.Environment(path.Join(dir, path.Base(bundlePlace)), path.Join(dir, path.Base(certificatePlace)))
	maps.Copy(env, w.modelEnv())
	maps.Copy(env, w.placeholders)
	if proxy == "" {
		return env
	}
	proxyURL := "http://" + proxy
	maps.Copy(env, map[string]string{
		"HTTP_PROXY": proxyURL, "HTTPS_PROXY": proxyURL, "ALL_PROXY": proxyURL, "NO_PROXY": noProxy,
		"http_proxy": proxyURL, "https_proxy": proxyURL, "all_proxy": proxyURL, "no_proxy": noProxy,
	})
	return env
}

// Files is the directory on this machine with what the sandbox is to trust, by
// the names that it has inside.
func (w *Way) Files() string { return w.trust.dir }

const noProxy = "localhost,127.0.0.1,::1"

// Serve opens the way: sockets are those that Bind asked for, as the engine
// handed them over. They are the way's from now on.
func (w *Way) Serve(sockets []*os.File) error {
	defer func() {
		for _, f := range sockets {
			f.Close() // the listeners have their own
		}
	}()
	if len(sockets) != len(engine.WayOut()) {
		return cove.Errorf(cove.Internal, "%d sockets for a sandbox's way out, want %d", len(sockets), len(engine.WayOut()))
	}
	var streams []net.Listener
	var packets []net.PacketConn
	for i, l := range engine.WayOut() {
		var err error
		if l.Network[:3] == "udp" {
			var p net.PacketConn
			p, err = net.FilePacketConn(sockets[i])
			packets = append(packets, p)
		} else {
			var s net.Listener
			s, err = net.FileListener(sockets[i])
			streams = append(streams, s)
		}
		if err != nil {
			return fmt.Errorf("a socket of sandbox %s: %w", w.sandbox, err)
		}
	}
	w.serve("tcp4", func() error { return w.proxy.ServeTransparent(streams[0]) })
	w.serve("tcp6", func() error { return w.proxy.ServeTransparent(streams[1]) })
	w.ServeProxy(streams[2])
	w.serve("dns", func() error { return w.filter.Serve(w.ctx, streams[3:], packets) })
	return nil
}

// ServeProxy opens the way to whoever connects to l and speaks to a proxy. It
// is the way's from now on.
func (w *Way) ServeProxy(l net.Listener) {
	w.serve("proxy", func() error { return w.proxy.ServeExplicit(l) })
}

func (w *Way) serve(what string, f func() error) {
	w.serving.Go(func() {
		if err := f(); err != nil && !errors.Is(err, net.ErrClosed) {
			w.gateway.o.Log.Error("a sandbox's way out has closed", "sandbox", w.sandbox, "what", what, "error", err)
		}
	})
}

// Certificate is that of the sandbox's authority, as PEM.
func (w *Way) Certificate() []byte { return w.trust.Certificate() }

// Extend adds documents to the policy, at once and for connections that exist:
// what is no longer allowed is cut. Errors: InvalidArgument, and nothing has
// changed.
func (w *Way) Extend(documents ...*policy.Document) (cut int, err error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	return w.change(append(slices.Clip(w.documents), documents...))
}

// Replace puts documents in the place of the policy, in the same way.
func (w *Way) Replace(documents ...*policy.Document) (cut int, err error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	return w.change(documents)
}

// change makes a policy of documents the one that counts. Until everything is
// cut that it does not allow, nothing is that the one before did not.
func (w *Way) change(documents []*policy.Document) (cut int, err error) {
	p, err := w.compile(documents)
	if err != nil {
		return 0, err
	}
	w.next.Store(p)
	cut = w.proxy.Rejudge(w.stands)
	w.documents = documents
	w.policy.Store(p)
	w.next.Store(nil)
	w.holds.reconsider(w.judge)
	return cut, nil
}

// stands judges, during a change, what goes on already: what the policy has
// asked about until now was approved, or waits.
func (w *Way) stands(r policy.Request) policy.Verdict {
	v := w.judge(r)
	if v.Action == policy.Ask && w.policy.Load().Decide(r).Action == policy.Ask {
		v.Action = policy.Allow
	}
	return v
}

func (w *Way) compile(documents []*policy.Document) (*policy.Policy, error) {
	p, err := policy.Compile(w.gateway.o.Machine, documents...)
	if err != nil {
		return nil, err
	}
	if err := w.credentials.Check(p.Decide); err != nil {
		return nil, err
	}
	return p.For(*w.name.Load()), nil
}

// Rename says what the sandbox is called from now on, to whoever decides, is
// told, or reads what was decided.
func (w *Way) Rename(name string) {
	w.changing.Lock()
	defer w.changing.Unlock()
	w.name.Store(&name)
	w.policy.Store(w.policy.Load().For(name))
}

// decide asks the policy, and during a change the next one too.
func (w *Way) decide(r policy.Request) policy.Verdict {
	next := w.next.Load() // first: see change
	v := w.policy.Load().Decide(r)
	if next == nil {
		return v
	}
	after := next.Decide(r)
	if after.Action == policy.Deny || after.Action == policy.Ask && v.Action == policy.Allow {
		v, after = after, v
	}
	v.PassThrough = v.PassThrough && after.PassThrough
	v.Whole = v.Whole && after.Whole
	return v
}

// Shut ends everything that uses the way, lets nothing through from now on, and
// waits until all of that is recorded. Close comes later, when nobody waits.
func (w *Way) Shut() {
	w.cancel()
	w.proxy.Shut()
	w.gateway.o.Recorder.Flush()
}

// Close shuts the way and removes what it is made of.
func (w *Way) Close() {
	w.gateway.forget(w)
	w.end()
}

func (w *Way) end() {
	w.endOnce.Do(func() {
		w.Shut()
		w.proxy.Close()
		w.serving.Wait()
		w.gateway.discard(w.trust)
	})
}

// sshPort is where a GitHub server has git and no API.
const sshPort = 22

// judge is the policy, as far as nobody has to be asked; then it answers Ask.
func (w *Way) judge(r policy.Request) policy.Verdict {
	switch {
	case r.Endpoint:
		return w.judgeBehind(r)
	case r.Host.Name() == policy.GatewayService:
		return w.judgeEndpoints(r)
	case r.Host.Name() == policy.HostService && w.gateway.ownPort(r.Port):
		return policy.Verdict{Rule: "gateway", Reason: r.Host.Authority(r.Port) + " is Cove itself, which no rule opens"}
	}
	v := w.decide(r)
	if why := w.lookedInto(r); why != "" {
		if v.PassThrough {
			return policy.Verdict{Rule: v.Rule, Reason: why}
		}
		v.Passable = false
	}
	if v.Action == policy.Ask && implied(r, v) {
		v.Action = policy.Allow
	}
	return v
}

// lookedInto is why a connection cannot be passed through, or nothing.
func (w *Way) lookedInto(r policy.Request) string {
	switch {
	case r.Layer != policy.LayerConnect:
		return ""
	case w.credentials.Binds(r.Host, r.Port):
		return "a credential is set on requests to " + r.Host.Authority(r.Port) + ", which cannot be passed through"
	case w.gitHost(r.Host):
		return "what is asked of repositories over git is judged, so connections to " + r.Host.String() + " cannot be passed through"
	case r.Port != sshPort && w.gateway.o.GitHub.Has(r.Host):
		return "what is asked of GitHub's API is judged, so connections to " + r.Host.String() + " cannot be passed through"
	}
	return ""
}

// Decide implements proxy.Sandbox and dns.Client.
func (w *Way) Decide(ctx context.Context, r policy.Request) policy.Verdict {
	v := w.judge(r)
	if v.Action == policy.Ask {
		v = w.ask(ctx, r, v)
	}
	return v
}

// Resolve implements dns.Client. A name that a rule asks about exists, and is
// looked up when it is dialled: a question would leave before any answer.
func (w *Way) Resolve(ctx context.Context, name policy.Host) error {
	if name.Name() == policy.GatewayService || w.policy.Load().Decide(policy.Request{Layer: policy.LayerDNS, Host: name}).Action == policy.Ask {
		return nil
	}
	var minting sync.WaitGroup
	defer minting.Wait()
	minting.Go(func() { w.trust.Leaf(name) }) // which a connection will need, and which takes no longer
	return w.lookups.exists(ctx, name)
}

// Asked implements dns.Client.
func (w *Way) Asked(name, kind string, v policy.Verdict, stage decision.Stage, refused string) {
	w.record(decision.Decision{
		Time: w.gateway.o.Clock.Now(), Entry: decision.EntryDNS, Host: strings.ToLower(strings.TrimSuffix(name, ".")), Method: kind,
		Verdict: verdictOf(refused == "" || stage == decision.StageUpstream), Stage: stage, Rule: v.Rule, Reason: refused, Remedy: v.Remedy,
	})
}

// client is what the proxy knows a way out as.
type client Way

func (c *client) way() *Way { return (*Way)(c) }

func (c *client) ID() cove.SandboxID { return c.sandbox }

func (c *client) Decide(ctx context.Context, r policy.Request) policy.Verdict {
	v := c.way().Decide(ctx, r)
	if v.Action == policy.Allow && r.Layer == policy.LayerConnect && r.Host.Name() != "" && !c.filter.Permit(r.Host) {
		return policy.Verdict{Rule: ruleNames, Reason: dns.TooManyNames}
	}
	return v
}

// Early implements proxy.Sandbox: what stages of the pipeline may refuse, and
// what has been approved or is the gateway's own, is not begun before it is asked.
func (c *client) Early(r policy.Request) bool {
	v := c.way().judge(r)
	if v.Action != policy.Allow || r.Layer != policy.LayerConnect {
		return v.Action == policy.Allow
	}
	if !v.Whole || c.gateway.o.GitHub.Has(r.Host) || c.way().gitHost(r.Host) || !c.breakers.closed(upstreamOf(r)) {
		return false
	}
	return c.rates.ahead(upstreamOf(r)) == nil
}

// ruleNames bounds how many names are looked up: they reach resolvers and the
// servers of their domains, whatever is sent to them.
const ruleNames = "gateway: names"

func (c *client) Pinned(a netip.Addr) (policy.Host, bool) { return c.names.Name(a) }

// Found implements proxy.Sandbox.
func (c *client) Found(name policy.Host) []netip.Addr { return c.lookups.take(name) }

func (c *client) Leaf(h policy.Host) (*tls.Certificate, error) { return c.trust.Leaf(h) }

// HTTP2 implements proxy.Sandbox. A git before 2.44 hangs for good when curl asks
// again for what has ended, as some do in HTTP/2: one upload of more than a mebibyte in
// twenty on a busy machine, with git 2.39 and libcurl 7.88.
func (c *client) HTTP2(h policy.Host) bool { return !c.way().gitHost(h) }

// Record implements proxy.Sandbox.
func (c *client) Record(e proxy.Event) {
	d := decisionOf(e)
	if d.Stage == decision.StagePolicy && c.way().judge(e.Request).Action == policy.Ask {
		d.Stage = decision.StageApproval
	}
	if d.Verdict == decision.Deny && e.Verdict.Passable {
		d.Remedy = c.way().policy.Load().Through(e.Request.Host, e.Request.Port)
	}
	c.way().record(d)
}
