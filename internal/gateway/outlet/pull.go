package outlet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/git/forge"
)

// OpenPull opens a pull request for a repository, through the gateway, which sets this machine's credential. Errors:
// Unsupported where the host does not serve GitHub's API, those of forge.Open.
func (o Outlet) OpenPull(ctx context.Context, remote string, p forge.Pull) (forge.Opened, error) {
	spec, address, err := o.forgeSpec(remote)
	if err != nil {
		return forge.Opened{}, err
	}
	route, err := o.open(spec)
	if err != nil {
		return forge.Opened{}, err
	}
	defer route.Close()
	proxy, err := url.Parse(route.Proxy)
	if err != nil {
		return forge.Opened{}, cove.Errorf(cove.Internal, "the egress route has no address: %w", err)
	}
	roots, err := os.ReadFile(route.CA)
	if err != nil {
		return forge.Opened{}, cove.Errorf(cove.Unavailable, "read whom to trust: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: pool},
		DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	return forge.Open(ctx, &http.Client{Transport: transport}, address, p)
}

// forgeSpec returns a route to the address at which pull requests of a repository are opened, and to no other, and that
// address.
func (o Outlet) forgeSpec(remote string) (spec gateway.Spec, address string, err error) {
	none := cove.Errorf(cove.Unsupported, "pull requests can be opened at servers that speak GitHub's API").
		WithHint("if this is a GitHub Enterprise server, name it in gateway.github_hosts of the configuration")
	if !strings.HasPrefix(remote, "https://") {
		return spec, "", none
	}
	r, err := policy.ParseRemote(remote)
	if err != nil {
		return spec, "", err
	}
	at, ok := o.GitHub.API(r.Host)
	if !ok || strings.Count(r.Path, "/") != 2 {
		return spec, "", none
	}
	path := at.Prefix + "/repos" + r.Path + "/pulls"
	rule, err := policy.Exactly("repository", at.Host, at.Port(r.Port), http.MethodPost, path)
	if err != nil {
		return spec, "", err
	}
	document := &policy.Document{Source: "repository", Mode: cove.NetworkLimited, Rules: []policy.Rule{rule},
		PullRequests: policy.Granted}
	spec = gateway.Spec{Name: "git", Owner: cove.MachineOwner(), Policy: []*policy.Document{document}, Remote: remote,
		PullRequests: true}
	return spec, "https://" + at.Host.Authority(at.Port(r.Port)) + path, nil
}
