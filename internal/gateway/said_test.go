package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
	"github.com/cove-sandbox/cove/internal/store"
)

// reflecting is an origin that answers, over TLS, in a form that has the request's key in place of KEY.
type reflecting struct {
	net.Listener
	form, key atomic.Value // strings
}

func (o *reflecting) Dial(ctx context.Context, _ policy.Host, _ uint16, _ []netip.Addr, _ func(netip.Addr) error) (
	net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", o.Addr().String())
}

func (o *reflecting) serve() {
	for {
		c, err := o.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			o.key.Store(key)
			io.WriteString(c, strings.ReplaceAll(o.form.Load().(string), "KEY", key))
		}()
	}
}

// brokenAnswers are answers that net/http does not accept, and quotes, or that end too early.
var brokenAnswers = map[string]string{
	"status line":       "HTTP/1.1 KEY\r\n\r\n",
	"no HTTP":           "KEY\r\n\r\n",
	"version":           "KEY/1.1 200 OK\r\n\r\n",
	"without a colon":   "HTTP/1.1 200 OK\r\nKEY\r\n\r\n",
	"continued":         "HTTP/1.1 200 OK\r\n KEY: x\r\n\r\n",
	"name with a space": "HTTP/1.1 200 OK\r\nX KEY: x\r\n\r\n",
	"length":            "HTTP/1.1 200 OK\r\nContent-Length: KEY\r\n\r\n",
	"two lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: KEY\r\n\r\n",
	"transfer encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: KEY\r\n\r\n",
	"chunk":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nKEY\r\n",
	"trailer":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nKEY\r\n\r\n",
	"announced trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: KEY\r\n\r\n" +
		"2\r\nhi\r\n0\r\nKEY: KEY\r\n\r\n",
	"trailer of a body":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-KEY: KEY\r\n\r\n",
	"cut body":           "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nbody KEY",
	"status of a switch": "HTTP/1.1 101 KEY\r\nUpgrade: KEY\r\n\r\n",
	"early status":       "HTTP/1.1 103 KEY\r\nLink: KEY\r\n\r\nHTTP/1.1 199 KEY\r\n\r\n",
	"location":           "HTTP/1.1 302 KEY\r\nLocation: KEY\r\nContent-Length: 0\r\n\r\n",
	"gzip":               "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 24\r\n\r\nKEY",
	"unknown coding":     "HTTP/1.1 200 OK\r\nContent-Encoding: KEY\r\nContent-Length: 2\r\n\r\nhi",
	"header name":        "HTTP/1.1 200 OK\r\nX-KEY: 1\r\nContent-Length: 2\r\n\r\nhi",
	"grpc encoding":      "HTTP/1.1 200 OK\r\nGrpc-Encoding: KEY\r\nContent-Length: 2\r\n\r\nhi",
}

// TestNothingSaysAKey: whatever an origin does with the key that it was sent, the key is in no answer of the gateway,
// in no decision and in no line of its log. The origin quotes it where net/http quotes the origin.
func TestNothingSaysAKey(t *testing.T) {
	const key = `labkey-"7Qz9x4Wv2Tn8/Lm3Rk5Hd`
	t.Setenv("REFLECTED", key)
	credentials, err := credential.Parse("c.yaml",
		[]byte("credentials: [{name: key, source: 'env:REFLECTED', to: [{hosts: key.example.com, form: bearer}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := redact.New(secret.New(key))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said bytes.Buffer // decisions and the log
	locked := writerFunc(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return said.Write(p) })
	log := slog.New(slog.NewTextHandler(locked, nil))
	g := New(Options{Dir: t.TempDir(), Spool: t.TempDir(), Clock: clock.Real(), Log: log,
		Described: func() (Described, error) { return Described{Credentials: credentials}, nil },
		Recorder: NewRecorder(RecorderOptions{Store: store.NewVault(&page{}), Keep: 100, Clock: clock.Real(), Log: log,
			Observe: func(d decision.Decision) { fmt.Fprintf(locked, "%+v\n", d) }})})
	t.Cleanup(g.Close)
	world := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(world.Close)
	roots := world.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	origin := &reflecting{Listener: tls.NewListener(l, &tls.Config{Certificates: world.TLS.Certificates})}
	t.Cleanup(func() { origin.Close() })
	go origin.serve()
	open := func() (*Route, *http.Client) { // a new one has no circuit that is open
		route, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Credentials: []string{"key"},
			Policy: []*policy.Document{document(t, "rules: [{hosts: key.example.com}]")}})
		if err != nil {
			t.Fatal(err)
		}
		route.proxy.Shut()
		route.proxy.Close()
		route.proxy = proxy.New(proxyView{route}, proxy.Options{Dialer: origin, Roots: roots, Log: route.log})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		route.ServeProxy(listener)
		inside := x509.NewCertPool()
		inside.AppendCertsFromPEM(route.Certificate())
		return route, &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
			Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String()}),
			TLSClientConfig: &tls.Config{RootCAs: inside}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	answered := map[string]int{}
	for name, form := range brokenAnswers {
		route, client := open()
		for _, accept := range []string{"", "text/html"} {
			origin.form.Store(form)
			origin.key.Store("")
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://key.example.com/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", accept)
			var all string
			res, err := client.Do(r)
			if err != nil {
				all = err.Error()
			} else {
				body, err := io.ReadAll(res.Body)
				all = fmt.Sprint(res.Status, res.Header, string(body), err, res.Trailer)
				answered[strconv.Itoa(res.StatusCode)]++
				res.Body.Close()
			}
			if origin.key.Load() != key {
				t.Errorf("%s: the origin has not got the key", name)
			}
			if found := saysKey(all, key); found != "" {
				t.Errorf("%s: the answer has %s: %s", name, found, all)
			}
		}
		route.Close()
	}
	if answered["502"] < len(brokenAnswers) { // half of the forms at least: the rest is a broken body, or proper
		t.Errorf("the answers were %v", answered)
	}
	route, _ := open()
	route.log.Error("an error", "error", fmt.Errorf("it quotes %q", key))
	g.Close()
	mu.Lock()
	defer mu.Unlock()
	text := said.String()
	if found := saysKey(text, key); found != "" || !strings.Contains(text, "missing colon") ||
		!strings.Contains(text, "it quotes") {
		t.Errorf("the record and the log have %q: %s", found, text)
	}
	if route.Conceal(key) != values.Text(key) || saysKey(strconv.Quote(key), key) == "" {
		t.Error("the control: the key is not found where it is")
	}
}

// saysKey returns the part of a key that text has, in any case.
func saysKey(text, key string) string {
	for _, part := range []string{key[:7], key[8:20], key[21:]} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(part)) {
			return part
		}
	}
	return ""
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
