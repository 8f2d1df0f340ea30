// Package outlet lets programs of this machine out through the gateway, as clients like every sandbox: git to one
// repository, the request that opens a pull request, and questions to the models of one provider.
package outlet

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/git/forge"
	"github.com/cove-sandbox/cove/internal/repos"
)

// Outlet opens egress routes for programs of this machine.
type Outlet struct {
	Gateway func() (*gateway.Gateway, error) // opens it on first use
	GitHub  github.Servers
}

var _ repos.Outlet = Outlet{}

// Open implements repos.Outlet. Errors: InvalidArgument, Forbidden, Unavailable.
func (o Outlet) Open(_ context.Context, who cove.Principal, address string, push bool) (repos.Route, error) {
	if strings.HasPrefix(address, "http://") { // on this machine's loopback, for its owner alone
		return repos.Route{Close: func() error { return nil }}, nil
	}
	document, err := openTo(address, push)
	if err != nil {
		return repos.Route{}, err
	}
	spec := gateway.Spec{Name: "git", Owner: cove.MachineOwner(), Policy: []*policy.Document{document}, Remote: address}
	if !who.IsOwner() {
		spec.Owner, spec.Remote = who, ""
		if err := document.Foreign(nil); err != nil {
			return repos.Route{}, err
		}
	}
	return o.open(spec)
}

// Asker is the sandbox in whose name a push asks for approval.
type Asker struct {
	Who     cove.Principal // who pushes, and answers
	Sandbox cove.SandboxID
	Name    string // of the sandbox
	What    string // the question
}

// Asking returns an outlet for a push that first waits for an approval, like a sandbox's request.
func (o Outlet) Asking(by Asker) repos.Outlet { return asking{o, by} }

type asking struct {
	Outlet
	by Asker
}

func (o asking) Open(_ context.Context, _ cove.Principal, address string, push bool) (repos.Route, error) {
	if !strings.HasPrefix(address, "https://") {
		return repos.Route{}, cove.Errorf(cove.Unsupported, "a push to %s does not go through the gateway, which asks",
			address).WithHint("say yes to it yourself")
	}
	document, err := openTo(address, push)
	if err != nil {
		return repos.Route{}, err
	}
	first := &document.Rules[0] // git begins by reading, once: that is the request that waits
	first.Action, first.Note = policy.Ask, o.by.What
	return o.open(gateway.Spec{Name: o.by.Name, Owner: cove.MachineOwner(), Asker: o.by.Who, Object: string(o.by.Sandbox),
		Policy: []*policy.Document{document}, Remote: address})
}

// open opens a route for git: a proxy that admits only clients with its password.
func (o Outlet) open(spec gateway.Spec) (repos.Route, error) {
	route, proxy, err := o.listen(spec)
	if err != nil {
		return repos.Route{}, err
	}
	return repos.Route{
		Proxy: proxy.String(),
		CA:    route.EnvAt("", route.Files())["GIT_SSL_CAINFO"],
		Close: func() error { route.Close(); return nil },
	}, nil
}

// listen opens a route for a program of this machine, and returns the address of its proxy, with the password.
func (o Outlet) listen(spec gateway.Spec) (*gateway.Route, *url.URL, error) {
	g, err := o.Gateway()
	if err != nil {
		return nil, nil, err
	}
	spec.Sandbox = g.Next()
	route, err := g.Open(spec)
	if err != nil {
		return nil, nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		route.Close()
		return nil, nil, cove.Errorf(cove.Unavailable, "cannot listen for %s: %w", spec.Name, err)
	}
	password := rand.Text()
	route.ServeProxy(newAdmission(ln, user+":"+password))
	return route, &url.URL{Scheme: "http", User: url.UserPassword(user, password), Host: ln.Addr().String()}, nil
}

// user is the name with which clients of this machine's proxies log in.
const user = "git"

// openTo returns the document that opens git's requests to read a repository, and to push to it; the first rule is for
// the request that git begins with. Branches are not judged here: the git is the machine's own.
func openTo(address string, push bool) (*policy.Document, error) {
	r, err := policy.ParseRemote(address)
	if err != nil {
		return nil, err
	}
	d := &policy.Document{Source: "repository", Mode: cove.NetworkLimited}
	services := []string{"/git-upload-pack"}
	if push {
		services = append(services, "/git-receive-pack")
	}
	for _, asks := range []struct {
		method string
		paths  []string
	}{{"GET", []string{"/info/refs"}}, {"POST", services}} {
		var paths []string
		for _, p := range asks.paths {
			paths = append(paths, r.Path+p, r.Path+".git"+p)
		}
		rule, err := policy.Exactly(d.Source, r.Host, r.Port, asks.method, paths...)
		if err != nil {
			return nil, err
		}
		d.Rules = append(d.Rules, rule)
	}
	return d, nil
}

// OpenPull opens a pull request for a repository, through the gateway, which sets this machine's credential. Errors:
// Unsupported where the host does not serve GitHub's API, those of forge.Open.
func (o Outlet) OpenPull(ctx context.Context, remote string, p forge.Pull) (forge.Opened, error) {
	spec, address, err := o.forgeSpec(remote)
	if err != nil {
		return forge.Opened{}, err
	}
	client, err := o.Client(spec)
	if err != nil {
		return forge.Opened{}, err
	}
	defer client.Close()
	return forge.Open(ctx, &client.Client, address, p)
}

// forgeSpec returns the address at which a repository's pull requests are opened, and a route to it alone.
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
