package sandbox

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// HiddenGit describes a sandbox whose repository stays outside.
type HiddenGit struct {
	ID        cove.SandboxID
	Name      string
	Owner     cove.Principal
	Workspace workspace.Workspace
	Dir       string // for what is kept for it, as long as the sandbox is there
	// Network returns the present network of the sandbox.
	Network func(context.Context) (egress.Network, error)
	// Audit records what it had git do; err is why that was refused or failed.
	Audit func(args []string, err error)
}

// GitService is git for such a sandbox; package gitservice implements it.
type GitService interface {
	// Bind adds to a binding what the sandbox is shown, except the listener. The
	// caller closes the binding, also on error.
	Bind(*engine.Binding) error
	Listen() guest.Listen
	// Programs is the directory inside that has git, to be the first of PATH.
	Programs() string
	// Serve serves until ctx ends, and then waits for what runs. It closes ln, and the service.
	Serve(ctx context.Context, ln net.Listener)
	workGit
	// Close ends the running git where Serve has not been called.
	Close()
}

// services returns the services of a sandbox, always in the same order, by which another process finds their sockets.
// The services add their files to b, which is nil for a running sandbox.
func (v *supervisor) services(ctx context.Context, record store.Sandbox, ws workspace.Workspace,
	b *engine.Binding) ([]service, error) {
	all := servicesOf(record.Spec)
	if ws.Hidden == "" {
		return all, nil
	}
	git, err := v.openGit(ctx, record, ws)
	if err != nil {
		return nil, err
	}
	if b != nil {
		if err := git.Bind(b); err != nil {
			git.Close()
			return nil, err
		}
	}
	return append(all, service{listen: git.Listen(), front: git.Programs(), serve: git.Serve, git: git}), nil
}

// openGit makes git for a sandbox whose repository stays outside.
func (v *supervisor) openGit(ctx context.Context, record store.Sandbox, ws workspace.Workspace) (GitService, error) {
	if v.host.Git == nil {
		return nil, cove.Errorf(cove.Unsupported, "a worktree needs git beside the sandbox, which is not available here").
			WithHint("leave out --worktree")
	}
	return v.host.Git.OpenGit(ctx, HiddenGit{
		ID: record.ID, Name: record.Name, Owner: record.Owner, Workspace: ws, Dir: filepath.Join(v.dirOf(record.ID), "git"),
		Network: func(ctx context.Context) (egress.Network, error) {
			now, err := v.o.Store.For(record.Owner).Sandbox(ctx, record.ID)
			if err != nil {
				return egress.Network{}, err
			}
			return v.networkOf(now)
		},
		Audit: func(args []string, err error) {
			r := auditRecord("git", record.ID, fmt.Sprintf("%.500q", args), err)
			if cove.ErrorCode(err) == cove.Forbidden {
				r.Verdict = "deny"
			}
			v.Audit(context.Background(), cove.InSandbox(record.Name), r)
		},
	})
}

// servicesAgain returns the services of a sandbox that runs already. A service that cannot be opened answers nothing.
func (v *supervisor) servicesAgain(record store.Sandbox) ([]service, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adoptTimeout)
	defer cancel()
	ws, err := v.host.Workspaces.Open(ctx, record.ID)
	var all []service
	if err == nil {
		all, err = v.services(ctx, record, ws, nil)
	}
	if err != nil {
		all = servicesOf(record.Spec)
		if ws.Hidden != "" {
			all = append(all, service{serve: func(_ context.Context, ln net.Listener) { ln.Close() }})
		}
	}
	return all, err
}
