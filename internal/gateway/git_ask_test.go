package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/cove-sandbox/cove/internal/git/inspect"
	"github.com/cove-sandbox/cove/internal/git/pktline"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
	"github.com/cove-sandbox/cove/internal/store"
)

// gitServer is a git server with one branch, which requires a token.
type gitServer struct {
	*httptest.Server
	tokenFile string

	mu     sync.Mutex
	token  string // required
	status int    // of every answer; 0 for the real one
	asked  int
	kept   string // the client's address of the last connection; a request on it is answered by its end, once
}

// rotate changes the token, and with file also the one that the gateway reads.
func (s *gitServer) rotate(t *testing.T, token string, file bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
	if !file {
		return
	}
	if err := os.WriteFile(s.tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *gitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	switch {
	case r.RemoteAddr == s.kept:
		s.kept = "closed"
		panic(http.ErrAbortHandler)
	case s.status != 0:
		w.WriteHeader(s.status)
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodPost:
		if s.kept != "closed" {
			s.kept = r.RemoteAddr
		}
		w.Header().Set("Content-Type", objectsType)
	default:
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		p := pktline.NewWriter(w)
		p.Text("# service=git-upload-pack")
		p.Flush()
		p.Text("%040x refs/heads/main\x00symref=HEAD:refs/heads/main", 1)
		p.Flush()
	}
}

// Dial implements proxy.Dialer: every host is the server.
func (s *gitServer) Dial(ctx context.Context, _ policy.Host, _ uint16, _ []netip.Addr, _ func(netip.Addr) error) (
	net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
}

// gitLab is a route to a git server, with a credential from a program, and its decisions.
type gitLab struct {
	*gitServer
	route *Route
	clock *clocktest.Manual

	mu        sync.Mutex
	decisions []string
}

func newGitLab(t *testing.T, rate Rate) *gitLab {
	t.Helper()
	s := &gitServer{tokenFile: filepath.Join(t.TempDir(), "token")}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Server.Close)
	s.rotate(t, "the-first-token-of-the-server", true)
	credentials, err := credential.Parse("credentials.yaml", []byte(
		"credentials: [{name: forge, source: 'command:cat "+s.tokenFile+"', to: [{hosts: example.com, form: bearer}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	l := &gitLab{gitServer: s, clock: clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	log := slog.New(slog.DiscardHandler)
	g := New(Options{Dir: t.TempDir(), Clock: l.clock, Log: log, Rate: rate, Packs: noPacks{},
		Described: func() (Described, error) { return Described{Credentials: credentials}, nil },
		Recorder: NewRecorder(RecorderOptions{Store: store.NewVault(&page{}), Keep: 10, Clock: l.clock, Log: log,
			Observe: l.observe})})
	t.Cleanup(g.Close)
	l.route, err = g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Credentials: []string{"forge"},
		Policy: []*policy.Document{document(t, `rules: [{hosts: example.com}]
git: [{remote: https://example.com/o/r, push: own}]`)}})
	if err != nil {
		t.Fatal(err)
	}
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	l.route.proxy.Shut()
	l.route.proxy.Close()
	l.route.proxy = proxy.New(proxyView{l.route}, proxy.Options{Dialer: s, Roots: roots, Log: log})
	l.route.git.proxy = l.route.proxy
	return l
}

func (l *gitLab) observe(d decision.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions = append(l.decisions,
		fmt.Sprintf("%s %s%s %s at %s: %d", d.Method, d.Host, d.Path, d.Verdict, d.Stage, d.Status))
}

// taken returns the decisions since the last call.
func (l *gitLab) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.decisions
	l.decisions = nil
	return all
}

// request is a git request of the sandbox that is being judged.
func (l *gitLab) request(t *testing.T) *gitRequest {
	t.Helper()
	r := requestOf(t, "example.com", "POST", "/o/r.git/git-upload-pack")
	h := httptest.NewRequestWithContext(t.Context(), "POST", "https://example.com/o/r.git/git-upload-pack", nil)
	g := &gitRequest{gitStage: l.route.git, request: r, http: h}
	g.asked = smart.Recognise(r.Method, r.Path, "", false)
	g.rights = l.route.git.rightsTo(r, g.asked.Repo)
	g.repo = l.route.git.repos.of("example.com/o/r")
	return g
}

// noPacks looks into nothing.
type noPacks struct{ Inspector }

func (noPacks) Inspect(context.Context, inspect.Job) (git.Facts, error) {
	return git.Facts{}, cove.Errorf(cove.Unavailable, "there is no git").WithHint("install git")
}

// TestGitRotatedKey: a 401 to the gateway's own request makes the credential be read again.
func TestGitRotatedKey(t *testing.T) {
	l := newGitLab(t, Rate{})
	list := func() error { return l.request(t).list(t.Context()) }
	if err := list(); err != nil {
		t.Fatal(err)
	}
	l.clock.Advance(time.Minute) // so that a refusal counts
	l.rotate(t, "the-second-token-of-the-server", true)
	if err := list(); cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "401") {
		t.Fatalf("with the old key: %v", err)
	}
	if err := list(); err != nil {
		t.Errorf("after the key was refused: %v", err)
	}
	const request = "GET example.com/o/r.git/info/refs allow at upstream: "
	if got, want := l.taken(), []string{request + "200", request + "401", request + "200"}; !slices.Equal(got, want) {
		t.Errorf("recorded: %q, want %q", got, want)
	}
}

// TestGitServerCloses: a request that changes nothing on the server is sent again when it meets the end of a connection
// that was kept.
func TestGitServerCloses(t *testing.T) {
	l := newGitLab(t, Rate{})
	for l.kept != "closed" {
		answer, err := l.request(t).upload(t.Context(), []byte("0000"))
		if err != nil {
			t.Fatal(err)
		}
		answer.Close()
	}
}

// TestGitOwnRequestsAreLimited: the gateway's own requests to a git server count, and a refusal of one by rate refuses
// the sandbox's request as such.
func TestGitOwnRequestsAreLimited(t *testing.T) {
	unseen := smart.Asked{Wants: []string{strings.Repeat("f", 40)}}
	for name, ask := range map[string]func(*gitRequest) error{
		"a fetch": func(g *gitRequest) error { return g.admit(g.http.Context(), unseen) },
		"a push": func(g *gitRequest) error {
			_, err := g.inspect(g.http.Context(), &smart.Commands{}, nil)
			return err
		},
		"an advertisement": func(g *gitRequest) error {
			g.repo.found("")
			_, err := g.view()
			return err
		},
	} {
		l := newGitLab(t, Rate{PerSecond: 0.5, Burst: 1})
		if err := l.request(t).list(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.taken()
		r := refusal(t, ask(l.request(t)))
		if r.Code != cove.Overloaded || r.After <= 0 || r.Rule != "gateway: rate of one host" {
			t.Errorf("%s: %+v", name, r)
		}
		if got, want := l.taken(), []string{"GET example.com/o/r.git/info/refs deny at rate: 0"}; !slices.Equal(got, want) {
			t.Errorf("%s: recorded: %q, want %q", name, got, want)
		}
		if l.asked != 1 {
			t.Errorf("%s: the server got %d requests", name, l.asked)
		}
	}
}

// TestGitOwnRequestsBreak: a server that fails is left alone, and the fetch says why.
func TestGitOwnRequestsBreak(t *testing.T) {
	l := newGitLab(t, Rate{})
	l.status = http.StatusBadGateway
	unseen := smart.Asked{Wants: []string{strings.Repeat("f", 40)}}
	for range maxFailures {
		r := refusal(t, l.request(t).admit(t.Context(), unseen))
		if r.Code != cove.Unavailable || !strings.Contains(r.Reason, "502") {
			t.Errorf("%+v", r)
		}
	}
	r := refusal(t, l.request(t).admit(t.Context(), unseen))
	if r.Rule != "gateway: circuit breaker" || r.After <= 0 || l.asked != maxFailures {
		t.Errorf("%+v after %d requests", r, l.asked)
	}
}

// TestGitOwnRequestsAreJudged: a request that policy does not permit is not sent, and recorded.
func TestGitOwnRequestsAreJudged(t *testing.T) {
	l := newGitLab(t, Rate{})
	denies := document(t, "rules: [{hosts: example.com, paths: /o/r.git/info/refs, action: deny}]")
	if _, err := l.route.Extend(denies); err != nil {
		t.Fatal(err)
	}
	err := l.request(t).list(t.Context())
	if cove.ErrorCode(err) != cove.Forbidden || l.asked != 0 {
		t.Errorf("%v after %d requests", err, l.asked)
	}
	if got, want := l.taken(), []string{"GET example.com/o/r.git/info/refs deny at policy: 0"}; !slices.Equal(got, want) {
		t.Errorf("recorded: %q, want %q", got, want)
	}
}
