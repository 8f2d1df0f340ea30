package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asks is a policy with each kind of asking rule.
const asks = `
rules:
  - {hosts: asked.test, action: ask}
  - {hosts: forge.test, methods: [POST, DELETE], paths: /repos/**, action: ask}
  - {hosts: raw.test, ports: 22, pass_through: true, action: ask}
  - {hosts: inner.test}
  - {cidrs: 10.0.0.0/8, action: ask}
  - {hosts: allowed.test}
`

func document(t *testing.T, text string) *policy.Document {
	t.Helper()
	d, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// memory stands for the store's approvals.
type memory struct {
	store.Store

	mu  sync.Mutex
	all []approval.Approval
	err error
}

func (m *memory) Approve(_ context.Context, a approval.Approval) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, a)
	return m.err
}

func (m *memory) Approved(_ context.Context, digest string, s approval.Subject, who []cove.Principal,
	at time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.all, func(a approval.Approval) bool {
		return a.Policy == digest && a.Subject == s && slices.Contains(who, a.Who) && at.Before(a.Until)
	}), m.err
}

func newTestGateway(t *testing.T) (*Gateway, *clocktest.Manual, *memory) {
	t.Helper()
	c, m := clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), &memory{}
	g := New(Options{Dir: t.TempDir(), Clock: c, Approvals: new(store.NewVault(m)), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(g.Close)
	return g, c, m
}

func openRoute(t *testing.T, g *Gateway, owner cove.Principal, text string) *Route {
	t.Helper()
	w, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Owner: owner,
		Policy: []*policy.Document{document(t, text)}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func newTestRoute(t *testing.T) (*Route, *clocktest.Manual) {
	t.Helper()
	g, c, _ := newTestGateway(t)
	return openRoute(t, g, cove.MachineOwner(), asks), c
}

func connectTo(t *testing.T, name string, port uint16) policy.Request {
	t.Helper()
	h, err := policy.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Request{Layer: policy.LayerConnect, Host: h, Port: port}
}

func requestOf(t *testing.T, name, method, path string) policy.Request {
	r := connectTo(t, name, 443)
	r.Layer, r.Method, r.Path = policy.LayerHTTP, method, path
	return r
}

func dialTo(t *testing.T, name, address string) policy.Request {
	r := connectTo(t, name, 443)
	r.Layer, r.Address = policy.LayerDial, netip.MustParseAddr(address)
	return r
}

func held(w *Route) []approval.Hold {
	all, _ := w.Holds()
	return all
}

func waiting(w *Route) int { return w.holds.count() }

func requests(all []approval.Hold) (n int) {
	for _, h := range all {
		n += h.Count
	}
	return n
}

// begin asks, and waits until the request is held.
func begin(t *testing.T, w *Route, r policy.Request) (approval.Hold, <-chan policy.Verdict) {
	t.Helper()
	before := waiting(w)
	verdict := make(chan policy.Verdict, 1)
	go func() { verdict <- w.Decide(context.Background(), r) }()
	for {
		all, changed := w.Holds()
		if requests(all) > before {
			i := slices.IndexFunc(all, func(h approval.Hold) bool {
				return h.Subject == approval.Of(r, w.policy.Load().Decide(r)) && h.Method == r.Method
			})
			return all[i], verdict
		}
		select {
		case v := <-verdict:
			t.Fatalf("not held: %+v", v)
		case <-changed:
		}
	}
}

func reply(t *testing.T, w *Route, h approval.Hold, a approval.Answer) {
	t.Helper()
	if _, err := w.Answer(t.Context(), cove.MachineOwner(), h.ID, a); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, verdict <-chan policy.Verdict, action policy.Action, why string) {
	t.Helper()
	if v := <-verdict; v.Action != action || !strings.Contains(v.Reason, why) {
		t.Errorf("%+v, want %s because %q", v, action, why)
	}
}

// TestAskedOnce: one request causes one question, whatever the policy: layers that depend on another question are
// implied.
func TestAskedOnce(t *testing.T) {
	w, _ := newTestRoute(t)
	now := func(r policy.Request) policy.Action { return w.judge(r).Action }
	for _, c := range []struct {
		name string
		r    policy.Request
		want policy.Action
	}{
		{"the name", policy.Request{Layer: policy.LayerDNS, Host: connectTo(t, "asked.test", 0).Host}, policy.Allow},
		{"a connection that is looked into", connectTo(t, "asked.test", 443), policy.Allow},
		{"the request in it", requestOf(t, "asked.test", "GET", "/"), policy.Ask},
		{"where it goes", dialTo(t, "asked.test", "93.184.216.34"), policy.Allow},
		{"where it goes, inside", dialTo(t, "asked.test", "10.0.0.7"), policy.Ask},
		{"a connection that passes through", connectTo(t, "raw.test", 22), policy.Ask},
		{"one whose request is judged all the same", func() policy.Request {
			r := connectTo(t, "raw.test", 22)
			r.Inside = true
			return r
		}(), policy.Allow},
		{"a request that is allowed", requestOf(t, "inner.test", "GET", "/"), policy.Allow},
		{"where that goes, inside", dialTo(t, "inner.test", "10.0.0.7"), policy.Ask},
		{"an address", requestOf(t, "10.0.0.7", "GET", "/"), policy.Ask},
		{"and where that is", dialTo(t, "10.0.0.7", "10.0.0.7"), policy.Allow},
		{"another port", connectTo(t, "asked.test", 8443), policy.Deny},
		{"another method", requestOf(t, "forge.test", "GET", "/repos/x"), policy.Deny},
	} {
		if got := now(c.r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if err := (dnsView{w}).Resolve(t.Context(), connectTo(t, "asked.test", 0).Host); err != nil {
		t.Errorf("its name was looked up: %v", err)
	}
}

func TestOnce(t *testing.T) {
	w, c := newTestRoute(t)
	r := requestOf(t, "asked.test", "POST", "/x")
	h, verdict := begin(t, w, r)
	if h.Rule != "policy.yaml:3" || h.Method != "POST" || h.Path != "/x" || h.Count != 1 ||
		h.Subject.String() != "asked.test:443" || !h.Since.Equal(c.Now()) || h.Until.Sub(h.Since) != 2*time.Minute {
		t.Errorf("held as %+v", h)
	}
	reply(t, w, h, approval.Answer{Allow: true})
	want(t, verdict, policy.Allow, "approved")
	if _, err := w.Answer(t.Context(), cove.MachineOwner(), h.ID,
		approval.Answer{Allow: true}); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("a second answer: %v", err)
	}
	h, verdict = begin(t, w, r) // the answer covered one request
	reply(t, w, h, approval.Answer{Scope: approval.Once})
	want(t, verdict, policy.Deny, "and denied")
	h, verdict = begin(t, w, r)
	if _, err := w.Answer(t.Context(), cove.MachineOwner(), h.ID, approval.Answer{
		Allow: true, For: time.Hour,
	}); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("once for an hour: %v", err)
	}
	reply(t, w, h, approval.Answer{Allow: true, Scope: approval.Once})
	want(t, verdict, policy.Allow, "")
}

// TestOneQuestion: requests without a relevant difference share a question.
func TestOneQuestion(t *testing.T) {
	w, _ := newTestRoute(t)
	var verdicts []<-chan policy.Verdict
	for _, path := range []string{"/a", "/b", "/c"} {
		_, verdict := begin(t, w, requestOf(t, "asked.test", "GET", path))
		verdicts = append(verdicts, verdict)
	}
	_, post := begin(t, w, requestOf(t, "asked.test", "POST", "/a"))
	all := held(w)
	if len(all) != 2 || all[0].Count+all[1].Count != 4 {
		t.Fatalf("%+v", all)
	}
	get := all[slices.IndexFunc(all, func(h approval.Hold) bool { return h.Method == "GET" })]
	if get.Path != "/a" || get.Count != 3 {
		t.Errorf("%+v", get)
	}
	reply(t, w, get, approval.Answer{Allow: true})
	for _, v := range verdicts {
		want(t, v, policy.Allow, "")
	}
	if left := held(w); len(left) != 1 || left[0].Method != "POST" {
		t.Fatalf("left: %+v", left)
	}
	reply(t, w, held(w)[0], approval.Answer{Scope: approval.Once})
	want(t, post, policy.Deny, "")

	// Where rules look at methods and paths, an answer covers only these.
	one, first := begin(t, w, requestOf(t, "forge.test", "POST", "/repos/a"))
	other, second := begin(t, w, requestOf(t, "forge.test", "POST", "/repos/b"))
	if one.ID == other.ID || one.Subject.String() != "POST forge.test:443/repos/a" {
		t.Errorf("%+v and %+v", one, other)
	}
	reply(t, w, one, approval.Answer{Allow: true, Scope: approval.Sandbox})
	want(t, first, policy.Allow, "")
	if waiting(w) != 1 {
		t.Errorf("%+v", held(w))
	}
	reply(t, w, other, approval.Answer{})
	want(t, second, policy.Deny, "")
}

// TestForTheSandbox: an answer covers equal requests until it expires.
func TestForTheSandbox(t *testing.T) {
	w, c := newTestRoute(t)
	r := requestOf(t, "asked.test", "GET", "/")
	h, first := begin(t, w, r)
	_, second := begin(t, w, requestOf(t, "asked.test", "PUT", "/y"))
	reply(t, w, h, approval.Answer{Allow: true, Scope: approval.Sandbox, For: time.Hour})
	want(t, first, policy.Allow, "")
	want(t, second, policy.Allow, "") // it covers every method
	if v := w.Decide(t.Context(), requestOf(t, "asked.test", "DELETE", "/x")); v.Action != policy.Allow {
		t.Errorf("within the hour: %+v", v)
	}
	other := r
	other.Port = 80
	h, verdict := begin(t, w, other)
	reply(t, w, h, approval.Answer{}) // for the sandbox, the default
	want(t, verdict, policy.Deny, "denied")
	if v := w.Decide(t.Context(), other); v.Action != policy.Deny || v.Remedy != "" {
		t.Errorf("tried again: %+v", v)
	}
	c.Advance(time.Hour)
	h, verdict = begin(t, w, r)
	reply(t, w, h, approval.Answer{Allow: true, Scope: approval.Sandbox})
	want(t, verdict, policy.Allow, "")
	c.Advance(1000 * time.Hour)
	if v := w.Decide(t.Context(), r); v.Action != policy.Allow {
		t.Errorf("for as long as it lives: %+v", v)
	}
	if v := w.Decide(t.Context(), other); v.Action != policy.Deny {
		t.Errorf("denied for as long as it lives: %+v", v)
	}
}

// TestForThePolicy: an approval is stored for sandboxes with the same policy; the owner's for all, others' for their
// own.
func TestForThePolicy(t *testing.T) {
	g, c, m := newTestGateway(t)
	r := requestOf(t, "asked.test", "GET", "/")
	w, same, theirs, other := openRoute(t, g, cove.MachineOwner(), asks),
		openRoute(t, g, cove.MachineOwner(), "# written differently\n"+asks),
		openRoute(t, g, cove.KeyHolder("x"), asks), openRoute(t, g, cove.MachineOwner(), asks+"  - hosts: more.test\n")
	credentialled, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Owner: cove.MachineOwner(),
		Policy: []*policy.Document{document(t, asks)}, Credentials: []string{"github"}})
	if err != nil {
		t.Fatal(err)
	}
	// Another client's approval does not cover everyone.
	h, verdict := begin(t, theirs, r)
	_, mine := begin(t, w, r)
	if _, err := theirs.Answer(t.Context(), cove.KeyHolder("x"), h.ID, approval.Answer{
		Allow: true, Scope: approval.Policy, For: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	want(t, verdict, policy.Allow, "")
	if v := theirs.Decide(t.Context(), r); v.Action != policy.Allow {
		t.Errorf("theirs: %+v", v)
	}
	if waiting(w) != 1 {
		t.Error("somebody else's approval counts for the owner")
	}

	_, waits := begin(t, same, r)
	reply(t, w, held(w)[0], approval.Answer{Allow: true, Scope: approval.Policy})
	want(t, mine, policy.Allow, "")
	want(t, waits, policy.Allow, "")
	for name, later := range map[string]*Route{"the same policy": openRoute(t, g, cove.KeyHolder("y"), asks),
		"extended since": same} {
		if _, err := later.Extend(document(t, "rules: [{hosts: later.test}]")); err != nil {
			t.Fatal(err)
		}
		if v := later.Decide(t.Context(), r); v.Action != policy.Allow {
			t.Errorf("%s: %+v", name, v)
		}
	}
	for name, w := range map[string]*Route{"another policy": other, "with a credential": credentialled} {
		h, verdict := begin(t, w, r)
		reply(t, w, h, approval.Answer{Scope: approval.Once})
		if v := <-verdict; v.Action != policy.Deny {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if a := m.all[1]; a.Who != cove.MachineOwner() || a.Rule != "policy.yaml:3" ||
		a.Until.Sub(a.Time) != approval.DefaultLife {
		t.Errorf("remembered %+v", a)
	}
	c.Advance(approval.DefaultLife)
	h, verdict = begin(t, w, r)
	m.mu.Lock()
	m.err = cove.Errorf(cove.StorageFull, "the disk is full")
	m.mu.Unlock()
	if _, err := w.Answer(t.Context(), cove.MachineOwner(), h.ID, approval.Answer{
		Allow: true, Scope: approval.Policy,
	}); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("what cannot be remembered: %v", err)
	}
	reply(t, w, held(w)[0], approval.Answer{Allow: true}) // it still waits
	want(t, verdict, policy.Allow, "")
}

// TestPolicyChangesMeanwhile: waiting requests are judged by the current policy.
func TestPolicyChangesMeanwhile(t *testing.T) {
	w, _ := newTestRoute(t)
	_, allowed := begin(t, w, requestOf(t, "asked.test", "GET", "/"))
	_, denied := begin(t, w, requestOf(t, "forge.test", "POST", "/repos/a"))
	h, still := begin(t, w, connectTo(t, "raw.test", 22))
	if _, err := w.Extend(document(t,
		"rules: [{hosts: asked.test}, {hosts: forge.test, action: deny, note: never}]")); err != nil {
		t.Fatal(err)
	}
	want(t, allowed, policy.Allow, "a rule allows it")
	want(t, denied, policy.Deny, "never")
	if all := held(w); len(all) != 1 || all[0].ID != h.ID {
		t.Errorf("waiting: %+v", all)
	}
	reply(t, w, h, approval.Answer{Allow: true})
	want(t, still, policy.Allow, "")
}

func TestNobodyAnswers(t *testing.T) {
	w, c := newTestRoute(t)
	r := requestOf(t, "asked.test", "GET", "/")
	_, verdict := begin(t, w, r)
	c.BlockUntil(1)
	c.Advance(2 * time.Minute)
	want(t, verdict, policy.Deny, "no answer came within 2m0s")
	if all := held(w); len(all) > 0 {
		t.Errorf("still held: %+v", all)
	}

	gone, leave := context.WithCancel(t.Context())
	left := make(chan policy.Verdict, 1)
	_, stays := begin(t, w, r)
	go func() { left <- w.Decide(gone, r) }()
	await.That(t, "two wait", func() bool { return waiting(w) >= 2 })
	leave()
	want(t, left, policy.Deny, "has gone")
	if n := waiting(w); n != 1 {
		t.Errorf("%d wait", n)
	}
	w.Close()
	want(t, stays, policy.Deny, "the sandbox ends")
	if n := waiting(w); n != 0 {
		t.Errorf("%d wait in a sandbox that has ended", n)
	}
}

func TestTooManyHolds(t *testing.T) {
	w, _ := newTestRoute(t)
	for i := range maxHolds {
		begin(t, w, requestOf(t, "forge.test", "POST", "/repos/"+strings.Repeat("x", i+1)))
	}
	if v := w.Decide(t.Context(), requestOf(t, "forge.test", "POST", "/repos/y")); v.Action != policy.Deny ||
		!strings.Contains(v.Reason, "too many") {
		t.Errorf("one more: %+v", v)
	}
	begin(t, w, requestOf(t, "forge.test", "POST", "/repos/x")) // an equal request joins the question
}

// TestOwnPort: no rule leads a sandbox to the API that answers for it.
func TestOwnPort(t *testing.T) {
	g := New(Options{Dir: t.TempDir(), OwnPort: func(port uint16) bool {
		return port == 8080
	}, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(g.Close)
	w, err := g.Open(Spec{Sandbox: cove.NewSandboxID(),
		Policy: []*policy.Document{allow(t, "host.cove.internal:8080", "tcp://host.cove.internal:8080",
			"host.cove.internal:5432", "other.test:8080")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]map[uint16]policy.Action{
		policy.HostService: {8080: policy.Deny, 5432: policy.Allow}, "other.test": {8080: policy.Allow},
	} {
		for port, action := range want {
			if v := w.judge(connectTo(t, name, port)); v.Action != action {
				t.Errorf("%s:%d: %+v", name, port, v)
			}
		}
	}
}
