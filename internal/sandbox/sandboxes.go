// Package sandbox manages long-lived sandboxes: it provisions them from a request, with a workspace and an egress
// route, starts, stops, pauses and destroys them, adopts those of an earlier server, and runs commands, terminals and
// agents' programs in them. It knows contracts only.
//
// Its types build on each other, and call downward only:
//
//	Processes    commands, terminals and programs inside
//	Sandboxes    the life cycle that callers ask for, and checkouts in shared sandboxes
//	reconciler   removal, and records that fit what runs
//	supervisor   the running part of a sandbox: engine, route, services, programs
//	records      the recorded part
//	residents    the sandboxes that this process holds, and their locks
//
// Order of locks: Sandboxes.sharing, then the turn of a checkout, then the turn of the sandbox that it is in, then mu.
// Nothing is waited for under mu.
package sandbox

import (
	"context"
	"log/slog"
	"time"

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

// Sandboxes manages the long-lived sandboxes of a machine. Its methods may be called concurrently.
type Sandboxes struct {
	*reconciler
	sharing chan struct{} // holds one value: its holder looks for shared sandboxes, and makes them
}

// New makes Sandboxes, which show what is recorded until Adopt.
func New(o Options) *Sandboxes {
	rs := &residents{
		Auditor: store.Auditor{Store: o.Store, Clock: o.Clock, Log: o.Log},
		o:       o, held: map[cove.SandboxID]*resident{}, ended: make(chan struct{}),
	}
	return &Sandboxes{
		reconciler: &reconciler{&supervisor{records: &records{rs}}},
		sharing:    make(chan struct{}, 1),
	}
}

// Adopt makes this process the one that holds the sandboxes, of which there may be one at a time: it corrects the
// records, takes over the sandboxes that run, and finishes what other servers have begun. It is called once. An error
// names the sandboxes for which that failed; the others are held.
func (s *Sandboxes) Adopt(ctx context.Context, with Host) error {
	s.mu.Lock()
	s.host = &with
	s.mu.Unlock()
	err := s.reconcile(ctx)
	s.mu.Lock()
	s.owner = true
	s.mu.Unlock()
	return err
}

// RunReconciler reconciles records and sandboxes at every interval until ctx ends.
func (s *Sandboxes) RunReconciler(ctx context.Context, interval time.Duration) {
	for {
		if s.owns() == nil {
			s.reconcile(ctx) // which logs its errors
		}
		timer := s.o.Clock.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Close stops changes of sandboxes, waits for those under way until ctx ends, and closes the engines. The sandboxes run
// on, without a route until another server adopts them.
func (s *Sandboxes) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	defer s.end()
	defer context.AfterFunc(ctx, s.end)()
	s.calls.Wait() // their records are written last
	s.leave()
	defer s.serving.Wait() // they end with the connections to their guests
	return s.o.Engines.Close()
}
