package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
)

func TestMain(m *testing.M) {
	if role, ok := roles[os.Getenv(roleVariable)]; ok {
		role(json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout))
		return
	}
	goleak.VerifyTestMain(m)
}

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// patience bounds a test's wait for an expected event, and is not a measurement.
const patience = 30 * time.Second

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	pem  []byte
}

var serial = big.NewInt(1)

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool(), pem: pemOf(der)}
	a.pool.AddCert(cert)
	return a
}

// leaf returns a certificate for names, changed by alter.
func (a *authority) leaf(t testing.TB, alter func(*x509.Certificate), names ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	if alter != nil {
		alter(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
}

// lab is an internet of origins behind names and public addresses, a sandbox with a policy, and the sandbox's proxy.
type lab struct {
	t      testing.TB
	world  *authority // certifies origins
	inside *authority // the sandbox's own
	server *Server

	explicit string // address of the explicit listener

	mu           sync.Mutex
	names        map[string][]netip.Addr
	listeners    map[netip.AddrPort]string // public address to the real one
	allow        map[string]bool           // "host", "host/connect", …
	decide       func(policy.Request) policy.Verdict
	early        func(policy.Request) bool
	version1     map[string]bool // names for which clients are offered HTTP/1.1 alone
	pinned       map[netip.Addr]policy.Host
	found        map[policy.Host][]netip.Addr
	destinations map[string]netip.AddrPort // of transparent listeners
	prepare      func(policy.Request, *http.Request) error
	pass         func(policy.Request) error // of connections
	response     func(policy.Request, *http.Response) error
	endpoint     func(policy.Request, *http.Request) (*Origin, *Answer)
	values       *redact.Set
	quiet        bool // keeps no history
	asked        []policy.Request
	dialled      []netip.AddrPort
	dialledHosts []string
	anywhere     string // target of every other host and port
	events       []Event
	ends         []error // faults of origins, by ended passage
	leaves       map[policy.Host]*tls.Certificate
	more         *sync.Cond // of mu: events
}

func newLab(t testing.TB, alter ...func(*Options)) *lab {
	t.Helper()
	l := &lab{
		t: t, world: newAuthority(t, "world"), inside: newAuthority(t, "sandbox"),
		names: map[string][]netip.Addr{}, listeners: map[netip.AddrPort]string{}, pinned: map[netip.Addr]policy.Host{},
		found:        map[policy.Host][]netip.Addr{},
		destinations: map[string]netip.AddrPort{}, leaves: map[policy.Host]*tls.Certificate{}, allow: map[string]bool{},
	}
	l.more = sync.NewCond(&l.mu)
	o := Options{Dialer: l, Roots: l.world.pool, Timeouts: Timeouts{Leaving: time.Second}}
	for _, a := range alter {
		a(&o)
	}
	l.server = New(l, o)
	l.server.destination = func(c net.Conn) (netip.AddrPort, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.destinations[c.LocalAddr().String()], nil
	}
	ln := listen(t)
	l.explicit = ln.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { l.server.ServeExplicit(ln) })
	t.Cleanup(func() { l.server.Close(); serving.Wait() })
	return l
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// transparent returns the address of a listener to which connections to `to` are redirected.
func (l *lab) transparent(to string) string {
	ln := listen(l.t)
	l.mu.Lock()
	l.destinations[ln.Addr().String()] = netip.MustParseAddrPort(to)
	l.mu.Unlock()
	var serving sync.WaitGroup
	serving.Go(func() { l.server.ServeTransparent(ln) })
	l.t.Cleanup(func() { ln.Close(); serving.Wait() })
	return ln.Addr().String()
}

// at sets the addresses of name.
func (l *lab) at(name string, addresses ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range addresses {
		l.names[name] = append(l.names[name], netip.MustParseAddr(a))
	}
}

// route sets the real listener of an origin at a public address.
func (l *lab) route(public string, ln net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners[netip.MustParseAddrPort(public)] = ln.Addr().String()
}

// permit allows hosts, at every layer.
func (l *lab) permit(hosts ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range hosts {
		l.allow[h] = true
	}
}

func (l *lab) ID() cove.SandboxID { return "sb_test" }

func (l *lab) Decide(_ context.Context, r policy.Request) policy.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.quiet {
		l.asked = append(l.asked, r)
	}
	return l.judge(r)
}

// judge returns Decide's verdict, with mu held.
func (l *lab) judge(r policy.Request) policy.Verdict {
	if l.decide != nil {
		return l.decide(r)
	}
	if l.allow[r.Host.String()] {
		if _, reserved := policy.Reserved(r.Address); r.Layer == policy.LayerDial && reserved {
			return policy.Verdict{Rule: "reserved", Reason: "the address " + r.Address.String() + " is private"}
		}
		return policy.Verdict{Action: policy.Allow, Rule: "test"}
	}
	return policy.Verdict{Rule: "default", Reason: "no rule allows " + r.Host.String(),
		Remedy: "cove policy allow sb_test " + r.Host.String()}
}

// Early agrees where permit has allowed every request.
func (l *lab) Early(r policy.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.early != nil {
		return l.early(r)
	}
	return l.decide == nil && l.judge(r).Action == policy.Allow
}

func (l *lab) HTTP2(h policy.Host) bool { return !l.version1[h.String()] }

func (l *lab) Pinned(a netip.Addr) (policy.Host, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.pinned[a]
	return h, ok
}

func (l *lab) Found(name policy.Host) []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.found[name]
	delete(l.found, name)
	return found
}

func (l *lab) Leaf(h policy.Host) (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaves[h] == nil {
		l.leaves[h] = l.inside.leaf(l.t, nil, h.String())
	}
	return l.leaves[h], nil
}

func (l *lab) Prepare(r policy.Request, h *http.Request) (Passage, error) {
	if h == nil && l.pass != nil {
		if err := l.pass(r); err != nil {
			return nil, err
		}
	}
	if l.prepare != nil && h != nil {
		if err := l.prepare(r, h); err != nil {
			return nil, err
		}
	}
	return &passage{l, r}, nil
}

func (l *lab) Conceal(text string) string { return l.values.Text(text) }

func (l *lab) Endpoint(r policy.Request, h *http.Request) (*Origin, *Answer) {
	return l.endpoint(r, h)
}

// passage is the passage of one request of the lab.
type passage struct {
	*lab
	request policy.Request
}

func (p *passage) Problem() string { return "" }

func (p *passage) Send(h *http.Request, next http.RoundTripper) (*http.Response, decision.Stage, error) {
	res, err := next.RoundTrip(h)
	return res, decision.StageUpstream, err
}

func (p *passage) Response(h *http.Response) error {
	if p.response != nil {
		return p.response(p.request, h)
	}
	return nil
}

// End records the origin's fault.
func (p *passage) End(failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, failure)
	p.more.Broadcast()
}

func (l *lab) Record(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quiet {
		return
	}
	l.events = append(l.events, e)
	l.more.Broadcast()
}

// ended returns and clears the faults of ended passages.
func (l *lab) ended() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.ends
	l.ends = nil
	return all
}

// event waits for an event that which accepts.
func (l *lab) event(which func(Event) bool) (found Event) {
	l.t.Helper()
	l.until("the event", func() bool {
		i := slices.IndexFunc(l.events, which)
		if i >= 0 {
			found = l.events[i]
		}
		return i >= 0
	})
	return found
}

// until waits for ok, which is called with mu held after every change.
func (l *lab) until(what string, ok func() bool) {
	l.t.Helper()
	deadline := time.Now().Add(patience)
	late := time.AfterFunc(patience, l.more.Broadcast)
	defer late.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !ok() {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s did not come; events: %+v", what, l.events)
		}
		l.more.Wait()
	}
}

// Dial connects within the lab's own internet.
func (l *lab) Dial(ctx context.Context, host policy.Host, port uint16, known []netip.Addr,
	check func(netip.Addr) error) (net.Conn, error) {
	l.mu.Lock()
	addresses := l.names[host.String()]
	if len(known) > 0 {
		addresses = known
	}
	if a, ok := host.Addr(); ok {
		addresses = []netip.Addr{a}
	}
	l.mu.Unlock()
	if len(addresses) == 0 && l.anywhere != "" {
		addresses = []netip.Addr{netip.MustParseAddr("203.0.113.99")}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no such host: %s", host)
	}
	for _, a := range addresses {
		if err := check(a); err != nil {
			return nil, err
		}
	}
	at := netip.AddrPortFrom(addresses[0], port)
	l.mu.Lock()
	l.dialled = append(l.dialled, at)
	l.dialledHosts = append(l.dialledHosts, host.String())
	l.more.Broadcast()
	real := l.listeners[at]
	if real == "" {
		real = l.anywhere
	}
	l.mu.Unlock()
	if real == "" {
		return nil, fmt.Errorf("nobody listens at %s", at)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", real)
}

func (l *lab) dials() []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.dialled)
}

// hosts returns the dialled hosts, in the order of dials.
func (l *lab) hosts() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.dialledHosts)
}

// everywhere starts one origin for every other host and port, for http and https alike.
func (l *lab) everywhere() *origin {
	o := &origin{}
	ln := &bothListener{Listener: listen(l.t), config: &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := hello.ServerName
			if name == "" {
				name = "198.51.100.7"
			}
			return l.world.leaf(l.t, nil, name, "2001:db8::7"), nil
		},
	}}
	server := &http.Server{Handler: o.handler(func(http.ResponseWriter, *http.Request) {}),
		ErrorLog: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ln) })
	l.t.Cleanup(func() { server.Close(); serving.Wait() })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anywhere = ln.Addr().String()
	return o
}

// bothListener accepts TLS and plain connections.
type bothListener struct {
	net.Listener
	config *tls.Config
}

func (b *bothListener) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.SetReadDeadline(time.Now().Add(patience))
	again := &aheadConn{c, bufio.NewReader(c)}
	first, err := again.reader.Peek(1)
	c.SetReadDeadline(time.Time{})
	if err == nil && first[0] == 22 {
		return tls.Server(again, b.config), nil
	}
	return again, nil
}

// origin is a real web server that records its requests.
type origin struct {
	mu       sync.Mutex
	requests []*http.Request
}

// handler records every request.
func (o *origin) handler(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.requests = append(o.requests, r)
		o.mu.Unlock()
		next(w, r)
	})
}

func (o *origin) seen() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

// serve starts an origin at name for https (port 443) and http (port 80), with handler or an echo of the request.
func (l *lab) serve(name, address string, handler http.HandlerFunc) *origin {
	l.t.Helper()
	if handler == nil {
		handler = sayWhat
	}
	return l.serveTLS(name, address, handler, &tls.Config{
		Certificates: []tls.Certificate{*l.world.leaf(l.t, nil, name, address)}, NextProtos: []string{"h2", "http/1.1"},
	})
}

// serveWith is serve with another TLS configuration.
func (l *lab) serveWith(name, address string, config *tls.Config) *origin {
	l.t.Helper()
	return l.serveTLS(name, address, sayWhat, config)
}

// sayWhat answers with a description of the request.
func sayWhat(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s://%s%s %q", r.Method, map[bool]string{true: "https", false: "http"}[r.TLS != nil], r.Host,
		r.RequestURI, body)
}

func (l *lab) serveTLS(name, address string, handler http.HandlerFunc, config *tls.Config) *origin {
	o := &origin{}
	server := &http.Server{Handler: o.handler(handler), TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	secure, plain := listen(l.t), listen(l.t)
	l.at(name, address)
	a := netip.MustParseAddr(address)
	l.route(netip.AddrPortFrom(a, 443).String(), secure)
	l.route(netip.AddrPortFrom(a, 80).String(), plain)
	var serving sync.WaitGroup
	serving.Go(func() { server.ServeTLS(secure, "", "") })
	serving.Go(func() { server.Serve(plain) })
	l.t.Cleanup(func() { server.Close(); serving.Wait() })
	return o
}

// client returns net/http's client through the explicit proxy.
func (l *lab) client(alter ...func(*http.Transport)) *http.Client {
	proxy, _ := url.Parse("http://" + l.explicit)
	transport := &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: l.inside.pool}, ForceAttemptHTTP2: true,
	}
	for _, a := range alter {
		a(transport)
	}
	l.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
}

// to makes a transport connect to address, whatever its target.
func to(address string) func(*http.Transport) {
	return func(t *http.Transport) {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
}

func oneProtocol(t *http.Transport) {
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
}

func get(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return res, string(body)
}

// wire is a raw connection.
type wire struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dialWire(t testing.TB, address string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return &wire{c, t, bufio.NewReader(c)}
}

func (w *wire) send(s string) *wire {
	w.t.Helper()
	io.WriteString(w.Conn, s) // the answer shows whether it arrived
	return w
}

// rest reads until the other side closes.
func (w *wire) rest() string {
	b, _ := io.ReadAll(w.r)
	return string(b)
}

// response reads one answer.
func (w *wire) response(method string) (*http.Response, string) {
	w.t.Helper()
	res, err := http.ReadResponse(w.r, &http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("half an answer: %v", err)
	}
	return res, string(body)
}

// connect opens a tunnel through the explicit proxy.
func (l *lab) connect(t testing.TB, authority string) *wire {
	t.Helper()
	w := dialWire(t, l.explicit)
	w.send("CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n")
	res, err := http.ReadResponse(w.r, &http.Request{Method: "CONNECT"})
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("CONNECT %s: %v %v", authority, res, err)
	}
	return w
}

// secure performs a TLS handshake inside.
func (w *wire) secure(c *tls.Config) (*wire, error) {
	inside := tls.Client(w.Conn, c)
	if err := inside.Handshake(); err != nil {
		return nil, err
	}
	return &wire{inside, w.t, bufio.NewReader(inside)}, nil
}

func file(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
