package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/git/forge"
)

// Pull implements httpapi.Work.
func (w work) Pull(ctx context.Context, who cove.Principal, ref string, q api.PullRequest) (api.OpenedPull, error) {
	s, err := w.manager.FindSandbox(ctx, who, ref)
	if err != nil {
		return api.OpenedPull{}, err
	}
	if s.Repository == nil || s.Repository.Remote == "" {
		return api.OpenedPull{}, cove.Errorf(cove.InvalidArgument, "the sandbox %s has no remote that could take a pull request", s.Name).WithHint("bring its work back: cove apply %s", s.Name)
	}
	return w.outlet.openPull(ctx, s.Repository.Remote, forge.Pull{Title: q.Title, Head: q.Branch, Base: q.Base, Body: q.Body, Draft: q.Draft})
}

// openPull opens a pull request for a repository, through the gateway, which
// sets this machine's credential. Errors: Unsupported where the host is none of
// GitHub's, those of forge.Open.
func (o outlet) openPull(ctx context.Context, remote string, p forge.Pull) (api.OpenedPull, error) {
	spec, address, err := o.forgeSpec(remote)
	if err != nil {
		return api.OpenedPull{}, err
	}
	_, way, err := o.way(spec)
	if err != nil {
		return api.OpenedPull{}, err
	}
	defer way.Close()
	proxy, err := url.Parse(way.Proxy)
	if err != nil {
		return api.OpenedPull{}, cove.Errorf(cove.Internal, "the way out has no address: %w", err)
	}
	roots, err := os.ReadFile(way.CA)
	if err != nil {
		return api.OpenedPull{}, cove.Errorf(cove.Unavailable, "read whom to trust: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	opened, err := forge.Open(ctx, &http.Client{Transport: transport}, address, p)
	return api.OpenedPull{URL: opened.URL, Number: opened.Number}, err
}

// forgeSpec is a way out to where pull requests of a repository are opened, and
// nowhere else, and that address.
func (o outlet) forgeSpec(remote string) (spec gateway.Spec, address string, err error) {
	none := cove.Errorf(cove.Unsupported, "pull requests can be opened at servers that speak GitHub's API").
		WithHint("if this is a GitHub Enterprise server, name it in gateway.github_hosts of the configuration")
	if !strings.HasPrefix(remote, "https://") {
		return spec, "", none
	}
	r, err := policy.ParseRemote(remote)
	if err != nil {
		return spec, "", err
	}
	servers, err := GitHub(o.d.cfg.Gateway)
	if err != nil {
		return spec, "", err
	}
	at, ok := servers.API(r.Host)
	if !ok || strings.Count(r.Path, "/") != 2 {
		return spec, "", none
	}
	path := at.Prefix + "/repos" + r.Path + "/pulls"
	rule, err := policy.Exactly("repository", at.Host, at.Port(r.Port), http.MethodPost, path)
	if err != nil {
		return spec, "", err
	}
	document := &policy.Document{Source: "repository", Mode: cove.NetworkLimited, Rules: []policy.Rule{rule}, PullRequests: policy.Granted}
	spec = gateway.Spec{Name: "git", Owner: cove.MachineOwner(), Policy: []*policy.Document{document}, Remote: remote, PullRequests: true}
	return spec, "https://" + at.Host.Authority(at.Port(r.Port)) + path, nil
}
