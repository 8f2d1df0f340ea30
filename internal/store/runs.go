package store

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/message"
)

// Runs remembers what agents were given to do, and what became of it. What they say is not in it.
type Runs interface {
	// AddRun records one that begins. Errors: Conflict when its id is known.
	AddRun(ctx context.Context, r Run) error
	// Run returns one. Errors: NotFound.
	Run(ctx context.Context, id cove.RunID) (Run, error)
	// ChangeRun changes a run atomically. Its id, agent, creator and start stay the same. On a full disk it is recorded as
	// Shortened. Errors: NotFound, change's.
	ChangeRun(ctx context.Context, id cove.RunID, change func(*Run) error) error
	// Runs returns a page, newest first.
	Runs(ctx context.Context, q RunQuery) (RunPage, error)
	// RemoveRun forgets one that has ended. Errors: NotFound, Conflict.
	RemoveRun(ctx context.Context, id cove.RunID) error
}

// RunStatus is the state of a run.
type RunStatus string

// States of runs. A failed run is a task that the agent could not do; a run with an error did not come to an end.
const (
	RunRunning     RunStatus = "running"
	RunSucceeded   RunStatus = "succeeded"
	RunFailed      RunStatus = "failed"      // the agent reports it, or ended with an exit code
	RunInterrupted RunStatus = "interrupted" // a user ended it
	RunLimit       RunStatus = "limit"       // Limit ended it
	RunError       RunStatus = "error"       // Error has the reason
)

// Run is the record of an agent's task, stored as JSON.
type Run struct {
	ID          cove.RunID         `json:"id"`
	Agent       string             `json:"agent"`
	Interactive bool               `json:"interactive,omitempty"` // in a terminal: it has a recording, and no messages
	Version     string             `json:"version,omitempty"`     // of the agent's program
	Model       string             `json:"model,omitempty"`
	Profile     string             `json:"profile,omitempty"`
	Prompt      string             `json:"prompt"`
	Status      RunStatus          `json:"status"`
	Error       *Failure           `json:"error,omitempty"`
	ExitCode    *int               `json:"exit_code,omitempty"` // of the agent's program, when it has ended
	Limit       cove.LimitKind     `json:"limit_hit,omitempty"` // of an execution's kinds, "turns" or "budget"
	Result      string             `json:"result,omitempty"`    // the agent's answer
	Session     string             `json:"session_id,omitempty"`
	Usage       message.AgentUsage `json:"usage"`
	Sandbox     string             `json:"sandbox,omitempty"` // its id
	SandboxName string             `json:"sandbox_name,omitempty"`
	Directory   string             `json:"directory,omitempty"` // of the machine
	Bind        bool               `json:"bind,omitempty"`
	Exposes     []string           `json:"exposes,omitempty"` // variables whose real tokens the sandbox can read
	Recordings  []string           `json:"-"`                 // terminals with a recording; set by the service
	Changes     []FileChange       `json:"changes,omitempty"`
	Made        []hostpath.Made    `json:"made_in_mounts,omitempty"` // by its sandbox, until it ended
	CreatedBy   string             `json:"created_by"`
	StartedAt   time.Time          `json:"started_at"`
	EndedAt     *time.Time         `json:"ended_at,omitempty"`
	Cut         bool               `json:"cut,omitempty"`         // there was no room for all of it; see Shortened
	OutputGone  OutputGone         `json:"output_gone,omitempty"` // why its files are not kept
	Unrecorded  bool               `json:"-"`                     // the store does not have this end; set by the service
	Spec        RunSpec
}

// maxShortened bounds the answer, and the list of changes, of a run on a full disk, in bytes.
const maxShortened = 64 << 10

// Shortened returns r as it is recorded where there is no room for all of it. It is pure.
func (r Run) Shortened() Run {
	result, cut := Cut(r.Result, maxShortened)
	if sizeOf(r.Made) > maxShortened {
		r.Made, cut = nil, true // the audit log has it
	}
	n := 0
	for size := 0; n < len(r.Changes); n++ {
		if size += r.Changes[n].size(); size > maxShortened {
			cut = true
			break
		}
	}
	r.Result, r.Changes, r.Cut = result, r.Changes[:n:n], r.Cut || cut
	return r
}

// Size is about how many bytes r's record takes. It is pure.
func (r Run) Size() int {
	n := 1000 + len(r.Prompt) + len(r.Result) + len(r.Spec.Schema)
	for _, c := range r.Changes {
		n += c.size()
	}
	return n + sizeOf(r.Made)
}

// sizeOf is about how many bytes of a record what was made in mounts takes.
func sizeOf(all []hostpath.Made) (n int) {
	for _, m := range all {
		for _, path := range m.Paths() {
			n += len(path)
		}
		n += len(m.Beyond)
	}
	return n
}

// size is about how many bytes of a record c takes.
func (c FileChange) size() int {
	return 160 + len(c.Path) + len(c.OldPath) + len(c.NewID) + len(c.Patch)
}

// Failure is an error as a record contains it.
type Failure struct {
	Error string `json:"error"`
	Code  string `json:"code"`
	Hint  string `json:"hint,omitempty"`
}

// FileChange is a changed file of a repository.
type FileChange struct {
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"` // of a renamed file
	Change  string `json:"change"`             // "added", "changed", "deleted", "renamed" or "merged"
	OldMode string `json:"old_mode,omitempty"` // as git writes it, like "100644"
	NewMode string `json:"new_mode,omitempty"`
	NewID   string `json:"new_id,omitempty"` // of the content, as git counts it
	Added   int    `json:"added"`            // lines
	Removed int    `json:"removed"`
	Binary  bool   `json:"binary,omitempty"`
	Patch   string `json:"patch,omitempty"`
}

// Owner returns the principal that asked for the run.
func (r Run) Owner() cove.Principal { return cove.ParsePrincipal(r.CreatedBy) }

// RunSpec holds the state with which a server adopts a run.
type RunSpec struct {
	Own      bool        // its sandbox was made for it
	Box      string      // the sandbox that its sandbox is within; empty where it is none but itself
	Keep     bool        // that sandbox stays
	Ends     bool        `json:",omitempty"` // that sandbox ends with it, whatever has changed in it
	Dir      string      // inside, for files of this run alone
	Schema   []byte      // of the result; nil is none
	Input    *string     `json:",omitempty"` // of its program, while that runs; nil in records of earlier versions
	Deadline time.Time   // by when it has ended
	Terminal string      // of an interactive one
	Limits   cove.Limits `json:",omitzero"` // in force; none in records of earlier versions
	Provider string      // of its models; empty where it is not known
	Engine   string      `json:",omitempty"` // of its sandbox
	// Used and Models are what its own sandbox has used, once it has ended.
	Used   cove.Usage            `json:",omitzero"`
	Models []model.ProviderUsage `json:",omitempty"`
	// Before is the usage of earlier runs of the conversation.
	Before message.AgentUsage
}

// RunQuery selects runs.
type RunQuery struct {
	ID      string // the beginning of it
	Agent   string
	Status  RunStatus
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
