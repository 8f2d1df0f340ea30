// Package run gives agents tasks: it makes or finds a sandbox, starts the agent's program, parses its output into
// messages, and records the run with its outcome.
//
// The output of an agent is written to disk before anything else. Messages are derived from the file alone, and
// followers read the file: so a slow follower does not delay an agent, and the next server continues where the last one
// died.
package run

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
	"github.com/cove-sandbox/cove/message"
)

// Agents knows agents.
type Agents interface {
	// Equip finds an agent, and what a sandbox needs for it; with missing it need not be installed. Errors: NotFound,
	// RuntimeMissing, InvalidArgument, Unsupported.
	Equip(q fit.Want, missing bool) (fit.Equipment, error)
	// Install installs an agent that is missing; the steps are told to progress.
	Install(ctx context.Context, q fit.Want, progress func(workspace.Step)) (fit.Equipment, error)
	// Ready tries the credentials of the agent's models in a network, and its budget: see fit.Agents.
	Ready(ctx context.Context, who cove.Principal, e fit.Equipment, n *cove.Network) error
}

// Work gives access to the work of sandboxes on the host.
type Work interface {
	// Changes lists what a sandbox has changed. Errors: InvalidArgument when it works on no repository.
	Changes(ctx context.Context, who cove.Principal, ref string) ([]store.FileChange, error)
	Patch(ctx context.Context, who cove.Principal, ref string, out io.Writer) error
	// Holds reports whether a sandbox has work that is nowhere else, on any branch. Errors: those of Changes.
	Holds(ctx context.Context, who cove.Principal, ref string) (bool, error)
}

// Places counts what principals have at once; execution.Executions does.
type Places interface {
	// Hold counts a run of the principal's until release is called, which may be called again; one that goes on already
	// is counted in any case. Errors: Overloaded.
	Hold(ctx context.Context, who cove.Principal, already bool) (release func(), err error)
}

// Options make a Runner. All but Bounds and MaxOutput are required.
type Options struct {
	Sandboxes *sandbox.Sandboxes
	Processes *sandbox.Processes
	Agents    Agents
	Work      Work
	Places    Places
	Store     store.Vault
	Flush     func() // writes decisions to Store that are not written yet
	Dir       string // of the records; made when it is needed
	Bounds    Bounds // of their files
	MaxOutput uint64 // bytes that an agent may print; 256 MiB if 0
	Clock     clock.Clock
	Log       *slog.Logger
}

// Bounds limit the files of runs. Beyond them those of the runs that ended first go, and the records of these runs
// stay.
type Bounds struct {
	Size int64 // bytes of all; 0 is no bound
	Free int64 // bytes that the disk should have left; 0 is no bound
}

// Request is a task for an agent.
type Request struct {
	ID       cove.RunID // made up when empty
	Task     agent.Task // without Dir and Session
	Agent    string
	Timeout  time.Duration // 0 is DefaultTimeout
	Resume   string        // an earlier run, whose conversation goes on in its sandbox
	Sandbox  string        // to work in; empty is a new one
	New      sandbox.Request
	Provider string // of models, and how they are got at; see fit.Want
	Access   string
	Keep     bool // a new one stays, also when there is no work in it
	Ends     bool // a new one ends with the run, whatever has changed in it
	Detach   bool // it goes on when the caller leaves
	Progress func(workspace.Step)

	before    message.AgentUsage // of the conversation
	directory string             // of the machine, that the conversation is about; with bind, it works in it itself
	bind      bool
	tokens    bool          // are in the sandbox, which is there
	hooks     bool          // of the agent were brought into it
	network   *cove.Network // of it
}

const (
	// DefaultTimeout is how long a run may take where nothing else is said, and MaxTimeout how long at most.
	DefaultTimeout = 30 * time.Minute
	MaxTimeout     = 7 * 24 * time.Hour

	// interruptGrace is how long an agent that was asked to stop may take to say what it has.
	interruptGrace = 15 * time.Second
)

// refusalGrace is how long an agent may take to end by itself, with its own message, when its models refuse its
// credential or are not reached. A provider that is started anew is up again within it.
var refusalGrace = 10 * time.Second

// newDefaults apply to a sandbox that is made for a run.
var newDefaults = cove.Spec{Shape: cove.Shape{Limits: cove.Limits{Memory: 2 << 30, CPUs: 2, PIDs: 512}}}

// RunLabel is the label of a sandbox that was made for a run: its id.
const RunLabel = "cove.run"

// Runner has the runs of a server.
type Runner struct {
	o Options

	takingUp sync.Mutex // held while a program is taken up; taken before mu

	mu       sync.Mutex
	live     map[cove.RunID]*live
	left     map[cove.RunID]sandbox.LeftProcess // until they are taken up
	unlisted map[cove.SandboxID]bool            // that have not told of their programs
	ended    map[cove.RunID]error               // why a left program was ended, until its run is concluded
	screens  map[cove.RunID]bool                // runs in terminals that are recorded here
	ready    bool                               // Recover has been called
	closed   bool
	running  sync.WaitGroup // of live; added to under mu while not closed

	begins beginnings
	ends   ends
}

// New makes a Runner, which is to be told of what is left of runs (TakeUp) and then to Recover.
func New(o Options) *Runner {
	if o.MaxOutput == 0 {
		o.MaxOutput = 256 << 20
	}
	return &Runner{o: o, begins: beginnings{dir: o.Dir, here: map[cove.RunID]bool{}}, live: map[cove.RunID]*live{},
		left: map[cove.RunID]sandbox.LeftProcess{}, unlisted: map[cove.SandboxID]bool{}, ended: map[cove.RunID]error{},
		screens: map[cove.RunID]bool{}, ends: newEnds(o.Store, o.Log)}
}

// Leave stops beginning and concluding runs, which the next server does. Callers call it before they close the
// sandboxes.
func (r *Runner) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Close waits for the Runner's work to end. Callers call it after they have closed the sandboxes, whose programs go on
// without a server.
func (r *Runner) Close() {
	r.Leave()
	r.running.Wait()
	r.ends.Retry(context.Background()) // what it cannot write, the next server concludes anew
}

func (r *Runner) leaves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// enter makes a run live.
func (r *Runner) enter(l *live) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosing
	}
	r.live[l.id] = l
	r.running.Add(1)
	return nil
}

func (r *Runner) leave(l *live) {
	r.mu.Lock()
	delete(r.live, l.id)
	r.mu.Unlock()
	l.release()
	r.running.Done()
}

func (r *Runner) liveOf(id cove.RunID) *live {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[id]
}

// has reports whether a run is live, or is about to be, or its end waits for the store.
func (r *Runner) has(id cove.RunID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, left := r.left[id]
	return left || r.live[id] != nil || r.screens[id] || r.ends.has(id)
}

var errClosing = cove.Errorf(cove.Shutdown, "the server shuts down; the run goes on").
	WithHint("the next one goes on with it: cove runs list")

// find returns a run of a caller's as it is known here, by its id or the beginning of it that no other has.
func (r *Runner) find(ctx context.Context, who cove.Principal, ref string) (store.Run, error) {
	q := store.RunQuery{ID: ref, Limit: 2}
	if ref == "" {
		return store.Run{}, noRun(ref)
	}
	page, err := r.o.Store.For(who).Runs(ctx, q)
	if err == nil && len(page.Runs) == 0 && !strings.HasPrefix(ref, "ru_") {
		q.ID = "ru_" + ref
		page, err = r.o.Store.For(who).Runs(ctx, q)
	}
	switch {
	case err != nil:
		return store.Run{}, err
	case len(page.Runs) == 0:
		return store.Run{}, noRun(ref)
	case len(page.Runs) > 1:
		return store.Run{}, cove.Errorf(cove.Conflict, "%.80q may be several runs", ref).WithHint("say more of the id")
	}
	return r.ends.known(page.Runs[0]), nil
}

func noRun(ref string) error {
	return cove.Errorf(cove.NotFound, "there is no run %.80q", ref).
		WithHint("\"cove runs list\" shows those that there are")
}

// failureOf returns an error in the form of a record.
func failureOf(err error) *store.Failure {
	if err == nil {
		return nil
	}
	code := string(cove.ErrorCode(err))
	return &store.Failure{Code: code, Error: cove.ErrorMessage(err), Hint: cove.ErrorHint(err)}
}

// boxOf is the sandbox that has the wall of a run: the one that its own is within, or its own.
func boxOf(record store.Run) string { return cmp.Or(record.Spec.Box, record.Sandbox) }

func (r *Runner) dirOf(id cove.RunID) string { return filepath.Join(r.o.Dir, string(id)) }

// live is a run whose program this server has.
type live struct {
	id         cove.RunID
	provider   string // of its models; empty where it is not known
	r          *Runner
	release    func() // ends its being counted
	transcript *transcript
	parser     agent.Parser
	schema     []byte // of the answer; nil is none
	process    *sandbox.Process
	lines      lines
	skip       int // messages that are in the transcript already
	tail       tail
	broken     error         // of what it has printed for an earlier server
	stops      chan asked    // holds one value
	done       chan struct{} // closed when nothing follows

	mu     sync.Mutex
	record store.Run        // what the messages have said so far
	result *message.Message // the agent's
	misfit error            // why that is not valid by the schema
	err    error            // why nothing follows, where the run has not ended
}
