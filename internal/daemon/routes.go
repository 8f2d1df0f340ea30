package daemon

import (
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/store"
)

// spec describes an egress route to the gateway.
func spec(owner cove.Principal, id cove.SandboxID, name string, n egress.Network) gateway.Spec {
	return gateway.Spec{
		Owner: owner, Sandbox: id, Name: name, Policy: n.Policy, Credentials: n.Credentials, Providers: n.Providers,
		Budget:     n.Budget,
		Neighbours: n.Neighbours, Remote: n.Remote, PullRequests: n.PullRequests,
	}
}

// routes are the egress routes of long-lived sandboxes.
type routes struct {
	gateway *gateway.Gateway
	servers github.Servers
}

// OpenRoute implements sandbox.Routes.
func (r routes) OpenRoute(who cove.Principal, id cove.SandboxID, name string, n egress.Network) (egress.Route, error) {
	return r.gateway.Open(spec(who, id, name, n))
}

// CheckRoute implements sandbox.Routes.
func (r routes) CheckRoute(who cove.Principal, n egress.Network) error {
	return r.gateway.Check(spec(who, "", "", n))
}

// OpenBeside implements sandbox.Routes.
func (r routes) OpenBeside(who cove.Principal, id cove.SandboxID, of store.Sandbox,
	n egress.Network) (egress.Route, error) {
	s := spec(who, id, of.Name, n)
	s.Object = string(of.ID)
	return r.gateway.Open(s)
}

// ForgetRoute implements sandbox.Routes.
func (r routes) ForgetRoute(id cove.SandboxID) error { return r.gateway.Discard(id) }

// RepositoryNetwork implements sandbox.Routes.
func (r routes) RepositoryNetwork(who cove.Principal, of store.SandboxRepository,
	allowPR bool) (egress.Network, error) {
	return r.servers.Access(github.Repository{Remote: of.Remote, Branch: of.Branch, Shared: of.Shared,
		PullRequests: allowPR, Owned: who.IsOwner()})
}
