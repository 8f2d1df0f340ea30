// Package doctor answers whether Cove can keep its promises on this machine. It tries each kernel feature and limit by
// using it, checks the host's defences and the engines, and reports defects with their fixes.
//
// A check is a small function in one table (table.go). Trials that need namespaces or cannot be undone run in a child
// process; the child is this program again, through [RunProbe]. Versions are read only where nothing can be tried: for
// vulnerabilities of other programs.
//
// judge.go judges the outcomes, purely: a missing feature is a failure if the default engine needs it, and a warning if
// only another engine does.
package doctor

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove/internal/dockercontext"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
)

// Status is the outcome of a check.
type Status string

const (
	OK   Status = "ok"
	Info Status = "info" // no action needed
	Warn Status = "warn" // weaker than possible, or missing for another engine
	Fail Status = "fail" // the default engine cannot hold an invariant
)

// Finding is the result of one check.
type Finding struct {
	ID     string `json:"id"`    // stable, for scripts: "limit.memory"
	Area   string `json:"area"`  // its heading
	Title  string `json:"title"` // the subject of the trial
	Status Status `json:"status"`
	Found  string `json:"found"`         // one line
	Fix    string `json:"fix,omitempty"` // commands or advice, one a line
}

// Report holds all findings and the verdict.
type Report struct {
	Version  string    `json:"version"` // of Cove
	Kernel   string    `json:"kernel"`  // release and machine
	User     string    `json:"user"`    // "root" or "uid 1000"
	Engine   string    `json:"engine"`  // the default one, which the verdict is about
	Healthy  bool      `json:"healthy"` // the default engine holds its invariants here
	Findings []Finding `json:"findings"`
}

// Options configure the examination.
type Options struct {
	Version string   // of this program
	Probe   []string // calls RunProbe with the appended arguments: this program and its hidden subcommand
	Engine  string   // the default one's name; "auto" counts as "native"
	Home    string   // Cove's state directory
	Guest   string   // path of the cove-guest program
	// Docker is the address of the daemon, and DockerErr why it is not known.
	Docker    dockercontext.Endpoint
	DockerErr error
	Podman    string   // the address of its service
	Engines   []Engine // tried by making a sandbox
	// Expires holds the ends of the API keys that have one, by their names.
	Expires map[string]time.Time
}

// Engine is an engine to try.
type Engine struct {
	Name string
	Open func(ctx context.Context) (engine.Engine, error) // the doctor closes it
	// Plan is a small sandbox in which Args can run; no Args leave the trial at opening the engine.
	Plan provision.Plan
	Args []string
}

const (
	native = "native"
	docker = "docker"
	podman = "podman"
)
