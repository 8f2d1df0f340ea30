// Package store is the contract for what Cove remembers: executions, the audit log, what became of attempts to leave
// sandboxes, what has been approved, who goes out through a gateway of its own, the long-lived sandboxes, and the runs
// of agents. store/sqlite implements it; storetest.Run is the suite that every implementation passes.
package store

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/model"
)

// Store remembers executions and audit records. Methods may be called concurrently, and several processes may have one
// store open. Times are kept to the microsecond. Errors carry InvalidArgument, NotFound, Corrupt, StorageFull,
// Unavailable or Conflict.
type Store interface {
	// Begin records an execution that has been accepted, before it runs; or one
	// that never will (refused, failed), whole. A known id is Conflict.
	Begin(ctx context.Context, e Execution) error
	// Finish records how it ended, every field but id, language, creation time, instance, client, code hash and spec, and
	// appends r to the audit log: both or neither. Finishing twice is Conflict. Output beyond MaxOutput is dropped, and
	// Truncated set. Without room for its output, the end is recorded with OutputGone in its place.
	Finish(ctx context.Context, e Execution, r Record) error
	// Get returns one execution, output included.
	Get(ctx context.Context, id cove.ExecutionID) (Execution, error)
	// List returns a page, newest first, without output.
	List(ctx context.Context, q Query) (Page, error)
	// CPUTime returns the CPU time that a client has used since the minute of a time, within the last 24 hours: that of
	// executions which Finish has ended and which were no agents' runs, also of those that have been removed since, and
	// what AddCPU has added.
	CPUTime(ctx context.Context, client string, since time.Time) (time.Duration, error)
	// AddCPU adds CPU time to what a client has used.
	AddCPU(ctx context.Context, client string, at time.Time, used time.Duration) error
	// ModelsUsed returns what a client has used of the models of the machine's owner by UseModels, sorted by provider.
	// Nothing that is removed or pruned is taken from it.
	ModelsUsed(ctx context.Context, client string) ([]model.ProviderUsage, error)
	// UseModels adds to it: all of used, or none. It may take away what was reserved. What has no request is of ended
	// ones, and is recorded on a full disk, too.
	UseModels(ctx context.Context, client string, used ...model.ProviderUsage) error
	// Abandon marks running executions of dead instances as failed, for the reason that r has as its detail, and returns
	// how many. Each has its line in the audit log, r with the execution as its object and the owner, in the same
	// transaction. It asks dead about each instance that has any, after it has seen them: one that begins meanwhile is
	// not taken for dead.
	Abandon(ctx context.Context, r Record, dead func(cove.InstanceID) bool) (int, error)

	// Append adds a record to the audit log, chained to the one before. Fields beyond MaxDetail bytes are cut. Where the
	// log takes more space than it may, the oldest records of the owner that has most go, and a record says so.
	Append(ctx context.Context, r Record) error
	// Audit returns a page of the log, newest first.
	Audit(ctx context.Context, q AuditQuery) (AuditPage, error)
	// Verify walks the chain to its end, or to the first record that does not
	// fit. One that has been changed is a finding, not an error.
	Verify(ctx context.Context) (Verification, error)

	Decisions
	Approvals
	GatewayClients
	Sandboxes
	Runs

	// Prune removes executions that finished before the given time, and returns how many; the oldest audit records, up to
	// the last of those that are mostly older; decisions that are older, and runs that ended before. The chain of what is
	// left still verifies. The zero time removes none of them. Where the history takes more space than it may, the output
	// of the oldest executions goes, and their records say so.
	Prune(ctx context.Context, before time.Time) (int, error)
	// Check returns the reason why nothing can be recorded: no room, no permission, damage, a file that is gone.
	Check(ctx context.Context) error
	Close() error
}

// Decisions remembers what became of attempts to leave sandboxes.
type Decisions interface {
	// AppendDecisions adds decisions in their order and numbers them. At most keep stay: the client that has the most
	// loses its oldest. Text beyond MaxField bytes is cut.
	AppendDecisions(ctx context.Context, keep int, all ...decision.Decision) error
	// ListDecisions returns a page, newest first.
	ListDecisions(ctx context.Context, q DecisionQuery) (DecisionPage, error)
	// DecisionsAfter returns at most limit (1 to 500) of a client's decisions with a
	// higher number than seq, oldest first, of every process; of all clients where
	// client is empty. None comes to be seen after one with a higher number.
	DecisionsAfter(ctx context.Context, client string, seq int64, limit int) ([]decision.Decision, error)
}

// Approvals remembers what has been approved for every sandbox of one policy.
type Approvals interface {
	// Approve remembers an approval, in place of one about the same subject and policy by the same person, and removes
	// those that are over at its time. One more than the share
	// of the person, as package share has it, of MaxApprovals is TooLarge.
	Approve(ctx context.Context, a approval.Approval) error
	// Approved reports whether one of these people has approved a subject for a policy, and it is not over at a time.
	Approved(ctx context.Context, policy string, s approval.Subject, who []cove.Principal, at time.Time) (bool, error)
	// Approvals lists the approvals of a principal that are valid at a time, newest first. An empty who means all
	// principals.
	Approvals(ctx context.Context, who string, at time.Time) ([]approval.Approval, error)
	// Revoke removes an approval of a principal, or of any if who is empty. Errors: NotFound.
	Revoke(ctx context.Context, who string, id cove.ApprovalID) error
}

// MaxApprovals is how many approvals are remembered at a time.
const MaxApprovals = 1000

// GatewayClients remembers who goes out through a gateway of its own.
type GatewayClients interface {
	// PutGatewayClient adds a client, or takes the place of the one of its name.
	PutGatewayClient(ctx context.Context, c GatewayClient) error
	// GatewayClients lists them by name.
	GatewayClients(ctx context.Context) ([]GatewayClient, error)
	// RemoveGatewayClient forgets one. Errors: NotFound.
	RemoveGatewayClient(ctx context.Context, name string) error
}

// GatewayClient is a registered client of a gateway.
type GatewayClient struct {
	GatewayRegistration
	Sandbox   cove.SandboxID // its identity in decisions
	CreatedAt time.Time
}

// GatewayRegistration is the egress route that a registered client asks for.
type GatewayRegistration struct {
	Name         string `json:"name"`
	cove.Network        // Enabled says nothing here
	Listen       string `json:"listen,omitempty"`      // HOST:PORT or unix:/PATH of its proxy
	Transparent  bool   `json:"transparent,omitempty"` // it hands over sockets instead
	Dir          string `json:"dir,omitempty"`         // of its files, as the client sees it
}

// MaxField bounds each text of a decision, in bytes.
const MaxField = 1 << 10

// DecisionQuery selects decisions.
type DecisionQuery struct {
	Execution string
	Sandbox   string // its id
	Client    string // whose sandbox it was
	Host      string // a name or an address, as it is recorded
	Verdict   decision.Verdict
	Since     time.Time // inclusive; zero is no bound
	Until     time.Time // exclusive
	Cursor    string    // DecisionPage.Next of the page before; a malformed one is InvalidArgument
	Limit     int       // 1 to 500
}

// DecisionPage is a page of decisions.
type DecisionPage struct {
	Decisions []decision.Decision
	Next      string // empty on the last page
}

// Selects reports whether d is one that q asks for; Cursor and Limit do not matter.
func (q DecisionQuery) Selects(d decision.Decision) bool {
	same := func(asked, is string) bool { return asked == "" || asked == is }
	return same(q.Execution, d.Execution) && same(q.Sandbox, d.Sandbox) && same(q.Client, d.Client) &&
		same(q.Host, d.Host) && same(string(q.Verdict), string(d.Verdict)) &&
		!d.Time.Before(q.Since) && (q.Until.IsZero() || d.Time.Before(q.Until))
}

// MaxOutput bounds what is kept of each output stream of an execution, in bytes.
const MaxOutput = 1 << 20

// MaxDetail bounds each field of an audit record, in bytes.
const MaxDetail = 4 << 10

// MaxPage is the largest page of any list.
const MaxPage = 500

// Execution is the stored record of one execution.
type Execution struct {
	ID       cove.ExecutionID
	Instance cove.InstanceID // the process of Cove that runs it
	Owner    cove.Principal
	CodeHash string // SHA-256 of the code, hex
	Language string
	Engine   string
	// Spec describes its sandbox, without the environment, whose values may be secrets. It is zero in records of earlier
	// versions.
	Spec       cove.Spec
	Status     cove.Status
	ExitCode   int // 128+N for signal N; -1 when Cove ended it, or while it runs
	Limit      cove.LimitKind
	Duration   time.Duration
	Usage      cove.Usage
	Models     []model.ProviderUsage
	Events     []detect.Event
	Output     string // UTF-8, as Stderr
	Stderr     string
	Truncated  bool // output beyond the limit was dropped
	OutputGone OutputGone
	Error      string // why it failed, when Cove and not the program did
	CreatedAt  time.Time
	FinishedAt *time.Time
}

// OutputGone is the reason why the output of an ended execution is not kept; empty if it is, or if there was none.
type OutputGone string

const (
	GoneStorageFull OutputGone = "storage_full" // there was no room for it when the execution ended
	GoneHistorySize OutputGone = "history_size" // it was removed to bound the size of the history
)

// Query selects executions.
type Query struct {
	Client   string // who asked for it
	Language string
	Status   cove.Status
	Labels   map[string]string // all of them
	Since    time.Time         // inclusive; zero is no bound
	Until    time.Time         // exclusive
	Cursor   string            // Page.Next of the page before; a malformed one is InvalidArgument
	Limit    int               // 1 to 500
}

// Page is a page of executions.
type Page struct {
	Executions []Execution
	Next       string // empty on the last page
}

// Record is one line of the audit log.
type Record struct {
	Seq     int64 // set by Append
	Time    time.Time
	Who     string // client, never a secret
	Action  string // "execute", "kill", "attach", "request", "sweep", "prune"
	Object  string // an id, a path, a route, an engine
	Verdict string // "ok", "deny", "error"
	Detail  string // why, in words
	Hash    string // set by Append: SHA-256 over the record and the hash before
}

// AuditQuery selects audit records.
type AuditQuery struct {
	Who     string
	Action  string
	Object  string
	Verdict string
	Since   time.Time // inclusive; zero is no bound
	Until   time.Time // exclusive
	Cursor  string    // AuditPage.Next of the page before; a malformed one is InvalidArgument
	Limit   int       // 1 to 500
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Records []Record
	Next    string // empty on the last page
}

// Verification is the result of a walk along the chain of the audit log.
type Verification struct {
	Records int64  // that fit, from the oldest on
	Head    string // hash of the last that fits
	Broken  int64  // sequence number of the first that does not; 0 when all do
}
