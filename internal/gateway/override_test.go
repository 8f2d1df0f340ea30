package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/decision"
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
			r, err := http.NewRequest(http.MethodGet, "https://"+x.host+"/ok/item", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header[x.header] = []string{"DELETE"}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(res.Body)
			res.Body.Close()
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
		if refused != 4 || strings.Join(got, ", ") != "reads.example.com/ok/item , open.example.com/ok/item DELETE" {
			t.Errorf("HTTP/%d: %d refused, the origin got %q", version, refused, got)
		}
	}
}
