package daemon

import (
	"context"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/gitservice"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// newGitRoot makes the root filesystem that git of hidden repositories has, in place
// of an earlier server's. It is in the home, beside images: the run directory may be
// a tmpfs, which has no idmapped mounts before Linux 6.3.
func (d *Daemon) newGitRoot() (engine.Rootfs, error) {
	dir := filepath.Join(d.cfg.Home, "git-root")
	if err := os.RemoveAll(dir); err != nil {
		return engine.Rootfs{}, cove.Errorf(cove.StorageFull, "make a root filesystem with git: %w", err)
	}
	return gitservice.MakeRoot(dir, GuestPath(d.cfg))
}

// openGit makes git for a sandbox whose repository is not inside. Any engine that
// can have companions runs it, whichever engine the sandbox itself is of.
func (d *Daemon) openGit(ctx context.Context, h sandbox.HiddenGit) (sandbox.GitService, error) {
	eng, err := d.engines.Able(gitservice.Able)
	if err != nil {
		return nil, err
	}
	root, err := d.openGitRoot()
	if err != nil {
		return nil, err
	}
	git, err := hostgit.Find()
	if err != nil {
		return nil, err
	}
	o := gitservice.Options{
		Engine: eng, Root: root, Git: git, Guest: GuestPath(d.cfg), Workspace: h.Workspace, Dir: h.Dir, Audit: h.Audit,
		Clock: clock.Real(), Log: d.log,
	}
	n, err := h.Network(ctx)
	if err != nil {
		return nil, err
	}
	if o.Force, err = policy.MayForce(n.Policy, h.Workspace.Remote); err != nil {
		return nil, err
	}
	if h.Workspace.Remote != "" && n.Mode != cove.NetworkNone {
		o.OpenRoute = func(id cove.SandboxID) (gitservice.Route, error) {
			n, err := h.Network(context.Background())
			if err != nil {
				return nil, err
			}
			g, err := d.openGateway()
			if err != nil {
				return nil, err
			}
			s := spec(h.Owner, id, h.Name, n)
			s.Object = string(h.ID)
			return g.Open(s)
		}
	}
	return gitservice.Open(ctx, o)
}
