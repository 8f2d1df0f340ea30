package httpapi

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/gateway/clients"
	"github.com/cove-sandbox/cove/internal/generate"
	"github.com/cove-sandbox/cove/internal/git/forge"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/work"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Executor runs executions; execution.Executions is one.
type Executor interface {
	// Execute runs r to its end. It calls started once the execution is recorded and before anything reaches out, which
	// may be nil: the result has the output too, which the caller releases. The end of ctx ends the execution.
	Execute(ctx context.Context, who cove.Principal, r execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error)
	// Do does a job as an execution, in the same way.
	Do(ctx context.Context, who cove.Principal, j execution.Job, out process.Output) (execution.Result, error)
	// Kill ends a running execution of the principal's. Errors: NotFound, Conflict when it
	// has ended or runs in another process.
	Kill(ctx context.Context, who cove.Principal, id cove.ExecutionID) error
	// Follow hands out the output of a running execution of the principal's from a position on,
	// to its end, after calling begun. Errors as Kill's.
	Follow(ctx context.Context, who cove.Principal, id cove.ExecutionID, from execution.Position, begun func(),
		out process.Output) error
	// ExtendNetwork adds to what a running execution of the principal's may reach. Errors as Kill's.
	ExtendNetwork(ctx context.Context, who cove.Principal, id cove.ExecutionID,
		documents []*policy.Document) (cut int, err error)
	// Certificate returns that of the authority which a running execution of the principal's
	// trusts, as PEM. Errors as ExtendNetwork's.
	Certificate(ctx context.Context, who cove.Principal, id cove.ExecutionID) ([]byte, error)
	// Models returns what a running execution of the principal's has used of models so far.
	Models(who cove.Principal, id cove.ExecutionID) []model.ProviderUsage
	// Recorded returns an execution of the principal's, and apart from it the output that the history has of it, which the
	// caller releases. Errors: NotFound.
	Recorded(ctx context.Context, who cove.Principal, id cove.ExecutionID) (store.Execution, *spool.Output, error)
	// Known returns a stored record as it is known here, where an end may wait for the store.
	Known(e store.Execution) store.Execution
	// Load returns how much runs and waits.
	Load() execution.Load
	Runtimes(ctx context.Context, who cove.Principal, image, engine string) ([]execution.Runtime, error)
	// Health returns "ok", engine.Unused or the fault of each engine.
	Health(ctx context.Context) map[string]string
}

// Pool keeps sandboxes prepared; execution.Pool is one.
type Pool interface {
	Status() ([]pool.Status, pool.Totals)
	// Warm keeps n prepared for plain executions of a language in an image; empty is the default one. Errors:
	// InvalidArgument, Unsupported, those of the engine.
	Warm(ctx context.Context, language, image string, n int) error
	// Drain returns when what was prepared is destroyed. Errors: Unavailable for what is left.
	Drain(ctx context.Context) error
}

// Sandboxes manages long-lived sandboxes; sandbox.Sandboxes is one.
type Sandboxes interface {
	// Plan refuses what Create would refuse before anything is fetched or made.
	Check(ctx context.Context, who cove.Principal, r sandbox.Request) error
	Create(ctx context.Context, who cove.Principal, r sandbox.Request, progress func(workspace.Step)) (sandbox.View, error)
	List(ctx context.Context, who cove.Principal) (sandbox.Listing, error)
	Find(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Start(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Stop(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Pause(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Resume(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Change(ctx context.Context, who cove.Principal, ref string, c sandbox.Change) (sandbox.View, error)
	Destroy(ctx context.Context, who cove.Principal, ref string, keepWork bool) ([]hostpath.Made, error)
	ChangeNetwork(ctx context.Context, who cove.Principal, ref string, change store.NetworkChange, reset bool) (
		cut int, err error)
	NetworkOf(ctx context.Context, who cove.Principal, ref string) (sandbox.View, egress.Network, error)
	Certificate(ctx context.Context, who cove.Principal, ref string) ([]byte, error)
	// FitsUploads refuses more bytes of a principal's uploads than its quota leaves beside those sent. Errors: Conflict.
	FitsUploads(ctx context.Context, who cove.Principal, sent, more int64) error
}

// Images makes images of sandboxes.
type Images interface {
	Commit(ctx context.Context, who cove.Principal, ref string, r api.CommitRequest) (api.CommittedImage, error)
}

// Processes runs commands and terminals in long-lived sandboxes; sandbox.Processes is one.
type Processes interface {
	Command(ctx context.Context, who cove.Principal, ref string, q sandbox.CommandRequest, started func(cove.ExecutionID),
		out process.Output) (sandbox.CommandResult, error)
	SignalCommand(ctx context.Context, who cove.Principal, ref string, id cove.ExecutionID, signal syscall.Signal) error
	OpenTerminal(ctx context.Context, who cove.Principal, ref string, q sandbox.TerminalRequest) (*terminals.Viewer, error)
	Terminals(ctx context.Context, who cove.Principal, ref string) ([]terminals.Info, error)
	TerminalText(ctx context.Context, who cove.Principal, ref, id string) (string, error)
	KillTerminal(ctx context.Context, who cove.Principal, ref, id string) error
	Connect(ctx context.Context, who cove.Principal, ref string, port uint16) (net.Conn, error)
}

// Repositories is the store of repositories; repos.Store is one.
type Repositories interface {
	Mirrors(ctx context.Context, who cove.Principal) ([]repos.Mirror, error)
	// FetchMirror puts a repository into the store, or brings it up to date; partial
	// leaves out the contents of files. Errors: Conflict where it is there whole.
	FetchMirror(ctx context.Context, who cove.Principal, source string, partial bool,
		progress func(workspace.Step)) (repos.Mirror, error)
	// RemoveMirror removes one. Errors: NotFound, Conflict while a sandbox borrows from it.
	RemoveMirror(ctx context.Context, who cove.Principal, source string) error
	// CollectMirror packs one anew. Errors: NotFound.
	CollectMirror(ctx context.Context, who cove.Principal, source string) error
	// Receive stores a pack for a sandbox of the principal's. Errors: TooLarge, InvalidArgument, Overloaded, StorageFull,
	// those of the sending's Fits.
	Receive(ctx context.Context, who cove.Principal, from repos.Sending, pack io.Reader) (cove.UploadID, int64, error)
}

// Work gives access on the host to the changes made in detached sandboxes. Each call imports them anew, first.
type Work interface {
	Import(ctx context.Context, who cove.Principal, ref string) (work.Imported, error)
	Diff(ctx context.Context, who cove.Principal, ref string, w repos.Work, style repos.DiffStyle, out io.Writer) error
	Log(ctx context.Context, who cove.Principal, ref string, w repos.Work, short bool, out io.Writer) error
	Changes(ctx context.Context, who cove.Principal, ref string, w repos.Work,
		style repos.ChangeStyle) ([]repos.Change, error)
	Commits(ctx context.Context, who cove.Principal, ref string, w repos.Work) ([]repos.Commit, error)
	// Held counts the work that was neither pushed nor applied.
	Held(ctx context.Context, who cove.Principal, ref string) (repos.Held, error)
	// Apply changes a directory of the host that may be written to.
	Apply(ctx context.Context, who cove.Principal, ref string, w repos.Work, dir string,
		style repos.ApplyStyle) (repos.Applied, error)
	// Send writes what a client needs that applies the changes on its own machine.
	Send(ctx context.Context, who cove.Principal, ref string, out io.Writer) error
	// Push pushes what is committed.
	Push(ctx context.Context, who cove.Principal, ref string, q work.Push) (work.Pushed, error)
	// Pull opens a pull request for what was pushed.
	Pull(ctx context.Context, who cove.Principal, ref string, q forge.Pull) (forge.Opened, error)
}

// Runs are the runs of agents; run.Runner has them.
type Runs interface {
	// Check refuses what Begin would refuse before anything is fetched or made.
	Check(ctx context.Context, who cove.Principal, q run.Request) error
	Begin(ctx context.Context, who cove.Principal, q run.Request) (store.Run, error)
	Follow(ctx context.Context, who cove.Principal, ref string, after int, begun func(store.Run) error,
		take func(run.Event) error) (store.Run, error)
	Runs(ctx context.Context, who cove.Principal, q store.RunQuery) (store.RunPage, error)
	Run(ctx context.Context, who cove.Principal, ref string) (store.Run, error)
	Interrupt(ctx context.Context, who cove.Principal, ref string, kill bool) error
	Remove(ctx context.Context, who cove.Principal, ref string) error
	Export(ctx context.Context, who cove.Principal, ref string, out io.Writer) error
	Recording(ctx context.Context, who cove.Principal, ref, terminal string, out io.Writer) error
}

// Generator asks models for single answers; generate.Service is one.
type Generator interface {
	Generate(ctx context.Context, who cove.Principal, q generate.Request, started func(cove.ExecutionID),
		out process.Output) (generate.Result, error)
}

// Agents are the coding agents of a machine.
type Agents interface {
	Agents(context.Context) ([]fit.Listed, error)
	// InstallAgent installs a version of one, the pinned one if empty, and has runs use it. Errors: NotFound,
	// InvalidArgument, RuntimeMissing, Unavailable, StorageFull, Corrupt, Unsupported, Canceled.
	InstallAgent(ctx context.Context, name, version string, progress func(workspace.Step)) (fit.Listed, error)
	// RemoveAgent removes a version, or all that are not in use if empty. Errors: NotFound, Conflict, StorageFull.
	RemoveAgent(ctx context.Context, name, version string) (removed []string, err error)
	// CheckAgent tries what one needs. Errors: NotFound.
	CheckAgent(ctx context.Context, name string) (fit.Report, error)
	// EquipSandbox adds what its agent needs to a sandbox that is to be made. An agent that is not declared is the
	// program of that name. Errors: RuntimeMissing, InvalidArgument, Unsupported.
	EquipSandbox(who cove.Principal, q *sandbox.Request) error
}

// Credentials gives the machine's owner access to its credentials; credential.Host is one.
type Credentials interface {
	All(ctx context.Context, try bool) ([]credential.State, error)
	Reads() ([]string, error)
	Take(variables map[string]string) (credential.Taken, error)
}

// Clients manages the registered clients of a gateway of its own. clients.Registry implements it.
type Clients interface {
	Register(ctx context.Context, who cove.Principal, g store.GatewayRegistration) (clients.View, error)
	Extend(ctx context.Context, who cove.Principal, name string, more store.NetworkChange) (cut int, err error)
	List(who cove.Principal) []clients.View
	Certificate(who cove.Principal, name string) ([]byte, error)
	Remove(ctx context.Context, who cove.Principal, name string) error
	Attach(who cove.Principal, name string, sockets []*os.File) (*clients.Session, error)
	Health() clients.Health
}

// Approvals lists and answers the requests that wait; gateway.Approvals is one.
type Approvals interface {
	// Holds lists what waits for an answer of the principal's in this process, the oldest first.
	Holds(who cove.Principal) []approval.Hold
	// Answer answers, as the principal, what waits as id in something of the principal's, if may has no
	// objection. Errors: NotFound, InvalidArgument.
	Answer(ctx context.Context, who cove.Principal, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error
	// Revoke forgets an approval of the principal's. Errors: NotFound.
	Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error
}

// Options is everything a Server needs. Executor, Store, Approvals and CheckPath
// must be set; of a gateway of its own Clients, Store and Approvals.
type Options struct {
	Executor Executor
	Pool     Pool // nil: there are no routes of prepared sandboxes
	// Backup writes a backup of everything to a file; nil: there is no route of it.
	Backup    func(ctx context.Context, file string) (api.Backup, error)
	Sandboxes Sandboxes // nil: there are no routes of long-lived sandboxes
	Processes Processes // of Sandboxes
	Images    Images    // of Sandboxes
	// Repositories is the store of repositories; nil: there are no routes of it.
	Repositories Repositories
	Work         Work // nil: there are no routes that bring work back
	Runs         Runs // nil: there are no routes of runs of agents
	// Agents are the coding agents of this machine; nil: there are no routes of them.
	Agents    Agents
	Generator Generator // nil: there is no route of single answers
	// Credentials of the machine; nil: there are no routes of its owner. Settings returns digests of the settings.
	Credentials Credentials
	Settings    func() map[string]string
	Background  bool // a command has started the server, in the background
	// Profiles reads the named configurations that there are.
	Profiles func() ([]api.Profile, error)
	Clients  Clients
	Store    store.Vault
	// Approvals lists and answers the requests that wait.
	Approvals Approvals
	// CheckPath judges host paths as hostpath.Check does: with nil roots it applies only what is always refused.
	CheckPath func(path string, roots []string) (resolved string, err error)
	// CheckProject judges directories as hostpath.CheckProject does.
	CheckProject func(path string) (resolved string, err error)
	// Flush writes to Store what this process has decided and not written yet.
	Flush func()
	// Collectors are metrics beside the server's own.
	Collectors []prometheus.Collector
	Log        *slog.Logger // nil discards
	Clock      clock.Clock  // nil is the real one
	Version    string
	// ForOneCommand has only the route made at once by which a command runs something, and all others when one is asked
	// for: to make them all takes 8 ms.
	ForOneCommand bool

	Grants       access.Grants
	Keys         []Key       // none: only listeners on loopback are served
	TLS          *tls.Config // nil: plain HTTP on network listeners
	OpenMetrics  bool        // GET /metrics is for callers without a key, too
	AllowedHosts []string    // names besides loopback's that a Host header may have on loopback
	WorkDirRoots []string    // what remote callers may attach; none by default
	Rate         Rate

	// Zero fields take the default in the comment.
	MaxRequests    int64         // requests in progress: 2048
	MaxStreams     int64         // streams in progress beside them: 1024
	MaxConnections int64         // of all callers but the machine's owner: 8192, or half of the descriptors
	MaxBodies      int64         // bytes of request bodies in memory: 256 MiB
	Heartbeat      time.Duration // of streams: 15 s
	HeaderTimeout  time.Duration // all headers of a request: 10 s
	ReadTimeout    time.Duration // a whole request body: 30 s
	WriteTimeout   time.Duration // one write to a client that does not read: 30 s
}

func (o *Options) fill() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	setDefault(&o.MaxRequests, 2048)
	setDefault(&o.MaxStreams, 1024)
	setDefault(&o.MaxConnections, mostConnections(descriptors()))
	setDefault(&o.MaxBodies, 256<<20)
	setDefault(&o.Heartbeat, 15*time.Second)
	setDefault(&o.HeaderTimeout, 10*time.Second)
	setDefault(&o.ReadTimeout, 30*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
