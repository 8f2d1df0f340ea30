package sandbox

import (
	"cmp"
	"context"
	"net"
	"path"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Inside is a running sandbox, for starting processes in it.
type Inside struct {
	store.Sandbox
	Within  cove.SandboxID // the sandbox that contains a checkout; empty for a sandbox
	Place   string         // of the checkout, inside
	Guest   *provision.Sandbox
	Env     []string        // of every process, before what it asks for itself
	Dir     string          // where processes begin
	Stopped <-chan struct{} // closed when it does not run any more

	terminals *terminals.Set
	git       workGit
	route     egress.Route // nil without a network
	cpu       *cpuMeter
	disks     workspace.Disks
}

// diskIsFull reports whether the kernel lets the sandbox store nothing more in its workspace and home.
func (in Inside) diskIsFull() bool {
	full, err := in.disks.Full(cmp.Or(in.Within, in.ID))
	return err == nil && full
}

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
	// NewMeter returns what counts the CPU time of one companion for the sandbox's owner, each time that it is called.
	NewMeter func() func(context.Context, engine.Sandbox)
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

// environment returns the environment of a process with variables of its own; a later value wins.
func (in Inside) environment(asked map[string]string, more ...string) []string {
	env := append(slices.Clone(in.Env), more...)
	return rootfs.LastWins(rootfs.WithVariables(env, asked))
}

// place returns the directory in which a process starts.
func (in Inside) place(asked string) string {
	switch {
	case asked == "":
		return in.Dir
	case path.IsAbs(asked):
		return asked
	}
	return path.Join(in.Dir, asked)
}

// workGit is git on a sandbox's repository.
type workGit interface {
	// Snapshot puts work that is not committed where ref leads, as a commit;
	// where everything is committed the ref goes.
	Snapshot(ctx context.Context, ref string) error
	// Send starts "git upload-pack" on the repository. asIs has it send objects as they are, and not as differences to
	// others. done is called once the process has ended, or has been ended.
	Send(ctx context.Context, asIs bool) (p *process.Process, done func(), err error)
}
