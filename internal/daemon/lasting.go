package daemon

import (
	"context"
	"path/filepath"

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

// adopt takes over the sandboxes that last: this is the server of its home. One
// that cannot be put right is logged, and does not keep the others waiting.
func (d *Daemon) adopt(ctx context.Context) error {
	workspaces, err := d.openRepos()
	if err != nil {
		return err
	}
	g, err := d.newLastingGateway()
	if err != nil {
		return err
	}
	d.lasting.Store(g)
	d.approvals.Add(g)
	err = d.sandboxes.Adopt(ctx, sandbox.Host{
		Workspaces: workspaces,
		OpenRoute: func(who cove.Principal, id cove.SandboxID, name string, n egress.Network) (egress.Route, error) {
			return g.Open(spec(who, id, name, n))
		},
		ForgetRoute: g.Discard, OpenGit: d.openGit,
		Repository: func(who cove.Principal, of store.SandboxRepository, allowPR bool) (egress.Network, error) {
			return d.outlet.GitHub.Access(github.Repository{Remote: of.Remote, Branch: of.Branch, Shared: of.Shared,
				PullRequests: allowPR, Owned: who.IsOwner()})
		},
		Layers: d.agents.Layers(), TakeUp: d.runs.TakeUp, Recorders: d.runs, Dir: filepath.Join(d.cfg.Home, "sandboxes"), Most: d.cfg.Sandbox.MaxLasting,
	})
	if err != nil {
		d.log.Error("not every sandbox could be put right", "error", err)
	}
	if err := d.runs.Recover(ctx); err != nil {
		d.log.Error("not every run could be put right", "error", err)
	}
	return nil
}

// newLastingGateway makes the gateway whose ways the next server can open again.
// Guests pass through its directory to what they are to trust.
func (d *Daemon) newLastingGateway() (*gateway.Gateway, error) {
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
