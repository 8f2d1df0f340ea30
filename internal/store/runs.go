package store

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/message"
)

// Runs remembers what agents were given to do, and what became of it. What they
// say is not in it.
type Runs interface {
	// AddRun records one that begins. Errors: Conflict when its id is known.
	AddRun(ctx context.Context, r Run) error
	// Run returns one. Errors: NotFound.
	Run(ctx context.Context, id cove.RunID) (Run, error)
	// ChangeRun changes one at once, but for its id, agent, client and beginning,
	// which stay whatever change does. Errors: NotFound, change's.
	ChangeRun(ctx context.Context, id cove.RunID, change func(*Run) error) error
	// Runs returns a page, newest first.
	Runs(ctx context.Context, q RunQuery) (RunPage, error)
	// RemoveRun forgets one that has ended. Errors: NotFound, Conflict.
	RemoveRun(ctx context.Context, id cove.RunID) error
}

// Run is the record of a task that an agent was given.
type Run struct {
	api.Run
	Spec RunSpec
}

// Owner returns the principal that asked for the run.
func (r Run) Owner() cove.Principal { return cove.ParsePrincipal(r.CreatedBy) }

// RunSpec is what a server needs to go on with a run that another has begun.
type RunSpec struct {
	Own      bool      // its sandbox was made for it
	Box      string    // the sandbox that its sandbox is within; empty where it is none but itself
	Keep     bool      // that sandbox stays
	Dir      string    // inside, for files of this run alone
	Schema   []byte    // of the result; nil is none
	Deadline time.Time // by when it has ended
	Terminal string    // of an interactive one
	// Before is what earlier runs of the conversation have used.
	Before message.AgentUsage
}

// RunQuery selects runs.
type RunQuery struct {
	ID      string // the beginning of it
	Agent   string
	Status  string
	Sandbox string // its id
	Client  string // who asked for it
	Cursor  string // RunPage.Next of the page before; a malformed one is InvalidArgument
	Limit   int    // 1 to 500
}

// RunPage is a page of runs.
type RunPage struct {
	Runs []Run
	Next string // empty on the last page
}
