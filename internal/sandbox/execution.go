// Package sandbox is the life of sandboxes: it admits executions, has an
// engine make a sandbox for each, runs the code, watches the limits, keeps the
// record, and cleans up. It knows contracts only.
package sandbox

import (
	"io"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Request is one execution to do: a snippet in a runtime, in a fresh sandbox.
type Request struct {
	Language string
	Code     []byte
	Args     []string
	Files    []File
	Env      map[string]string
	Stdin    io.Reader // nil is empty input
	WorkDir  string    // host directory, checked; attached at cove.Workspace
	Mounts   []cove.Mount
	Image    string      // empty is the engine's default, "host"
	Engine   string      // empty is the configured default
	Limits   cove.Limits // zero fields take the runtime's default
	Network  Network
	// Own are the limits of work of Cove's own, which may go beyond what callers
	// may ask for; zero fields are as Limits say.
	Own cove.Limits
}

// Network is what an execution may reach. The zero Network is nothing.
type Network struct {
	Mode   cove.NetworkMode
	Policy []*policy.Document // merged first to last; they state Mode
	// Credentials are the names of those that are set on its requests.
	Credentials []string
	// Remote is the repository whose requests get the credential that the machine
	// itself has for it, and PullRequests says that so does the API that opens
	// them.
	Remote       string
	PullRequests bool
	// Providers are the names of model providers that it may use.
	Providers []string
	Budget    model.Budget // for models
}

// File is placed under cove.WorkDir.
type File struct {
	Path string // relative, clean
	Mode uint32 // permission bits
	Data []byte
}

// Output receives what the program writes, as it comes, already limited. It
// is called from one goroutine at a time; a slow Output slows the program.
type Output interface {
	Stdout(p []byte) error
	Stderr(p []byte) error
}

// DeniedRule is the rule of security events about what a program wanted to
// reach and policy did not allow; their detail is the place.
const DeniedRule = "network_denied"

// Result is how an execution ended.
type Result struct {
	ID        cove.ExecutionID
	Language  string
	Engine    string
	ExitCode  int // 128+N for signal N; -1 when Cove ended it
	Limit     cove.LimitKind
	Killed    bool // by Kill, or because the caller went away
	Usage     cove.Usage
	Models    []model.ProviderUsage // by provider
	Truncated bool
	Stdout    []byte // what was kept, also when an Output received it
	Stderr    []byte
	Events    []detect.Event
	Started   time.Time
	Duration  time.Duration
}
