package proxy

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy/policytest"
)

// smuggled follows a refused message, and must never reach an origin.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: allowed.lab\r\n\r\n"

// entrances returns functions that open a raw connection on which HTTP/1 for allowed.lab is spoken.
func (l *lab) entrances() map[string]func(t *testing.T) *wire {
	plain, secure := l.transparent("203.0.113.1:80"), l.transparent("203.0.113.1:443")
	return map[string]func(t *testing.T) *wire{
		"transparent http": func(t *testing.T) *wire { return dialWire(t, plain) },
		"transparent https": func(t *testing.T) *wire {
			return mustSecure(t, dialWire(t, secure), l.trust("allowed.lab"))
		},
		"connect http": func(t *testing.T) *wire { return l.connect(t, "allowed.lab:80") },
		"connect https": func(t *testing.T) *wire {
			return mustSecure(t, l.connect(t, "allowed.lab:443"), l.trust("allowed.lab"))
		},
		"explicit": func(t *testing.T) *wire { return dialWire(t, l.explicit) },
	}
}

func (l *lab) trust(name string, protocols ...string) *tls.Config {
	return &tls.Config{RootCAs: l.inside.pool, ServerName: name, NextProtos: protocols}
}

func mustSecure(t *testing.T, w *wire, c *tls.Config) *wire {
	t.Helper()
	inside, err := w.secure(c)
	if err != nil {
		t.Fatalf("TLS to the gateway: %v", err)
	}
	return inside
}

// TestOptionsOfServer: OPTIONS * is refused as a request without a path, by no other answer, through any entry.
func TestOptionsOfServer(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	l.serve("allowed.lab", "203.0.113.1", nil)
	for way, enter := range l.entrances() {
		got := enter(t).send("OPTIONS * HTTP/1.1\r\nHost: allowed.lab\r\nConnection: close\r\n\r\n").rest()
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "the target of the request is not") {
			t.Errorf("%s: %.300q", way, got)
		}
	}
}

// TestSmuggling: only exact sequences of requests reach an origin, through any entry, and bytes after a refusal are not
// read.
func TestSmuggling(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	for way, enter := range l.entrances() {
		t.Run(way, func(t *testing.T) {
			for name, bytes := range policytest.Unclear {
				w := enter(t).send(bytes + smuggled)
				if got := w.rest(); got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 502") &&
					!strings.HasPrefix(got, "\x15\x03") {
					// A tunnel opened by CONNECT ends without an answer.
					if !strings.HasPrefix(bytes, "CONNECT") {
						t.Errorf("%s: %.200q", name, got)
					}
				}
				w.Close()
			}
		})
	}
	for _, r := range o.seen() {
		// A request whose body broke off later may have been forwarded.
		if r.URL.Path != "/" || r.Method != "POST" {
			t.Errorf("the origin saw %s %s %s", r.Method, r.Host, r.URL)
		}
	}
}

// TestPipelining: requests on one connection are judged one by one.
func TestPipelining(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	l.serve("denied.lab", "203.0.113.2", nil)
	for way, enter := range l.entrances() {
		t.Run(way, func(t *testing.T) {
			form := ""
			if way == "explicit" {
				form = "http://allowed.lab"
			}
			before := len(o.seen())
			w := enter(t).send("GET " + form + "/1 HTTP/1.1\r\nHost: allowed.lab\r\n\r\n" +
				"POST " + form + "/2 HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" +
				"GET " + strings.Replace(form, "allowed", "denied", 1) + "/3 HTTP/1.1\r\nHost: denied.lab\r\n\r\n" +
				"GET " + form + "/4 HTTP/1.1\r\nHost: allowed.lab\r\n\r\n")
			for i, want := range []int{200, 200, 403, 200} {
				res, body := w.response("GET")
				if res.StatusCode != want {
					t.Fatalf("answer %d: %s %s", i+1, res.Status, body)
				}
			}
			if n := len(o.seen()) - before; n != 3 {
				t.Errorf("the origin saw %d requests", n)
			}
		})
	}
	for _, r := range o.seen() {
		if r.Host != "allowed.lab" {
			t.Errorf("the origin saw a request for %s", r.Host)
		}
	}
}

// TestNestedConnect: a tunnel leads to no other host.
func TestNestedConnect(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab", "other.lab")
	o, other := l.serve("allowed.lab", "203.0.113.1", nil), l.serve("other.lab", "203.0.113.2", nil)
	for way, enter := range l.entrances() {
		if way == "explicit" {
			continue
		}
		for _, target := range []string{"other.lab:443", "allowed.lab:443", "other.lab:80"} {
			w := enter(t).send("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n" + smuggled)
			if res, _ := w.response("GET"); res.StatusCode != 403 {
				t.Errorf("%s, %s: %s", way, target, res.Status)
			}
			if got := w.rest(); got != "" {
				t.Errorf("%s, %s: the connection goes on: %q", way, target, got)
			}
		}
	}
	if n := len(o.seen()) + len(other.seen()); n != 0 {
		t.Errorf("the origins saw %d requests", n)
	}
}

// TestHeaders: hop-by-hop headers, headers named by Connection, and routes around the gateway are not forwarded.
func TestHeaders(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(200)
	})
	for way, enter := range l.entrances() {
		form := ""
		if way == "explicit" {
			form = "http://allowed.lab"
		}
		w := enter(t).send("GET " + form + "/ HTTP/1.1\r\nHost: allowed.lab\r\nConnection: x-one, Upgrade, " +
			"HTTP2-Settings\r\nConnection: x-two\r\n" +
			"X-One: 1\r\nX-Two: 2\r\nX-Three: 3\r\nUpgrade: h2c\r\nHTTP2-Settings: " +
			"AAMAAABkAAQCAAAAAAIAAAAA\r\nProxy-Authorization: Basic eA==\r\n" +
			"Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nTE: trailers, deflate\r\nAlt-Used: x\r\nTrailer: Y\r\n\r\n")
		res, _ := w.response("GET")
		if res.StatusCode != 200 || res.Header.Get("X-Kept") != "yes" {
			t.Fatalf("%s: %s %v", way, res.Status, res.Header)
		}
		for _, h := range []string{"Alt-Svc", "Keep-Alive", "Proxy-Authenticate"} {
			if v := res.Header[h]; v != nil {
				t.Errorf("%s: the answer has %s: %q", way, h, v)
			}
		}
		seen := o.seen()
		got := seen[len(seen)-1].Header
		if len(got) != 2 || got.Get("X-Three") != "3" || got.Get("Te") != "trailers" {
			t.Errorf("%s: the origin got %v", way, got)
		}
	}
}
