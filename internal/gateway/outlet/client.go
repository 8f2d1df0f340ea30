package outlet

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/gateway"
)

// headerTimeout is how long an origin may take to answer a request.
const headerTimeout = 2 * time.Minute

// Client is a client of HTTP whose only way out is an egress route.
type Client struct {
	http.Client
	route *gateway.Route
}

// Client opens a client with the policy of a spec. Errors: those of the gateway.
func (o Outlet) Client(spec gateway.Spec) (*Client, error) {
	route, proxy, err := o.listen(spec)
	if err != nil {
		return nil, err
	}
	roots, err := os.ReadFile(route.EnvAt("", route.Files())["GIT_SSL_CAINFO"])
	if err != nil {
		route.Close()
		return nil, cove.Errorf(cove.Unavailable, "read whom to trust: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: pool},
		DisableKeepAlives: true, ResponseHeaderTimeout: headerTimeout}
	return &Client{http.Client{Transport: transport}, route}, nil
}

// Denied lists the places that the client did not reach for lack of a rule.
func (c *Client) Denied() []egress.Denial { return c.route.Denied() }

// Close ends the connections of the client, and its route.
func (c *Client) Close() {
	c.CloseIdleConnections()
	c.route.Close()
}
