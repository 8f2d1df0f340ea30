package proxy

import (
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// endpoints returns a lab whose gateway forwards /proxy/v1/ask to https://behind.lab/v2/answer, and answers a greeting
// itself.
func endpoints(t *testing.T) (*lab, *origin) {
	l := newLab(t)
	gateway := host(policy.GatewayService)
	l.decide = func(r policy.Request) policy.Verdict {
		mine := r.Host == gateway && r.Layer != policy.LayerDial && (r.Port == 80 || r.Layer == policy.LayerDNS)
		behind := r.Endpoint && r.Host == host("behind.lab") && r.Port == 443 &&
			(r.Layer != policy.LayerHTTP || r.Path == "/v2/answer")
		if mine || behind {
			return policy.Verdict{Action: policy.Allow, Rule: "test"}
		}
		return policy.Verdict{Rule: "default", Reason: "no"}
	}
	l.endpoint = func(r policy.Request, h *http.Request) (*Origin, *Answer) {
		h.Header.Del("X-Choose")
		switch r.Path {
		case "/proxy/v1/ask":
			return &Origin{&url.URL{Scheme: "https", Host: "behind.lab", Path: "/v2/answer"}, l.Prepare}, nil
		case "/proxy/v1/away":
			return &Origin{&url.URL{Scheme: "https", Host: "behind.lab", Path: "/v2/keys"}, l.Prepare}, nil
		case "/proxy/v1/hello":
			return nil, &Answer{Status: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("hello\n")}
		}
		return nil, &Answer{Status: 404, Header: http.Header{"Content-Type": {"application/json"}},
			Body: []byte(`{"error":"none"}`), Reason: "there is no such endpoint"}
	}
	l.prepare = func(r policy.Request, h *http.Request) error {
		if r.Host != host("behind.lab") || r.Path != "/v2/answer" || !r.Endpoint {
			t.Errorf("prepared: %+v", r)
		}
		h.Header.Set("Authorization", "Bearer real")
		return nil
	}
	return l, l.serve("behind.lab", "203.0.113.1", nil)
}

// TestEndpoints: every entry reaches the endpoints behind the gateway's own name, and nothing else there.
func TestEndpoints(t *testing.T) {
	l, o := endpoints(t)
	l.pinned[netip.MustParseAddr("198.18.0.1")] = host(policy.GatewayService)
	ways := map[string]struct {
		client *http.Client
		base   string
	}{
		"absolute form": {l.client(), "http://gateway.cove.internal"},
		"transparent":   {l.client(to(l.transparent("198.18.0.1:80"))), "http://gateway.cove.internal"},
		"origin form":   {l.client(func(t *http.Transport) { t.Proxy = nil }), "http://" + l.explicit},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			ask := func(method, path string) (int, string) {
				r, _ := http.NewRequest(method, way.base+path, strings.NewReader("question"))
				r.Header.Set("Authorization", "Bearer placeholder")
				res, err := way.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				body, _ := io.ReadAll(res.Body)
				return res.StatusCode, string(body)
			}
			if status, body := ask("POST", "/proxy/v1/ask?beta=true"); status != 200 ||
				body != `POST https://behind.lab/v2/answer?beta=true "question"` {
				t.Errorf("%d %s", status, body)
			}
			seen := o.seen()
			if last := seen[len(seen)-1]; last.Header.Get("Authorization") != "Bearer real" {
				t.Errorf("the origin got %v", last.Header)
			}
			if status, body := ask("GET", "/proxy/v1/hello"); status != 200 || body != "hello\n" {
				t.Errorf("%d %s", status, body)
			}
			for _, path := range []string{"/", "/metrics", "/proxy/v1/ask/more", "/proxy/v1/Ask", "/proxy"} {
				if status, body := ask("POST", path); status != 404 || body != `{"error":"none"}` {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
			if status, body := ask("POST", "/proxy/v1/away"); status != 403 || !strings.Contains(body, "blocked") {
				t.Errorf("away: %d %s", status, body)
			}
			if n := len(o.seen()); n != len(seen) {
				t.Errorf("the origin saw %d requests more", n-len(seen))
			}
		})
	}
	e := l.event(func(e Event) bool { return e.Status == 404 && e.Request.Path == "/metrics" })
	if e.Verdict.Action != policy.Deny || e.Verdict.Rule != ruleEndpoint {
		t.Errorf("recorded as %+v", e)
	}
	e = l.event(func(e Event) bool { return e.Request.Path == "/proxy/v1/ask" })
	if e.Request.Host != host(policy.GatewayService) || e.Status != 200 || e.Sent != 8 {
		t.Errorf("recorded as %+v", e)
	}
}

// TestEndpointsAreApart: the sandbox cannot reach an endpoint's origin itself, not even on an existing connection.
func TestEndpointsAreApart(t *testing.T) {
	l, o := endpoints(t)
	c := l.client()
	if res, body := get(t, c, "http://gateway.cove.internal/proxy/v1/ask"); res.StatusCode != 200 {
		t.Fatalf("%s %s", res.Status, body)
	}
	if res, body := get(t, l.client(to(l.transparent("203.0.113.1:443"))),
		"https://behind.lab/v2/answer"); res.StatusCode != 403 {
		t.Errorf("%s %s", res.Status, body)
	}
	for _, u := range []string{"http://behind.lab/v2/answer", "http://gateway.cove.internal:8080/proxy/v1/ask",
		"http://other.cove.internal/proxy/v1/ask"} {
		if res, body := get(t, c, u); res.StatusCode != 403 {
			t.Errorf("%s: %s %s", u, res.Status, body)
		}
	}
	for _, first := range []string{"GET /proxy/v1/ask HTTP/1.1\r\nHost: gateway.cove.internal\r\n\r\n",
		"GET /proxy/v1/ask HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /proxy/v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"} {
		w := dialWire(t, l.explicit)
		if res, _ := w.send(first).response("GET"); res.StatusCode != 400 {
			t.Errorf("%q: %s", first, res.Status)
		}
	}
	if n := len(o.seen()); n != 1 {
		t.Errorf("the origin saw %d requests", n)
	}
}

// TestEndpointIsCut: a change of policy ends requests of an endpoint.
func TestEndpointIsCut(t *testing.T) {
	l, _ := endpoints(t)
	begun, left := make(chan struct{}), make(chan struct{})
	l.serve("behind.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
		close(left)
	})
	res, err := l.client().Get("http://gateway.cove.internal/proxy/v1/ask")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	<-begun
	if cut := l.server.Rejudge(l.decide); cut != 0 {
		t.Errorf("%d cut, and nothing has changed", cut)
	}
	if cut := l.server.Rejudge(func(policy.Request) policy.Verdict { return policy.Verdict{} }); cut == 0 {
		t.Error("nothing was cut")
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the answer looks complete")
	}
	<-left
}
