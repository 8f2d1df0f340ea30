package gateway

import (
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/store"
)

// origin is a TLS server that has every name, and a route to it as clients on this machine find it.
type origin struct {
	proxy string // URL
	ca    string // file with the certificate of the route's authority
	route *Route

	upstream string // file with the certificate of the server itself

	mu    sync.Mutex
	taken []decision.Decision // guarded by mu
}

func newOrigin(t *testing.T, h http.Handler, rules string) *origin {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	o := &origin{ca: filepath.Join(t.TempDir(), "ca.pem"), upstream: filepath.Join(t.TempDir(), "upstream.pem")}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(o.upstream, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	g := New(Options{Dir: t.TempDir(), Clock: clock.Real(), Log: log, Packs: noPacks{},
		Recorder: NewRecorder(RecorderOptions{Store: store.NewVault(&page{}), Keep: 100, Clock: clock.Real(), Log: log,
			Observe: o.observe})})
	t.Cleanup(g.Close)
	var err error
	o.route, err = g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test",
		Policy: []*policy.Document{document(t, rules)}})
	if err != nil {
		t.Fatal(err)
	}
	o.route.proxy.Shut()
	o.route.proxy.Close()
	o.route.proxy = proxy.New(proxyView{o.route}, proxy.Options{Dialer: &gitServer{Server: server},
		Roots: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, Log: log})
	o.route.git.proxy = o.route.proxy
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.route.ServeProxy(l)
	o.proxy = "http://" + l.Addr().String()
	if err := os.WriteFile(o.ca, o.route.Certificate(), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *origin) observe(d decision.Decision) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = append(o.taken, d)
}

// decisions shuts the route, and returns all that was recorded.
func (o *origin) decisions() []decision.Decision {
	o.route.Shut()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken
}
