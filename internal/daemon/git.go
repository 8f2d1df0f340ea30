package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/gitservice"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// newGitRoot makes the root filesystem for git of hidden repositories, in place of an earlier server's. It is in the
// home, beside images: the run directory may be a tmpfs, which has no idmapped mounts before Linux 6.3.
func newGitRoot(home, guest string) (engine.Rootfs, error) {
	dir := filepath.Join(home, "git-root")
	if err := os.RemoveAll(dir); err != nil {
		return engine.Rootfs{}, cove.Errorf(cove.StorageFull, "make a root filesystem with git: %w", err)
	}
	return gitservice.MakeRoot(dir, guest)
}

// gitBeside opens git for sandboxes whose repository stays outside.
type gitBeside struct {
	engines *engine.Set
	gateway func() (*gateway.Gateway, error)
	guest   string                        // path of cove-guest
	root    func() (engine.Rootfs, error) // made once
	log     *slog.Logger
}

// newGitBeside returns b with its root filesystem, which is made in the home at its first use.
func newGitBeside(home string, b gitBeside) *gitBeside {
	b.root = sync.OnceValues(func() (engine.Rootfs, error) { return newGitRoot(home, b.guest) })
	return &b
}

// OpenGit implements sandbox.Git. Any engine with companions runs it, whichever engine runs the sandbox itself.
func (b *gitBeside) OpenGit(ctx context.Context, h sandbox.HiddenGit) (sandbox.GitService, error) {
	eng, err := b.engines.Able(gitservice.Able)
	if err != nil {
		return nil, err
	}
	root, err := b.root()
	if err != nil {
		return nil, err
	}
	git, err := hostgit.Find()
	if err != nil {
		return nil, err
	}
	o := gitservice.Options{
		Engine: eng, Root: root, Git: git, Guest: b.guest, Workspace: h.Workspace, Dir: h.Dir, Audit: h.Audit,
		NewMeter: h.NewMeter, Clock: clock.Real(), Log: b.log,
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
			g, err := b.gateway()
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
