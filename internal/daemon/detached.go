package daemon

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/image"
	imagefiles "github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/sandbox"
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
		Workspaces: workspaces, Disks: workspaces.Disks(), WatchedDisks: d.cfg.Sandbox.Lasting.WatchedDisks,
		Throughput: engine.Throughput{Bytes: d.cfg.Sandbox.Lasting.Throughput.MBPerSecond << 20,
			Operations: d.cfg.Sandbox.Lasting.Throughput.Operations},
		Layers: d.agents.Layers(), Pins: image.PinsOf(d.images), Routes: routes{g, d.outlet.GitHub}, Successor: d.runs,
		Recorders: d.runs,
		Git: newGitBeside(d.cfg.Home, gitBeside{engines: d.engines, gateway: d.openGateway,
			guest: GuestPath(d.cfg), log: d.log}),
		Dir: filepath.Join(d.cfg.Home, "sandboxes"), Most: d.cfg.Sandbox.MaxLasting,
		Works: d.work, Idle: sandbox.Idle{Stop: d.cfg.Sandbox.Lasting.IdleStop.Std(),
			Remove: d.cfg.Sandbox.Lasting.IdleRemove.Std()},
	})
	if err != nil {
		d.log.Error("not every sandbox could be put right", "error", err)
	}
	if err := d.runs.Recover(ctx); err != nil {
		d.log.Error("not every run could be put right", "error", err)
	}
	return nil
}

// newDetachedGateway makes the gateway whose routes the next server can open again. Guests pass through its directory
// to the authorities that they trust.
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

func (d *Daemon) newRepos() (*repos.Store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "find this program: %w", err)
	}
	return repos.Open(repos.Options{Home: d.cfg.Home, Outlet: d.outlet, Tree: imagefiles.Over(local.FindIDs(), self).Tree,
		MaxMirrors: int64(d.cfg.Disk.RepositoriesMB) << 20, Log: d.log})
}

// dropUploads removes uploads that no sandbox takes, until ctx ends.
func dropUploads(ctx context.Context, home string) {
	for {
		repos.DropUploads(home, time.Now())
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
			return
		}
	}
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
func (r repositories) FetchMirror(ctx context.Context, who cove.Principal, source string, partial bool,
	progress func(workspace.Step)) (repos.Mirror, error) {
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

// Receive implements httpapi.Repositories.
func (r repositories) Receive(ctx context.Context, who cove.Principal, from repos.Sending, pack io.Reader) (
	cove.UploadID, int64, error) {
	s, err := r.open()
	if err != nil {
		return "", 0, err
	}
	return s.Receive(ctx, who, from, pack)
}
