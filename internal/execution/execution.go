package execution

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
)

// Request is one execution to do: a snippet in a runtime, in a fresh sandbox.
type Request struct {
	// Spec describes its sandbox. Host paths in it have been checked; an absent limit is the runtime's, and beneath that
	// the configured one.
	cove.Spec
	Language string
	Code     []byte // none of runtime.Image
	Args     []string
	// Entrypoint takes the place of the image's, with runtime.Image.
	Entrypoint []string
	Files      []provision.File
	Stdin      io.Reader // nil is empty input
	// Attachments are directories of Cove's own for work of its own. The caller closes them after Execute.
	Attachments []engine.Attachment
	// Own are the limits of work of Cove's own, which may go beyond what callers
	// may ask for; zero fields are as Limits say.
	Own cove.Limits
}

// Result is how an execution ended.
type Result struct {
	ID        cove.ExecutionID
	Language  string
	Engine    string
	ExitCode  int // 128+N for signal N; -1 when Cove ended it
	Limit     cove.LimitKind
	Killed    bool   // by Kill, or because the caller went away, or by Close
	Shutdown  bool   // Killed by Close: it may be run again
	Failure   string // why a job did not come to its end by itself, when Cove and not its program is the reason
	Usage     cove.Usage
	Models    []model.ProviderUsage // by provider
	Truncated bool
	// Unrecorded: the store could not be written to, so that the history does not have this result; it is tried again.
	Unrecorded bool
	Output     *spool.Output // what was kept, also when an Output received it; the caller releases it
	Events     []detect.Event
	Labels     map[string]string // of the request
	Limits     cove.Limits       // in force
	Started    time.Time
	Duration   time.Duration
}

// ending is why Cove ended an execution.
type ending int32

// execution is one Execute in progress.
type execution struct {
	executions *Executions
	id         cove.ExecutionID
	who        cove.Principal // who asks
	request    Request
	network    egress.Network // that the request asks for
	runtime    runtime.Runtime
	limits     cove.Limits
	engine     engine.Engine
	rootfs     engine.Rootfs
	release    func() // lets go of the image
	events     []detect.Event
	output     *collector
	turn       *turn

	cancel context.CancelFunc // ends what prepares

	mu      sync.Mutex
	route   egress.Route       // nil without a network
	sandbox *provision.Sandbox // nil until it is made
	why     ending

	dismissed chan struct{} // closed when it is over and recorded
}

// Options make Executions. All are required but NextRoute.
type Options struct {
	Engines  *engine.Set
	Defaults cove.Spec // as configured, beneath those of a request
	Images   provision.Images
	// NextRoute returns the id of a sandbox whose route may be prepared already, for the next call of OpenRoute; nil:
	// any id does.
	NextRoute     func() cove.SandboxID
	OpenRoute     func(who cove.Principal, id cove.SandboxID, of cove.ExecutionID, n egress.Network) (egress.Route, error)
	Spool         *spool.Spool // of outputs
	Store         store.Vault
	Instance      cove.InstanceID
	RunDir        string
	Bounds        runtime.Bounds
	MaxConcurrent int           // executions at once
	MaxComputing  int           // of these that keep others waiting; zero: all
	MaxQueued     int           // executions waiting for one to end
	MaxWait       time.Duration // of an execution, if its timeout is no shorter; zero: the timeout alone
	Processors    int           // that executions share; zero: one
	Pool          pool.Options  // of prepared sandboxes: its size, memory and age
	PythonModules []string      // that prepared interpreters have imported
	Grants        access.Grants // of API keys
	Retention     time.Duration // of finished executions; 0 is for ever
	Clock         clock.Clock
	Log           *slog.Logger
}

// Executions runs executions. Its methods may be called concurrently.
//
// Order of locks: mu, then execution.mu. collector.turn is held while an Output is called, and no lock
// is taken under it.
type Executions struct {
	store.Auditor
	o     Options
	queue *queue
	clean sync.WaitGroup // destructions under way
	born  time.Time      // when Executions was made, by the wall clock
	began clock.Instant  // and by the monotonic one
	calls sync.WaitGroup // of Execute, and trials; added to under mu while not closed

	trials   trials
	outcomes outcomes
	// Pool has the sandboxes that are prepared.
	Pool  *Pool
	texts texts

	mu      sync.Mutex
	running map[cove.ExecutionID]*execution
	closed  bool
	ending  bool // Close ends those that run, and those that were admitted meanwhile
}

// Position is a place in the output of an execution: how much came before it, in bytes.
type Position struct{ Stdout, Stderr int64 }

// Asked is an Output that receives the requests that wait for an answer: all of them, whenever they change, until
// Execute returns. It is called beside Stdout and Stderr, not in turn with them.
type Asked interface {
	Holds([]approval.Hold)
}

func (e *execution) currentRoute() egress.Route {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.route
}

// trials are the last attempts to use each engine.
type trials struct {
	mu   sync.Mutex
	last map[string]*trial
	work map[string]clock.Instant // when a program was last started for a caller
}

// worked notes that an engine has just made a sandbox for a caller, and that a program was started in it.
func (ts *trials) worked(eng engine.Engine, now clock.Instant) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.work[eng.Name()] = now
}

// workedSince reports whether an engine has worked for a caller since a trial began. It answers then, slowly as a trial
// may be on a busy machine.
func (ts *trials) workedSince(eng engine.Engine, began clock.Instant) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	at, ok := ts.work[eng.Name()]
	return ok && at >= began
}

// trial is one attempt to use an engine.
type trial struct {
	began clock.Instant
	done  chan struct{} // closed when err is set
	err   error
}
