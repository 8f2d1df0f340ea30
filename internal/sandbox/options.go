package sandbox

import (
	"context"
	"log/slog"

	"github.com/cove-sandbox/cove"
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
	Clock    clock.Clock
	Log      *slog.Logger
}

// Host holds the services of the server for its sandboxes. All are required but those that may be nil.
type Host struct {
	Workspaces workspace.Workspaces
	Layers     Layers
	Routes     Routes
	Git        Git                 // nil refuses worktrees
	Successor  Successor           // nil ends the processes of an earlier server
	Recorders  terminals.Recorders // nil records no terminal
	Dir        string              // for files that sandboxes are shown; made on demand
	Most       int                 // sandboxes at a time; 0 is no bound
}

// Routes opens the egress routes of sandboxes.
type Routes interface {
	// OpenRoute opens a route that the next server can open again, with the authority that the sandbox trusts.
	OpenRoute(who cove.Principal, id cove.SandboxID, name string, n egress.Network) (egress.Route, error)
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
}

// Layers finds the installed programs of agents.
type Layers interface {
	// Place returns the directory of a layer (cove.Layer). Errors: NotFound, RuntimeMissing.
	Place(layer string) (hostpath.Own, error)
}
