package execution

import (
	"io"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
)

// Request is one execution to do: a snippet in a runtime, in a fresh sandbox.
type Request struct {
	// Spec describes its sandbox. Host paths in it have been checked; an absent limit is the runtime's, and beneath that
	// the configured one.
	cove.Spec
	Language string
	Code     []byte
	Args     []string
	Files    []provision.File
	Stdin    io.Reader // nil is empty input
	// Attachments are directories of Cove's own for work of its own. The caller closes them after Execute.
	Attachments []engine.Attachment
	// Own are the limits of work of Cove's own, which may go beyond what callers
	// may ask for; zero fields are as Limits say.
	Own cove.Limits
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
