package sandbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Options make Sandboxes. All are required.
type Options struct {
	Engines  *engine.Set // Close closes them
	Defaults cove.Spec   // as configured, beneath those of a request
	Images   provision.Images
	Store    store.Vault
	Bounds   runtime.Bounds
	Grants   access.Grants // of API keys
	Places   Places
	Clock    clock.Clock
	Log      *slog.Logger
}

// Places counts what principals have at once, and knows what they have used; execution.Executions does.
type Places interface {
	// Hold counts a command or a terminal of the principal's until release is called, which may be called again; one that
	// goes on already is counted in any case. Errors: Overloaded.
	Hold(ctx context.Context, who cove.Principal, already bool) (release func(), err error)
	// Spare refuses work where the principal's CPU time is used up. Errors: Overloaded.
	Spare(ctx context.Context, who cove.Principal) error
	// Charge returns a context whose runs of git on the host count in the principal's CPU time once done is called.
	Charge(ctx context.Context, who cove.Principal) (charged context.Context, done func())
}

// Host holds the services of the server for its sandboxes. All are required but those that may be nil.
type Host struct {
	Workspaces workspace.Workspaces
	Disks      workspace.Disks // of the workspaces
	Layers     Layers
	Pins       Pins
	Routes     Routes
	Git        Git                 // nil refuses worktrees
	Successor  Successor           // nil ends the processes of an earlier server
	Recorders  terminals.Recorders // nil records no terminal
	Dir        string              // for files that sandboxes are shown; made on demand
	Most       int                 // sandboxes at a time; 0 is no bound
	Works      Works               // nil destroys no idle sandbox with a repository
	Idle       Idle
	// WatchedDisks lets callers other than the machine's owner have sandboxes whose disk the kernel does not bound.
	WatchedDisks bool
	Throughput   engine.Throughput // of each sandbox's disk; its Device is that of the sandbox
}

// Routes opens the egress routes of sandboxes.
type Routes interface {
	// OpenRoute opens a route that the next server can open again, with the authority that the sandbox trusts.
	OpenRoute(who cove.Principal, id cove.SandboxID, name string, n egress.Network) (egress.Route, error)
	// CheckRoute refuses a network that names what is not there. Errors: InvalidArgument, NotFound.
	CheckRoute(who cove.Principal, n egress.Network) error
	// OpenBeside opens a route of a companion of a sandbox, under an id of its own, which the next server cannot open
	// again; its questions are the sandbox's.
	OpenBeside(who cove.Principal, id cove.SandboxID, of store.Sandbox, n egress.Network) (egress.Route, error)
	// ForgetRoute removes the files from which the next server would open a route.
	ForgetRoute(cove.SandboxID) error
	// RepositoryNetwork returns the network that work on a repository with a remote needs: for the machine's owner with
	// the machine's credentials.
	RepositoryNetwork(who cove.Principal, of store.SandboxRepository, allowPR bool) (egress.Network, error)
}

// Git opens git for sandboxes whose repository stays outside.
type Git interface {
	OpenGit(context.Context, HiddenGit) (GitService, error)
}

// Successor receives each Process of an earlier server when its sandbox is adopted.
type Successor interface {
	TakeUp(LeftProcess) // must not wait
	// Unlisted receives a sandbox that has not told of its Processes, which may run in it all the same.
	Unlisted(cove.SandboxID)
}

// Layers finds the installed programs of agents.
type Layers interface {
	// Place returns the directory of a layer (cove.Layer). Errors: NotFound, RuntimeMissing.
	Place(layer string) (hostpath.Own, error)
}

// Pins keep images whose changes are kept for a sandbox, while the sandbox exists.
type Pins interface {
	// Pin keeps an image, which is held, from being removed. Errors: StorageFull.
	Pin(digest string, by cove.SandboxID) error
	// Unpin ends that. An image that is not pinned, or not there, is no error.
	Unpin(digest string, by cove.SandboxID) error
}

// Idle says after which time without use a sandbox is stopped, or destroyed; zero is never.
type Idle struct{ Stop, Remove time.Duration }

// Works looks into the work of sandboxes.
type Works interface {
	// Holds reports whether a sandbox has work that was neither pushed nor applied.
	Holds(ctx context.Context, who cove.Principal, ref string) (bool, error)
}

// due returns what is to be done with a sandbox if nothing runs in it. It is pure.
func (i Idle) due(record store.Sandbox, now time.Time) (stop, remove bool) {
	age := now.Sub(record.LastUsedAt)
	runs := record.State == cove.StateRunning
	stop = i.Stop > 0 && age >= i.Stop && runs
	remove = i.Remove > 0 && age >= i.Remove && (runs || record.State == cove.StateStopped)
	return stop, remove
}
