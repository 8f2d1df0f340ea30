package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// TestOverrides: where rules look at methods or paths, no header turns a request into another one, over HTTP/1 and
// HTTP/2; elsewhere such headers pass.
func TestOverrides(t *testing.T) {
	for _, version := range []int{1, 2} {
		var got []string
		o := newOrigin(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = append(got, r.Host+r.URL.Path+" "+r.Header.Get("X-Http-Method-Override"))
		}), `rules:
- {hosts: [reads.example.com, other.example.com], methods: [GET], paths: [/ok/**]}
- {hosts: denied.example.com}
- {hosts: denied.example.com, paths: [/admin/**], action: deny}
- {hosts: open.example.com}`)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(o.route.Certificate())
		proxy, err := url.Parse(o.proxy)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), ForceAttemptHTTP2: version == 2,
			TLSClientConfig: &tls.Config{RootCAs: roots}}}
		for _, x := range []struct {
			host, header string
			status       int
		}{
			{"reads.example.com", "X-HTTP-Method-Override", http.StatusForbidden},
			{"reads.example.com", "x_original_url", http.StatusForbidden},
			{"reads.example.com", "X-Requested-With", http.StatusOK},
			{"other.example.com", "X-Rewrite-URL", http.StatusForbidden},
			{"denied.example.com", "X-Original-URL", http.StatusForbidden},
			{"open.example.com", "X-HTTP-Method-Override", http.StatusOK},
		} {
			ask := func(scheme string) (res *http.Response, said []byte) {
				r, err := http.NewRequest(http.MethodGet, scheme+"://"+x.host+"/ok/item", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header[x.header] = []string{"DELETE"}
				if res, err = client.Do(r); err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				said, _ = io.ReadAll(res.Body)
				return res, said
			}
			if x.status != http.StatusOK { // in absolute form
				if res, said := ask("http"); res.StatusCode != x.status {
					t.Errorf("%s of %s: %s: %s", x.header, x.host, res.Status, said)
				}
			}
			res, said := ask("https")
			if res.ProtoMajor != version || res.StatusCode != x.status ||
				x.status != http.StatusOK && !strings.Contains(string(said), "the header "+http.CanonicalHeaderKey(x.header)) {
				t.Errorf("HTTP/%d, %s of %s: %s: %s", res.ProtoMajor, x.header, x.host, res.Status, said)
			}
		}
		client.CloseIdleConnections()
		refused := 0
		for _, d := range o.decisions() {
			if d.Verdict == decision.Deny && d.Stage == decision.StageProtocol {
				refused++
			}
		}
		if refused != 8 || strings.Join(got, ", ") != "reads.example.com/ok/item , open.example.com/ok/item DELETE" {
			t.Errorf("HTTP/%d: %d refused, the origin got %q", version, refused, got)
		}
	}
}

// TestOverridesOfCredentials: a credential that is bound to methods or paths is set on no request that a header turns
// into another one, whatever the rules say.
func TestOverridesOfCredentials(t *testing.T) {
	t.Setenv("BOUND_KEY", "a-key-of-some-length")
	credentials, err := credential.Parse("c.yaml", []byte(`credentials:
- {name: some, source: 'env:BOUND_KEY', to: [{hosts: some.example.com, form: bearer, paths: [/api/**]}]}
- {name: all, source: 'env:BOUND_KEY', to: [{hosts: all.example.com, form: bearer}]}`))
	if err != nil {
		t.Fatal(err)
	}
	g := New(Options{Dir: t.TempDir(), Spool: t.TempDir(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Described: func() (Described, error) { return Described{Credentials: credentials}, nil }})
	t.Cleanup(g.Close)
	route, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Credentials: []string{"some", "all"},
		Policy: []*policy.Document{document(t, "rules: [{hosts: '*.example.com'}]")}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]struct {
		refused bool
		key     string
	}{"some.example.com": {true, ""}, "all.example.com": {false, "Bearer a-key-of-some-length"}, "none.example.com": {}} {
		r := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, host), Port: 443, Method: "GET", Path: "/api/x"}
		h, err := http.NewRequest(r.Method, "https://"+host+r.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.Header.Set("X-Original-URL", "/admin")
		passage, err := proxyView{route}.Prepare(r, h)
		if (err != nil) != want.refused || h.Header.Get("Authorization") != want.key {
			t.Errorf("%s: %v, %v", host, err, h.Header)
		}
		if passage != nil {
			passage.End(nil)
		}
	}
}
