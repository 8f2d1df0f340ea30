package daemon

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// adopt takes over the long-lived sandboxes of the home. It logs a sandbox that cannot be reconciled, and goes on.
func (d *Daemon) adopt(ctx context.Context) error {
	workspaces, err := d.openRepos()
	if err != nil {
		return err
	}
	g, err := d.newDetachedGateway()
	if err != nil {
		return err
	}
	d.detached.Store(g)
	d.approvals.Add(g)
	err = d.sandboxes.Adopt(ctx, sandbox.Host{
		Workspaces: workspaces, Layers: d.agents.Layers(), Routes: routes{g, d.outlet.GitHub}, Successor: d.runs, Recorders: d.runs,
		Git: &gitBeside{engines: d.engines, gateway: d.openGateway, guest: GuestPath(d.cfg), root: sync.OnceValues(d.newGitRoot), log: d.log},
		Dir: filepath.Join(d.cfg.Home, "sandboxes"), Most: d.cfg.Sandbox.MaxLasting,
	})
	if err != nil {
		d.log.Error("not every sandbox could be put right", "error", err)
	}
	if err := d.runs.Recover(ctx); err != nil {
		d.log.Error("not every run could be put right", "error", err)
	}
	return nil
}

// newDetachedGateway makes the gateway whose routes the next server can open again. Guests pass through its directory to
// the authorities that they trust.
func (d *Daemon) newDetachedGateway() (*gateway.Gateway, error) {
	o, err := d.gatewayOptions()
	if err != nil {
		return nil, err
	}
	keep, err := ca.OpenStore(d.cfg.Home)
	if err != nil {
		return nil, err
	}
	o.Dir, o.Keep = filepath.Join(d.cfg.RunDir, "ways"), &keep
	return gateway.New(o), nil
}

// spec is a way out as the gateway makes it.
func spec(owner cove.Principal, id cove.SandboxID, name string, n egress.Network) gateway.Spec {
	return gateway.Spec{
		Owner: owner, Sandbox: id, Name: name, Policy: n.Policy, Credentials: n.Credentials, Providers: n.Providers, Budget: n.Budget,
		Remote: n.Remote, PullRequests: n.PullRequests,
	}
}

func (d *Daemon) newRepos() (*repos.Store, error) {
	return repos.Open(repos.Options{Home: d.cfg.Home, Outlet: d.outlet, Log: d.log})
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

// ForgetRoute implements sandbox.Routes.
func (r routes) ForgetRoute(id cove.SandboxID) error { return r.gateway.Discard(id) }

// RepositoryNetwork implements sandbox.Routes.
func (r routes) RepositoryNetwork(who cove.Principal, of store.SandboxRepository, allowPR bool) (egress.Network, error) {
	a, err := r.servers.Access(github.Repository{Remote: of.Remote, Branch: of.Branch, Shared: of.Shared,
		PullRequests: allowPR, Owned: who.IsOwner()})
	return egress.Network{Mode: a.Mode, Policy: a.Policy, Remote: a.Remote, PullRequests: a.PullRequests}, err
}

// repositories is the store of repositories, opened at its first use.
type repositories struct {
	open func() (*repos.Store, error)
}

var _ httpapi.Repositories = repositories{}

// Mirrors implements httpapi.Repositories.
func (r repositories) Mirrors(ctx context.Context, who cove.Principal) ([]repos.Mirror, error) {
	s, err := r.open()
	if err != nil {
		return nil, err
	}
	return s.Mirrors(ctx, who)
}

// FetchMirror implements httpapi.Repositories.
func (r repositories) FetchMirror(ctx context.Context, who cove.Principal, source string, partial bool, progress func(workspace.Step)) (repos.Mirror, error) {
	s, err := r.open()
	if err != nil {
		return repos.Mirror{}, err
	}
	return s.FetchMirror(ctx, who, source, partial, progress)
}

// RemoveMirror implements httpapi.Repositories.
func (r repositories) RemoveMirror(ctx context.Context, who cove.Principal, source string) error {
	s, err := r.open()
	if err != nil {
		return err
	}
	return s.RemoveMirror(ctx, who, source)
}

// CollectMirror implements httpapi.Repositories.
func (r repositories) CollectMirror(ctx context.Context, who cove.Principal, source string) error {
	s, err := r.open()
	if err != nil {
		return err
	}
	return s.CollectMirror(ctx, who, source)
}
