package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/packages/cache"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/test/await"
)

const (
	tarball   = "https://npm.example.com/tiny/-/tiny-1.0.0.tgz"
	versionOf = "https://npm.example.com/tiny/1.0.0"
	wheel     = "https://files.example.com/aa/tiny-1.0-py3-none-any.whl"
	crate     = "https://crates.example.com/crates/tiny/1.0.0/download"
	gem       = "https://gems.example.com/gems/tiny-1.0.0.gem"
	allowAll  = "rules: [{hosts: '*.example.com'}]"
)

// registryLab is a registry of each kind, and a gateway with a cache.
type registryLab struct {
	gateway *Gateway
	server  *httptest.Server
	plain   *httptest.Server // the same over http
	cache   *cache.Cache
	clock   *clocktest.Manual
	dir     string

	mu      sync.Mutex
	files   map[string]func(w http.ResponseWriter, r *http.Request) // guarded by mu
	below   func(w http.ResponseWriter, r *http.Request) bool       // guarded by mu; serves other URLs; may be nil
	asked   map[string]int                                          // guarded by mu
	records []decision.Decision                                     // guarded by mu
	room    hostdisk.Room                                           // guarded by mu
}

func says(content string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "who=first")
		w.Header().Set("X-Of", "the first")
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		io.WriteString(w, content)
	}
}

func npmDocument(content string) string {
	sum := sha512.Sum512([]byte(content))
	return fmt.Sprintf(`{"name":"tiny","version":"1.0.0","dist":{"integrity":"sha512-%s","tarball":%q}}`,
		base64.StdEncoding.EncodeToString(sum[:]), tarball)
}

func hexOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func newRegistryLab(t *testing.T, change func(*Options)) *registryLab {
	t.Helper()
	// The clock begins now: certificates are checked by the machine's.
	l := &registryLab{clock: clocktest.NewManual(time.Now()), asked: map[string]int{},
		dir: filepath.Join(t.TempDir(), "packages"), room: hostdisk.Room{Free: 1 << 40, Total: 1 << 40}}
	l.files = map[string]func(http.ResponseWriter, *http.Request){
		tarball: says("tarball"), versionOf: says(npmDocument("tarball")),
		wheel: says("wheel"), "https://pypi.example.com/simple/tiny/": says(`{"files":[{"url":"` + wheel +
			`","hashes":{"sha256":"` + hexOf("wheel") + `"}}]}`),
		crate: says("crate"), "https://index.example.com/ti/ny/tiny": says(`{"name":"tiny","vers":"1.0.0","cksum":"` +
			hexOf("crate") + `"}`),
		gem: says("gem"), "https://gems.example.com/info/tiny": says("---\n1.0.0 |checksum:" + hexOf("gem") + "\n"),
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := "https://" + r.Host + r.URL.RequestURI()
		if r.TLS == nil {
			u = "http://" + r.Host + r.URL.RequestURI()
		}
		l.mu.Lock()
		l.asked[u]++
		serve, below := l.files[u], l.below
		l.mu.Unlock()
		if serve == nil {
			if below != nil && below(w, r) {
				return
			}
			http.NotFound(w, r)
			return
		}
		serve(w, r)
	})
	l.plain = httptest.NewServer(handler)
	t.Cleanup(l.plain.Close)
	l.server = httptest.NewUnstartedServer(handler)
	l.server.EnableHTTP2 = true
	l.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // connections are cut
	l.server.StartTLS()
	t.Cleanup(l.server.Close)
	log := slog.New(slog.DiscardHandler)
	l.cache = cache.New(cache.Options{Dir: l.dir, Most: 1 << 30, Clock: l.clock, Log: log,
		Room: func(string) (hostdisk.Room, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.room, nil }})
	o := Options{Dir: t.TempDir(), Clock: l.clock, Log: log, Packages: l.cache,
		Machine: policy.Machine{Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Registry: func(tool string) (
			[]policy.Endpoint, error) {
			return map[string][]policy.Endpoint{
				"npm": {{Host: hostOf(t, "npm.example.com"), Port: 443, Bases: []string{"https://npm.example.com"}}},
				"pip": {{Host: hostOf(t, "pypi.example.com"), Port: 443, Bases: []string{"https://pypi.example.com/simple"}},
					{Host: hostOf(t, "files.example.com"), Port: 443, Bases: []string{"https://files.example.com"}}},
				"gem": {{Host: hostOf(t, "gems.example.com"), Port: 443, Bases: []string{"https://gems.example.com"}}},
				"cargo": {{Host: hostOf(t, "index.example.com"), Port: 443, Bases: []string{"https://index.example.com"}},
					{Host: hostOf(t, "crates.example.com"), Port: 443, Bases: []string{"https://crates.example.com/crates"}}},
			}[tool], nil
		}},
		Recorder: NewRecorder(RecorderOptions{Store: store.NewVault(&page{}), Keep: 100, Clock: l.clock, Log: log,
			Observe: func(d decision.Decision) { l.mu.Lock(); defer l.mu.Unlock(); l.records = append(l.records, d) }}),
	}
	if change != nil {
		change(&o)
	}
	l.gateway = New(o)
	t.Cleanup(l.gateway.Close)
	return l
}

// serve replaces what is at a URL; nil: nothing.
func (l *registryLab) serve(u string, serve func(http.ResponseWriter, *http.Request)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[u] = serve
}

func (l *registryLab) count(u string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[u]
}

// Dial implements proxy.Dialer: the servers have every name.
func (l *registryLab) Dial(ctx context.Context, _ policy.Host, port uint16, _ []netip.Addr, _ func(netip.Addr) error) (
	net.Conn, error) {
	server := l.server
	if port == 80 {
		server = l.plain
	}
	return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
}

// sandbox returns the client of a sandbox of its own.
func (l *registryLab) sandbox(t *testing.T, rules string, credentials ...string) *http.Client {
	t.Helper()
	return l.sandboxOf(t, cove.Principal{}, rules, credentials...)
}

func (l *registryLab) sandboxOf(t *testing.T, owner cove.Principal, rules string, credentials ...string) *http.Client {
	t.Helper()
	r, err := l.gateway.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Owner: owner, Credentials: credentials,
		Policy: []*policy.Document{document(t, rules)}})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.Shut()
	r.proxy.Close()
	r.proxy = proxy.New(proxyView{r}, proxy.Options{Dialer: l,
		Roots: l.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, Log: r.log})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.ServeProxy(listener)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.Certificate())
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String()}),
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

type got struct {
	status int
	body   string
	header http.Header
	err    error
}

func ask(t *testing.T, c *http.Client, method, u string, header ...string) (g got) {
	t.Helper()
	h, err := http.NewRequestWithContext(t.Context(), method, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		h.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(h)
	if err != nil {
		return got{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return got{res.StatusCode, string(body), res.Header, err}
}

// TestPackagesAreShared: what one sandbox fetched, another gets from the cache, with nothing of the first one's answer
// but the file; the decision says so.
func TestPackagesAreShared(t *testing.T) {
	l := newRegistryLab(t, nil)
	for u, content := range map[string]string{tarball: "tarball", wheel: "wheel", crate: "crate", gem: "gem"} {
		if g := ask(t, l.sandbox(t, allowAll), "GET", u); g.body != content || g.header.Get("X-Of") == "" {
			t.Fatalf("%s: %+v", u, g)
		}
		l.serve(u, says("changed at the origin"))
		g := ask(t, l.sandbox(t, allowAll), "GET", u, "Npm-Command", "ci")
		if g.body != content || g.status != 200 || l.count(u) != 1 {
			t.Errorf("%s: %+v, asked %d times", u, g, l.count(u))
		}
		for _, name := range []string{"Set-Cookie", "X-Of"} {
			if g.header.Get(name) != "" {
				t.Errorf("%s: the header of another's answer: %v", u, g.header)
			}
		}
		if g.header.Get("Content-Length") != strconv.Itoa(len(content)) || g.header.Get("Cache-Status") != "cove; hit" {
			t.Errorf("%s: %v", u, g.header)
		}
	}
	if c := l.gateway.State().Packages; c != (cache.Counts{Served: 4, Added: 4}) {
		t.Errorf("%+v", c)
	}
	l.gateway.Close()
	stages := map[decision.Stage]int{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.records {
		if d.Path == "/tiny/-/tiny-1.0.0.tgz" {
			stages[d.Stage]++
		}
	}
	if stages[decision.StagePackages] != 1 || stages[decision.StageUpstream] != 1 {
		t.Errorf("%v: %+v", stages, l.records)
	}
}

// TestPoisonedPackages: a file that is not what the index of the registry states comes as it is, and is not stored.
func TestPoisonedPackages(t *testing.T) {
	for name, poison := range map[string]func(l *registryLab){
		"another file":        func(l *registryLab) { l.serve(tarball, says("poison!")) },
		"another digest":      func(l *registryLab) { l.serve(versionOf, says(npmDocument("other"))) },
		"no index":            func(l *registryLab) { l.serve(versionOf, nil) },
		"an index of nothing": func(l *registryLab) { l.serve(versionOf, says("{}")) },
		"an index of another file": func(l *registryLab) {
			l.serve(versionOf, says(strings.Replace(npmDocument("tarball"), "tiny-1.0.0", "tiny-1.0.1", 1)))
		},
		"an endless index": func(l *registryLab) {
			l.serve(versionOf, says(npmDocument("tarball")+strings.Repeat(" ", 1<<20)))
		},
		"a compressed index": func(l *registryLab) {
			l.serve(versionOf, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "br")
				says(npmDocument("tarball"))(w, r)
			})
		},
		"a redirected index": func(l *registryLab) {
			l.serve(versionOf, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://other.example.com/index", http.StatusFound)
			})
			l.serve("https://other.example.com/index", says(npmDocument("tarball")))
		},
		"a compressed file": func(l *registryLab) {
			l.serve(tarball, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "br")
				says("tarball")(w, r)
			})
		},
		"a private file": func(l *registryLab) {
			l.serve(tarball, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60, private")
				says("tarball")(w, r)
			})
		},
		"a file by cookie": func(l *registryLab) {
			l.serve(tarball, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Vary", "Accept-Encoding, Cookie")
				says("tarball")(w, r)
			})
		},
		"not all of it": func(l *registryLab) {
			l.serve(tarball, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Range", "bytes 0-6/7")
				says("tarball")(w, r)
			})
		},
		"a file that is gone": func(l *registryLab) {
			l.serve(tarball, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404); io.WriteString(w, "tarball") })
		},
		"a full disk": func(l *registryLab) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.room.Free = 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRegistryLab(t, nil)
			poison(l)
			first, second := ask(t, l.sandbox(t, allowAll), "GET", tarball), ask(t, l.sandbox(t, allowAll), "GET", tarball)
			if first.err != nil || first.body == "" || first.body != second.body || first.status != second.status ||
				first.header.Get("Set-Cookie") != second.header.Get("Set-Cookie") || l.count(tarball) != 2 {
				t.Errorf("%+v, then %+v, asked %d times", first, second, l.count(tarball))
			}
			mismatched := int64(0)
			if strings.HasPrefix(name, "another") {
				mismatched = 2
			}
			if c := l.cache.Counts(); c != (cache.Counts{Mismatched: mismatched}) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestTruncatedPackage: half a file is neither complete to who asked nor stored.
func TestTruncatedPackage(t *testing.T) {
	l := newRegistryLab(t, nil)
	l.serve(tarball, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "7")
		io.WriteString(w, "tar")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if g := ask(t, l.sandbox(t, allowAll), "GET", tarball); g.err == nil {
		t.Errorf("%+v", g)
	}
	l.serve(tarball, says("tarball"))
	for range 2 {
		if g := ask(t, l.sandbox(t, allowAll), "GET", tarball); g.body != "tarball" {
			t.Errorf("%+v", g)
		}
	}
	if n := l.count(tarball); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// TestPersonalRequests: requests that show who asks, or want another thing than the file, neither fill the cache nor
// are answered by it.
func TestPersonalRequests(t *testing.T) {
	for name, c := range map[string]struct {
		method, url string
		header      []string
	}{
		"a credential":        {"GET", tarball, []string{"Authorization", "Bearer x"}},
		"a cookie":            {"GET", tarball, []string{"Cookie", "a=b"}},
		"a header of its own": {"GET", tarball, []string{"X-Api-Key", "x"}},
		"another host":        {"GET", tarball, []string{"X-Forwarded-Host", "evil.test"}},
		"a range":             {"GET", tarball, []string{"Range", "bytes=0-2"}},
		"a condition":         {"GET", tarball, []string{"If-None-Match", `"x"`}},
		"a fresh one":         {"GET", tarball, []string{"Cache-Control", "no-cache"}},
		"its head":            {"HEAD", tarball, nil},
		"a query":             {"GET", tarball + "?token=x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRegistryLab(t, nil)
			l.serve(tarball+"?token=x", says("tarball"))
			asks := func(want int) {
				t.Helper()
				g := ask(t, l.sandbox(t, allowAll), c.method, c.url, c.header...)
				if g.status != 200 || g.header.Get("X-Of") == "" || l.count(c.url) != want {
					t.Errorf("%+v, asked %d times, want %d", g, l.count(c.url), want)
				}
			}
			asks(1)
			if c := l.cache.Counts(); c.Added != 0 {
				t.Errorf("%+v", c)
			}
			ask(t, l.sandbox(t, allowAll), "GET", tarball)
			if c := l.cache.Counts(); c.Added != 1 {
				t.Errorf("%+v", c)
			}
			before := l.count(c.url)
			asks(before + 1)
		})
	}
}

// TestCredentialsKeepPackagesApart: where the gateway sets a credential, nothing is shared.
func TestCredentialsKeepPackagesApart(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret-of-the-registry"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := credential.Parse("test", []byte("credentials: [{name: team, source: 'file:"+key+
		"', to: [{form: bearer, hosts: npm.example.com}]}, {name: index, source: 'file:"+key+
		"', to: [{form: bearer, hosts: pypi.example.com}]}, {name: part, source: 'file:"+key+
		"', to: [{form: bearer, hosts: files.example.com, paths: /private/**}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	l := newRegistryLab(t, func(o *Options) {
		o.Described = func() (Described, error) { return Described{Credentials: all}, nil }
	})
	for range 2 {
		if g := ask(t, l.sandbox(t, allowAll, "team"), "GET", tarball); g.body != "tarball" {
			t.Errorf("%+v", g)
		}
		for _, name := range []string{"index", "part"} {
			if g := ask(t, l.sandbox(t, allowAll, name), "GET", wheel); g.body != "wheel" {
				t.Errorf("%s: %+v", name, g)
			}
		}
	}
	if c := l.cache.Counts(); c != (cache.Counts{}) || l.count(tarball) != 2 || l.count(versionOf) != 0 {
		t.Errorf("%+v", c)
	}
	ask(t, l.sandbox(t, allowAll), "GET", tarball)
	if g := ask(t, l.sandbox(t, allowAll, "team"), "GET", tarball); g.header.Get("X-Of") == "" || l.count(tarball) != 4 {
		t.Errorf("%+v", g)
	}
}

// TestPolicyBeforePackages: the policy decides before the cache does, and about the gateway's question to the index.
func TestPolicyBeforePackages(t *testing.T) {
	l := newRegistryLab(t, nil)
	files := "rules: [{hosts: npm.example.com, paths: '/*/-/*'}]"
	ask(t, l.sandbox(t, files), "GET", tarball)
	if c := l.cache.Counts(); c.Added != 0 || l.count(versionOf) != 0 {
		t.Errorf("an index was asked that the policy does not allow: %+v", c)
	}
	ask(t, l.sandbox(t, "package_cache: deny\n"+allowAll), "GET", tarball)
	if c := l.cache.Counts(); c.Added != 0 {
		t.Errorf("a sandbox that shares nothing filled the cache: %+v", c)
	}
	ask(t, l.sandbox(t, allowAll), "GET", tarball)
	before := l.count(tarball)
	for rules, status := range map[string]int{
		"rules: [{hosts: other.example.com}]": 403,
		"rules: [{hosts: npm.example.com}, {hosts: npm.example.com, paths: '/tiny/**', action: deny}]": 403,
		files: 200,
	} {
		g := ask(t, l.sandbox(t, rules), "GET", tarball)
		if g.status != status && g.err == nil || l.count(tarball) != before || status == 200 && g.body != "tarball" {
			t.Errorf("%s: %+v, asked %d times", rules, g, l.count(tarball))
		}
	}
	g := ask(t, l.sandbox(t, "package_cache: deny\n"+allowAll), "GET", tarball)
	if g.header.Get("X-Of") == "" || l.count(tarball) != before+1 {
		t.Errorf("a sandbox that shares nothing was answered from the cache: %+v", g)
	}
}

// TestIndexIsAskedAgain: after a while the index is asked again, and a file goes that it does not state any more.
func TestIndexIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		index      func(http.ResponseWriter, *http.Request)
		hit, stays bool
	}{
		"unchanged": {says(npmDocument("tarball")), true, true},
		"changed":   {says(npmDocument("other")), false, false},
		"gone":      {nil, false, false},
		"failing": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newRegistryLab(t, nil)
			ask(t, l.sandbox(t, allowAll), "GET", tarball)
			l.clock.Advance(packageTrust - time.Second)
			l.serve(versionOf, c.index)
			if ask(t, l.sandbox(t, allowAll), "GET", tarball); l.count(tarball) != 1 || l.count(versionOf) != 1 {
				t.Error("asked already:", l.count(tarball), l.count(versionOf))
			}
			l.clock.Advance(2 * time.Second)
			if g := ask(t, l.sandbox(t, allowAll), "GET", tarball); g.body != "tarball" || (l.count(tarball) == 1) != c.hit {
				t.Errorf("%+v, asked %d times", g, l.count(tarball))
			}
			s, stays := l.cache.Open(tarball)
			if stays {
				s.Close()
			}
			if stays != c.stays {
				t.Errorf("it is there: %v", stays)
			}
			if asked := l.count(versionOf); c.hit {
				ask(t, l.sandbox(t, allowAll), "GET", tarball)
				if l.count(versionOf) != asked {
					t.Error("the index is asked each time")
				}
			}
		})
	}
}

// TestPrivateRegistries: files of a private address are not shared: a policy may allow its name and not the address.
func TestPrivateRegistries(t *testing.T) {
	l := newRegistryLab(t, func(o *Options) { o.Machine.Private = nil })
	for range 2 {
		if g := ask(t, l.sandbox(t, allowAll), "GET", tarball); g.body != "tarball" {
			t.Errorf("%+v", g)
		}
	}
	if c := l.cache.Counts(); c != (cache.Counts{}) {
		t.Errorf("%+v", c)
	}
}

// TestDamagedPackage: a file that was damaged on the disk is fetched again.
func TestDamagedPackage(t *testing.T) {
	l := newRegistryLab(t, nil)
	ask(t, l.sandbox(t, allowAll), "GET", tarball)
	if err := os.WriteFile(filepath.Join(l.dir, "files", hexOf("tarball")), []byte("tarbalL"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if g := ask(t, l.sandbox(t, allowAll), "GET", tarball); g.body != "tarball" || l.count(tarball) != 2 {
			t.Errorf("%+v, asked %d times", g, l.count(tarball))
		}
	}
}

// TestPackageStallsNobody: a sandbox that does not read its file keeps no other from it.
func TestPackageStallsNobody(t *testing.T) {
	l := newRegistryLab(t, nil)
	large := strings.Repeat("x", 32<<20)
	l.serve(tarball, says(large))
	l.serve(versionOf, says(npmDocument(large)))
	h, err := http.NewRequestWithContext(t.Context(), "GET", tarball, nil)
	if err != nil {
		t.Fatal(err)
	}
	stalled, err := l.sandbox(t, allowAll).Do(h)
	if err != nil {
		t.Fatal(err)
	}
	if g := ask(t, l.sandbox(t, allowAll), "GET", tarball); g.body != large {
		t.Error(g.status, len(g.body), g.err)
	}
	if body, err := io.ReadAll(stalled.Body); err != nil || string(body) != large {
		t.Error(len(body), err)
	}
	stalled.Body.Close()
	await.That(t, "the file is fetched again and again", func() bool { // it is kept a moment after it was read
		before := l.count(tarball)
		g := ask(t, l.sandbox(t, allowAll), "GET", tarball)
		if g.body != large {
			t.Fatal(g.status, len(g.body), g.err)
		}
		return l.count(tarball) == before
	})
}
