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
	"github.com/cove-sandbox/cove/internal/engine"
)

// Request is one execution to do: a snippet in a runtime, in a fresh sandbox.
type Request struct {
	// Spec is what its sandbox must be. Host paths in it have been checked; limits take
	// the runtime's default, and beneath that the configured one.
	cove.Spec
	Language string
	Code     []byte
	Args     []string
	Files    []File
	Stdin    io.Reader // nil is empty input
	// Attachments are what work of Cove's own is shown. They are the caller's to
	// close, once Execute has returned.
	Attachments []engine.Attachment
	// Own are the limits of work of Cove's own, which may go beyond what callers
	// may ask for; zero fields are as Limits say.
	Own cove.Limits
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
	Labels    map[string]string // of the request
	Started   time.Time
	Duration  time.Duration
}
