// Package doctor owns the answer to "will Cove hold its promises on this
// machine": it tries each kernel feature and limit by using it, looks at the
// host's defences and the engines, and says what is wrong and how to put it
// right.
//
// A check is a small function in one table (table.go). It tries things in a
// child process where they need namespaces or cannot be taken back; the child
// is this program again, through [RunProbe]. Versions are read only where
// nothing can be tried: the holes of somebody else's program.
//
// What a check finds is judged in judge.go, purely: a feature that the default
// engine needs is a failure when it is missing, and a warning when only another
// engine needs it.
package doctor

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
)

// Status is how a check ended.
type Status string

const (
	OK   Status = "ok"
	Info Status = "info" // worth knowing, nothing to do
	Warn Status = "warn" // weaker than it could be, or missing for another engine
	Fail Status = "fail" // the default engine cannot hold an invariant
)

// Finding is what one check found.
type Finding struct {
	ID     string `json:"id"`    // stable, for scripts: "limit.memory"
	Area   string `json:"area"`  // heading it stands under
	Title  string `json:"title"` // what was tried
	Status Status `json:"status"`
	Found  string `json:"found"`         // one line
	Fix    string `json:"fix,omitempty"` // commands or advice, one a line
}

// Report is all findings and the verdict.
type Report struct {
	Version  string    `json:"version"` // Cove's
	Kernel   string    `json:"kernel"`  // release and machine
	User     string    `json:"user"`    // "root" or "uid 1000"
	Engine   string    `json:"engine"`  // the default one, which the verdict is about
	Healthy  bool      `json:"healthy"` // the default engine holds its invariants here
	Findings []Finding `json:"findings"`
}

// Options say what is examined.
type Options struct {
	// Version is this program's.
	Version string
	// Probe is the command that calls RunProbe with the arguments appended:
	// this program and its hidden subcommand.
	Probe []string
	// Engine is the default engine's name; "auto" counts as "native".
	Engine string
	// Home is where Cove keeps its state.
	Home string
	// Guest is the path of the cove-guest program.
	Guest string
	// Docker is the engine's socket; empty is the usual place.
	Docker string
	// Engines are tried by making a sandbox.
	Engines []Engine
}

// Engine is an engine to try.
type Engine struct {
	Name string
	// Open makes the engine; the doctor closes it.
	Open func(ctx context.Context) (engine.Engine, error)
	// Plan is a small sandbox in which Args can run; no Args leave the trial at
	// opening the engine.
	Plan provision.Plan
	Args []string
}

const (
	native = "native"
	docker = "docker"
)

// atOnce is how many checks run together: they mostly wait for processes.
const atOnce = 4

// patience bounds one check.
const patience = 20 * time.Second

// Run makes every check. It fails nothing: what cannot be found out is a
// finding, too.
func Run(ctx context.Context, o Options) Report {
	if o.Engine == "" || o.Engine == "auto" {
		o.Engine = native
	}
	h := newHost(o)
	defer h.close()
	all := append(checks(), engineChecks(o)...)
	findings := make([]Finding, len(all))
	gate := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i, c := range all {
		gate <- struct{}{}
		wait.Go(func() {
			defer func() { <-gate }()
			// Children die with the thread that started them (Pdeathsig), and
			// threads that have entered a control group end.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			findings[i] = c.finding(c.run(ctx, h), o.Engine)
		})
	}
	wait.Wait()
	return Report{
		Version: o.Version, Kernel: h.kernel(), User: h.user(), Engine: o.Engine,
		Healthy: healthy(findings), Findings: findings,
	}
}
