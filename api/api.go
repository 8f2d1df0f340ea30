// Package api holds the wire types of Cove's HTTP API: what a client sends and what it gets, as JSON.
//
// Times are RFC 3339 in UTC, durations are seconds unless a name says milliseconds, sizes are in the unit of their
// name.
package api

import (
	"time"
)

// ExecuteRequest runs a snippet: POST /execute and POST /execute/stream.
type ExecuteRequest struct {
	Language string   `json:"language" doc:"A runtime, by name or alias: python, node, bash, sh, ruby, perl, go; or image, for the program of the image, without code; or an agent, as GET /agents lists them: then the code is its prompt, work_dir what it works on, and its output its messages, one in each line" example:"python"`
	Code     string   `json:"code" doc:"The source text, UTF-8, up to 1 MiB; empty for image" example:"print(6 * 7)"`
	Args     []string `json:"args,omitempty" doc:"Arguments of the program, at most 1024 and 128 KiB"`
	// Entrypoint is for the language image.
	Entrypoint []string `json:"entrypoint,omitempty" doc:"Of language image: the program and its first arguments, in the place of the image's ENTRYPOINT and CMD; args take the place of its CMD in any case"`
	Spec
	Timeout     Seconds      `json:"timeout,omitempty" doc:"Wall time, more than 0 and at most the server's maximum (60); the runtime's default when absent"`
	Permissions *Permissions `json:"permissions,omitempty"`
	Stdin       string       `json:"stdin,omitempty" doc:"Standard input, at most 8 MiB; stream longer ones"`
	StdinStream bool         `json:"stdin_stream,omitempty" doc:"Standard input will follow at POST /executions/{id}/stdin (streaming only)"`
	Files       []File       `json:"files,omitempty" doc:"Files to place beside the code, at most 256"`
	WorkDir     string       `json:"work_dir,omitempty" doc:"A host directory to attach at /workspace and run in; must lie under sandbox.allowed_workdir_roots"`
	Profile     string       `json:"profile,omitempty" doc:"Name of a profile of the server; what the request says itself wins"`
}

// Spec holds the settings of a sandbox that requests and profiles share. internal/apispec turns it into a cove.Spec,
// and back.
type Spec struct {
	Engine    string  `json:"engine,omitempty" yaml:"engine,omitempty" doc:"native, docker, podman or auto"`
	Isolation string  `json:"isolation,omitempty" yaml:"isolation,omitempty" enum:"container,gvisor,microvm" doc:"What stands between the sandbox and the host, if its engine has it: container (default) is namespaces, cgroups and a filter of system calls on the host's kernel"`
	Image     string  `json:"image,omitempty" yaml:"image,omitempty" doc:"Root filesystem: host, dir:PATH, tar:PATH, or an image reference"`
	Root      bool    `json:"root,omitempty" yaml:"root,omitempty" doc:"Programs are, or may become, root inside"`
	User      string  `json:"user,omitempty" yaml:"user,omitempty" doc:"Programs are this user of the image, NAME or UID with :GROUP or without; without, the one that the image says, unless that is root; with root it may become root inside, as by sudo" example:"node"`
	Limits    *Limits `json:"limits,omitempty" yaml:"limits,omitempty"`
	NoExec    bool    `json:"noexec,omitempty" yaml:"noexec,omitempty" doc:"Nothing in temporary places (/tmp, /var/tmp, /run, /dev/shm) can be run; what the server's configuration says is not taken back"`
	Debuggers bool    `json:"debuggers,omitempty" yaml:"debuggers,omitempty" doc:"Programs may trace others of it"`
	Mounts    []Mount `json:"mounts,omitempty" yaml:"mounts,omitempty" doc:"Host paths to attach; must lie under sandbox.allowed_workdir_roots, or come from the local command line"`
	// MountsAllow is about all mounts, work_dir and bind.
	MountsAllow []string          `json:"mounts_allow,omitempty" yaml:"mounts_allow,omitempty" enum:"sockets,system,git,hooks" doc:"The machine's owner's to say: what mounts, work_dir and bind may hold or leave writable that they otherwise may not. sockets: unix sockets, and what is too much to be searched for them; system: writable directories of the machine's programs; git: repositories stay writable, except their hooks and configuration; hooks: files that decide what programs of their owner run (hooks and configuration of git, .envrc, settings of editors and agents) stay writable, in .git only together with git"`
	Env         map[string]string `json:"env,omitempty" yaml:"env,omitempty" doc:"Additional environment variables; those that change a loader, shell or interpreter (LD_*, PATH, HOME, PYTHON*, NODE_OPTIONS, BASH_ENV, …) are refused with 403"`
	Labels      map[string]string `json:"labels,omitempty" yaml:"labels,omitempty" doc:"The caller's own: lists can be filtered by them"`
}

// Limits narrow or widen a runtime's defaults; absent fields keep them.
type Limits struct {
	MemoryMB  int64   `json:"memory_mb,omitempty" yaml:"memory_mb,omitempty" doc:"MiB of memory, files in writable places included"`
	PIDs      int64   `json:"pids_limit,omitempty" yaml:"pids_limit,omitempty" doc:"Processes and threads"`
	DiskMB    int64   `json:"disk_mb,omitempty" yaml:"disk_mb,omitempty" doc:"MiB of everything writable"`
	CPUs      float64 `json:"cpus,omitempty" yaml:"cpus,omitempty" doc:"Cores"`
	Inodes    int64   `json:"inodes,omitempty" yaml:"inodes,omitempty" doc:"Files and directories"`
	OpenFiles int64   `json:"open_files,omitempty" yaml:"open_files,omitempty" doc:"Descriptors per process"`
	StdoutKB  int64   `json:"stdout_kb,omitempty" yaml:"stdout_kb,omitempty" doc:"KiB of output that are kept"`
	StderrKB  int64   `json:"stderr_kb,omitempty" yaml:"stderr_kb,omitempty" doc:"KiB of error output that are kept"`
}

// Permissions ask for what a sandbox does not have by default.
type Permissions struct {
	Network *NetworkPermission `json:"network,omitempty"`
}

// NetworkPermission asks for a network. Everything goes through the gateway, which lets out what the policy allows.
type NetworkPermission struct {
	Enabled bool `json:"enabled" doc:"Whether there is a network at all"`
	GatewayPolicy
	// Credentials never enter the sandbox: they are set on requests that policy has allowed.
	Credentials []string `json:"credentials,omitempty" doc:"Names of credentials of the machine, for its owner: they are set on requests outside the sandbox, which has placeholders"`
	ModelPermission
}

// ModelPermission selects the models that may be used, and bounds their use.
type ModelPermission struct {
	Providers []string     `json:"providers,omitempty" doc:"Names of model providers, for the machine's owner: they are reached at http://gateway.cove.internal/proxy/v1, the first that has what is asked by default" example:"[\"anthropic\"]"`
	Budget    *ModelBudget `json:"budget,omitempty"`
}

// ModelBudget is the most that may be used of models; what is absent is as configured (gateway.budget).
type ModelBudget struct {
	Requests int64   `json:"requests,omitempty" yaml:"requests,omitempty" minimum:"1" doc:"Requests"`
	Tokens   int64   `json:"tokens,omitempty" yaml:"tokens,omitempty" minimum:"1" doc:"Tokens, in and out, those of caches included"`
	Cost     float64 `json:"cost,omitempty" yaml:"cost,omitempty" minimum:"0" doc:"Dollars, by the prices that are configured"`
}

// SandboxNetworkChange changes what a sandbox may reach.
type SandboxNetworkChange struct {
	Reset bool   `json:"reset,omitempty" doc:"First take back all changes since the sandbox was made"`
	Mode  string `json:"mode,omitempty" enum:"none,limited,open" doc:"Another mode; a sandbox that was started without a network has one when it is started again"`
	NetworkChange
}

// SandboxNetwork describes the network of a sandbox.
type SandboxNetwork struct {
	Mode        string          `json:"mode" enum:"none,limited,host-only,open" doc:"That it has, or has when it is started"`
	Repository  string          `json:"repository,omitempty" doc:"The remote that git in it reaches"`
	Credentials []string        `json:"credentials,omitempty" doc:"Names of those that are set on its requests"`
	Providers   []string        `json:"providers,omitempty" doc:"Providers of models that it may use"`
	Budget      *ModelBudget    `json:"budget,omitempty"`
	Changes     []NetworkChange `json:"changes,omitempty" doc:"Since it was made, in their order"`
	Policies    []PolicyText    `json:"policies,omitempty" doc:"For the machine's owner: all layers of its policy, first to last"`
}

// NetworkChange adds to what a running execution may reach.
type NetworkChange struct {
	Allow       []string `json:"allow,omitempty" doc:"HOST, *.HOST, ADDRESS or CIDR, each with :PORT or without (80 and 443)"`
	Deny        []string `json:"deny,omitempty" doc:"The same; what is denied wins"`
	Presets     []string `json:"presets,omitempty" doc:"Names of sets of rules that come with Cove, as \"cove policy presets\" lists them" example:"[\"npm\",\"pypi\"]"`
	PassThrough []string `json:"pass_through,omitempty" doc:"HOST, *.HOST, ADDRESS or CIDR, each with :PORT or without (80 and 443), allowed without a look into the connections: for programs that do not accept the sandbox's authority"`
}

// NetworkChanged describes the effect of a NetworkChange.
type NetworkChanged struct {
	Cut int `json:"cut" doc:"Connections and requests that were no longer allowed, and were cut"`
}

// Authority is a certificate authority that one sandbox trusts.
type Authority struct {
	Certificate string `json:"certificate" doc:"PEM"`
}

// File is placed under the working directory.
type File struct {
	Path     string `json:"path" doc:"Relative to the working directory, without . or .." example:"data/input.csv"`
	Content  string `json:"content" doc:"Text, or base64 when encoding says so"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64"`
	Mode     uint32 `json:"mode,omitempty" doc:"Permission bits; 0644 when absent"`
}

// Mount attaches a host path.
type Mount struct {
	Source   string `json:"source" yaml:"source,omitempty" doc:"Absolute host path"`
	Target   string `json:"target" yaml:"target,omitempty" doc:"Absolute path inside" example:"/data"`
	ReadOnly bool   `json:"read_only,omitempty" yaml:"read_only,omitempty"`
}

// Execution is the record of a run: the answer of POST /execute, and what
// GET /executions and GET /executions/{id} return.
type Execution struct {
	ID             string            `json:"id"`
	Language       string            `json:"language"`
	Engine         string            `json:"engine"`
	Status         Status            `json:"status" enum:"running,completed,timeout,limited,killed,shutdown,refused,failed" doc:"killed: by DELETE, or because the caller went away; shutdown: the server was told to stop, and the same may be asked of the next one; failed: Cove could not run it, or was itself killed"`
	Output         string            `json:"output" doc:"Standard output; invalid UTF-8 is replaced"`
	Stderr         string            `json:"stderr"`
	ExitCode       int               `json:"exit_code" doc:"The program's; 128+N for signal N; -1 on timeout, when killed, or while it runs"`
	Duration       float64           `json:"duration" doc:"Wall time in seconds"`
	LimitHit       string            `json:"limit_hit,omitempty" doc:"What ended it: oom, timeout, pids, disk, file_size, output or locks"`
	Limits         *Limits           `json:"limits,omitempty" doc:"In force, whatever set them"`
	Timeout        float64           `json:"timeout,omitempty" doc:"In force, in seconds"`
	Usage          ResourceUsage     `json:"resource_usage"`
	Models         []ModelUsage      `json:"models,omitempty" doc:"What it has used of models, so far if it runs"`
	Truncated      bool              `json:"truncated" doc:"Output was dropped: beyond the limit, or without room"`
	OutputGone     string            `json:"output_gone,omitempty" enum:"storage_full,history_size" doc:"Why the history has no output of it: there was no room, or it was removed to bound the size of the history"`
	Unrecorded     bool              `json:"unrecorded,omitempty" doc:"Only in the answer of an execution: the server could not write this result to its history, and tries again while it runs"`
	SecurityEvents []SecurityEvent   `json:"security_events" nullable:"false" doc:"Escape attempts that were noticed in the code, places that policy denied, and what came into being in writable mounts that decides what programs of their owner run (made_in_mount)"`
	Labels         map[string]string `json:"labels,omitempty"`
	CreatedAt      time.Time         `json:"created_at"`
	FinishedAt     *time.Time        `json:"finished_at,omitempty"`
	Error          string            `json:"error,omitempty" doc:"Why it failed, or was ended by Cove"`
}

// Status is the state of an execution.
type Status string

const (
	StatusRunning   Status = "running"
	StatusCompleted Status = "completed" // the program exited by itself, with any code
	StatusTimeout   Status = "timeout"
	StatusLimited   Status = "limited"  // another limit ended it
	StatusKilled    Status = "killed"   // by DELETE, or the caller went away
	StatusShutdown  Status = "shutdown" // by the server, which was told to stop; it may be run again
	StatusRefused   Status = "refused"  // an escape attempt of critical severity
	StatusFailed    Status = "failed"   // Cove could not run it, or was itself killed
)

// ResourceUsage counts the resources that an execution used.
type ResourceUsage struct {
	CPUTimeMS    float64 `json:"cpu_time_ms"`
	MemoryPeakMB float64 `json:"memory_peak_mb" doc:"MiB"`
	PIDsUsed     int64   `json:"pids_used" doc:"Peak"`
	BytesWritten int64   `json:"bytes_written"`
	DiskUsed     int64   `json:"disk_used" doc:"Bytes in writable places at the end"`
}

// ModelUsage counts the use of one provider's models.
type ModelUsage struct {
	Provider         string  `json:"provider"`
	Requests         int64   `json:"requests" doc:"Sent, also those that failed"`
	InputTokens      int64   `json:"input_tokens" doc:"Without those read from a cache or written to it"`
	OutputTokens     int64   `json:"output_tokens"`
	CacheReadTokens  int64   `json:"cache_read_tokens"`
	CacheWriteTokens int64   `json:"cache_write_tokens"`
	Cost             float64 `json:"cost,omitempty" doc:"Dollars, by the prices that are configured, or as the provider says; absent if neither is known"`
	Estimated        int64   `json:"estimated,omitempty" doc:"Requests whose answer did not say what they used"`
}

// SecurityEvent is a pattern of an escape attempt found in submitted code, or what Cove noticed while it ran.
type SecurityEvent struct {
	Rule     string   `json:"rule"`
	Severity string   `json:"severity" enum:"low,medium,high,critical"`
	Line     int      `json:"line" doc:"1-based; 0 when it is not about the code"`
	Detail   string   `json:"detail"`
	Remedy   string   `json:"remedy,omitempty" doc:"Flag of the command line that would have let it reach a place" example:"--preset npm"`
	Paths    []string `json:"paths,omitempty" doc:"On the host, of the rule made_in_mount: git's own first"`
}

// Names of the SSE events of POST /execute/stream. Every event has an id; lines that begin with a colon are heartbeats.
// The response's header ExecutionIDHeader names the execution before its first event.
const (
	EventStdout = "stdout" // OutputEvent
	EventStderr = "stderr" // OutputEvent
	EventHolds  = "holds"  // HoldList: all that waits for an answer, when that has changed
	EventDone   = "done"   // Execution, the last event
	EventError  = "error"  // Error, the last event

	ExecutionIDHeader = "X-Execution-Id"
)

// ExecutionList is a page of GET /executions, newest first. The query may have
// language, status, since and until (RFC 3339), cursor and limit.
type ExecutionList struct {
	Executions []Execution `json:"executions" nullable:"false" doc:"Without output and stderr"`
	NextCursor string      `json:"next_cursor,omitempty" doc:"For the query cursor of the next page; absent on the last one"`
}

// AuditRecord is one line of the audit log: who did what to which object, with which verdict and why.
type AuditRecord struct {
	Seq     int64     `json:"seq" doc:"Its number; they follow each other without a gap"`
	Time    time.Time `json:"time"`
	Who     string    `json:"who" doc:"local, key:NAME or ip:ADDRESS; empty for Cove itself"`
	Action  string    `json:"action" doc:"execute, kill, network (a change of policy), approve, revoke, attach (a host path), request (refused to a stranger) or sweep (of what a dead process left)"`
	Object  string    `json:"object" doc:"An execution's id, a path, a route, an engine"`
	Verdict string    `json:"verdict" doc:"ok, deny or error"`
	Detail  string    `json:"detail" doc:"Why, in words"`
	Hash    string    `json:"hash" doc:"SHA-256 over the record and the hash before it, hex"`
}

// AuditList is a page of GET /audit, newest first. The query may have action,
// object, verdict, since and until (RFC 3339), cursor and limit.
type AuditList struct {
	Records    []AuditRecord `json:"records" nullable:"false"`
	NextCursor string        `json:"next_cursor,omitempty" doc:"For the query cursor of the next page; absent on the last one"`
}

// BackupRequest is the body of POST /backup.
type BackupRequest struct {
	File string `json:"file" minLength:"1" doc:"Absolute path on the server's machine; replaced at the end."`
}

// Backup is the answer of POST /backup.
type Backup struct {
	File      string `json:"file"`
	Bytes     int64  `json:"bytes"`
	Sandboxes int    `json:"sandboxes"` // whose files are in it
}

// Pool is the answer of GET /pool: the sandboxes that a server keeps prepared.
type Pool struct {
	Kinds    []PoolKind `json:"kinds" nullable:"false"`
	Hits     int64      `json:"hits" doc:"Executions since the server began that found a prepared sandbox"`
	Misses   int64      `json:"misses" doc:"Those that found none, and could have had one"`
	Failures int64      `json:"failures" doc:"Sandboxes that could not be prepared"`
}

// PoolKind describes the prepared sandboxes that serve the same executions.
type PoolKind struct {
	Language string  `json:"language,omitempty" doc:"Whose interpreter waits in them; absent: none"`
	Engine   string  `json:"engine"`
	Image    string  `json:"image,omitempty" doc:"Digest; absent for the host's root filesystem"`
	MemoryMB int64   `json:"memory_mb" doc:"Their memory limit"`
	CPUs     float64 `json:"cpus" doc:"Their CPU limit"`
	Least    int     `json:"least" doc:"How many are kept whatever is asked for"`
	Most     int     `json:"most" doc:"How many are kept at most"`
	Refill   int     `json:"refill,omitempty" doc:"Others are prepared when fewer are ready; absent: when one is missing"`
	MaxAge   float64 `json:"max_age" doc:"Seconds after which one is replaced"`
	Size     int     `json:"size" doc:"How many are worth keeping, by what was asked for"`
	Ready    int     `json:"ready" doc:"How many are prepared"`
	Memory   int64   `json:"memory" doc:"Bytes of memory that these have"`
	Hits     int64   `json:"hits"`
	Misses   int64   `json:"misses"`
	Failures int64   `json:"failures"`
}

// PoolWarm is the body of PUT /pool.
type PoolWarm struct {
	Language string `json:"language" maxLength:"64"`
	Image    string `json:"image,omitempty" maxLength:"4096" doc:"Of the executions; absent: the configured one"`
	Count    int    `json:"count" minimum:"0" maximum:"1000" doc:"Sandboxes to keep prepared"`
}

// AuditVerification is the answer of GET /audit/verify.
type AuditVerification struct {
	Intact  bool   `json:"intact" doc:"Every record is as it was written, and none is missing"`
	Records int64  `json:"records" doc:"That fit, from the oldest on"`
	Head    string `json:"head" doc:"Hash of the last that fits; keep it elsewhere to notice if the whole log is written anew"`
	Broken  int64  `json:"broken,omitempty" doc:"Number of the first record that is changed or missing; neither it nor any after it can be trusted"`
}

// Decision describes the outcome of one attempt to leave a sandbox, or of several that were alike. It holds no query,
// header, body or secret: a path has "…" where it would show one.
type Decision struct {
	Seq       int64     `json:"seq" doc:"Its number, in the order of recording; some may be missing"`
	Time      time.Time `json:"time" doc:"When it began"`
	Execution string    `json:"execution,omitempty"`
	Sandbox   string    `json:"sandbox,omitempty"`
	Client    string    `json:"client,omitempty" doc:"Who asked for the execution: local, key:NAME or ip:ADDRESS"`
	Entry     Entry     `json:"entry,omitempty" enum:"dns,transparent,connect,absolute-form,socks5" doc:"The way in: a question for a name, a connection that was redirected, or one to the proxy"`
	Protocol  Protocol  `json:"protocol,omitempty" enum:"http,https,tls,tcp" doc:"What was spoken, as far as was seen: tls was not looked into, tcp is anything else; absent for a question"`
	Host      string    `json:"host,omitempty"`
	Port      uint16    `json:"port,omitempty"`
	Method    string    `json:"method,omitempty" doc:"Of HTTP, or the type of the question for a name"`
	Path      string    `json:"path,omitempty"`
	Verdict   Verdict   `json:"verdict" enum:"allow,deny,lost" doc:"lost: count decisions could not be recorded"`
	Stage     Stage     `json:"stage,omitempty" doc:"How far it came: the stage that refused it or took it"`
	Rule      string    `json:"rule,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Remedy    string    `json:"remedy,omitempty" doc:"The command that would allow it"`
	Status    int       `json:"status,omitempty" doc:"Of the HTTP answer"`
	Sent      int64     `json:"sent" doc:"Bytes from the sandbox; of HTTP the bodies"`
	Received  int64     `json:"received" doc:"Bytes to the sandbox; of HTTP the bodies"`
	Duration  float64   `json:"duration" doc:"Seconds"`
	Count     int64     `json:"count" doc:"How many attempts it stands for; bytes and seconds are of all together"`
}

// Verdict is how an attempt to leave a sandbox was judged.
type Verdict string

const (
	VerdictAllow Verdict = "allow"
	VerdictDeny  Verdict = "deny"
	VerdictLost  Verdict = "lost" // Count decisions could not be recorded
)

// Entry is the way by which an attempt came.
type Entry string

// EntryDNS is a question for a name. The others are ways that connections come
// in: transparent, connect, absolute-form, socks5.
const EntryDNS Entry = "dns"

// Protocol is the protocol of a connection, as far as the gateway sees.
type Protocol string

const (
	ProtocolHTTP  Protocol = "http"
	ProtocolHTTPS Protocol = "https" // intercepted
	ProtocolTLS   Protocol = "tls"   // not looked into
	ProtocolTCP   Protocol = "tcp"   // anything else
)

// Stage is a part of the gateway's pipeline.
type Stage string

const (
	StageProtocol    Stage = "protocol"    // it could not be read in one way
	StagePolicy      Stage = "policy"      // rules
	StageApproval    Stage = "approval"    // the answer of a user
	StageEndpoint    Stage = "endpoint"    // the gateway's own
	StageGitHub      Stage = "github"      // what GitHub is asked to do
	StageGit         Stage = "git"         // what is asked of repositories over git
	StageBudget      Stage = "budget"      // of models
	StageRate        Stage = "rate"        // limits of rates, and of how much at once
	StageBreaker     Stage = "breaker"     // an upstream that fails is left alone
	StageCredentials Stage = "credentials" // a credential was not available
	StagePackages    Stage = "packages"    // answered from the cache of packages
	StageDial        Stage = "dial"        // the address, and the connection to it
	StageUpstream    Stage = "upstream"    // the origin, or for a name the resolver
)

// DecisionList is a page of GET /network/decisions, newest first. The query may
// have execution, host, verdict, since and until (RFC 3339), cursor and limit.
type DecisionList struct {
	Decisions  []Decision `json:"decisions" nullable:"false"`
	NextCursor string     `json:"next_cursor,omitempty" doc:"For the query cursor of the next page; absent on the last one"`
}

// EventDecision is the SSE event of GET /network/decisions/stream; its data is a
// Decision, its id the decision's number.
const EventDecision = "decision"

// OutputEvent is the data of the SSE events stdout and stderr.
type OutputEvent struct {
	Data     string `json:"data" doc:"Text, or base64 when the bytes are not UTF-8"`
	Encoding string `json:"encoding,omitempty" enum:"base64"`
}

// Error is the body of every failed request, and the data of the SSE event error.
type Error struct {
	Error     string `json:"error" doc:"What is wrong, and what to do"`
	Code      string `json:"code" doc:"From a closed list, for programs"`
	Hint      string `json:"hint,omitempty" doc:"The part of error that says what to do next, by itself"`
	RequestID string `json:"request_id"`
}

// KeyList is the answer of GET /keys.
type KeyList struct {
	Keys []Key `json:"keys" nullable:"false"`
}

// Key is an API key in the server's configuration: what it may do, and what it has used. The key itself is nowhere.
type Key struct {
	Name        string       `json:"name" example:"ci"`
	Scopes      []string     `json:"scopes" nullable:"false" example:"[\"run\",\"read\"]"`
	Expires     *time.Time   `json:"expires,omitempty" doc:"From then on it is not valid; absent: never"`
	ModelBudget *ModelBudget `json:"model_budget,omitempty" doc:"In all its time; absent: it may use none"`
	ModelsUsed  ModelsUsed   `json:"models_used"`
}

// ModelsUsed counts what a key has used of its model budget, in all its time: nothing of it is given back.
type ModelsUsed struct {
	Requests int64   `json:"requests" doc:"Sent, also those that failed"`
	Tokens   int64   `json:"tokens" doc:"In both directions, with what is reserved for requests under way"`
	Cost     float64 `json:"cost" doc:"Dollars, as far as prices are known, with what is reserved"`
}

// RuntimeList is the answer of GET /runtimes.
type RuntimeList struct {
	Runtimes []Runtime `json:"runtimes" nullable:"false"`
}

// Runtime is one row of GET /runtimes.
type Runtime struct {
	Name      string  `json:"name"`
	Available bool    `json:"available"`
	Version   string  `json:"version,omitempty"`
	Missing   string  `json:"missing,omitempty" doc:"What to install when it is not available"`
	Limits    Limits  `json:"limits"`
	Timeout   float64 `json:"timeout"`
}

// Health is the answer of GET /health. Callers without a key get the status only.
type Health struct {
	Status  string            `json:"status" enum:"ok,degraded" doc:"degraded when it is not ready"`
	Version string            `json:"version,omitempty"`
	Engines map[string]string `json:"engines,omitempty" doc:"Each engine: ok, not used yet, or why it cannot be used"`
	Store   string            `json:"store,omitempty" doc:"The database: ok, or why it cannot be read"`
	Active  int               `json:"active,omitempty" doc:"Executions that run, of all callers; for keys with the scope metrics or admin"`
	Queued  int               `json:"queued,omitempty" doc:"Executions that wait for a place; for the same"`
	PID     int               `json:"pid,omitempty" doc:"The server's process, as its machine numbers it"`
	Since   *time.Time        `json:"since,omitempty" doc:"When it began to serve"`
	Listens []string          `json:"listens,omitempty" doc:"Addresses of its network listeners"`
	// Background is set for a server that a command has started because none answered; it ends when it is idle.
	Reads      []string `json:"reads,omitempty" doc:"For the owner: variables of its environment from which credentials are read"`
	Background bool     `json:"background,omitempty" doc:"A command has started it, in the background"`
}

// GatewayPolicy is a policy for requests that leave: documents, then the rest.
type GatewayPolicy struct {
	Policies    []PolicyText `json:"policies,omitempty" doc:"Layers, first to last"`
	Mode        string       `json:"mode,omitempty" enum:"none,limited,host-only,open" doc:"none: nothing; limited (default): what is allowed; host-only: named services of the host; open: everything but private addresses"`
	Allow       []string     `json:"allow,omitempty" doc:"HOST, *.HOST, ADDRESS or CIDR, each with :PORT or without (80 and 443)"`
	Deny        []string     `json:"deny,omitempty" doc:"The same; what is denied wins"`
	Presets     []string     `json:"presets,omitempty" doc:"Names of sets of rules that come with Cove, as \"cove policy presets\" lists them" example:"[\"npm\",\"pypi\"]"`
	PassThrough []string     `json:"pass_through,omitempty" doc:"HOST, *.HOST, ADDRESS or CIDR, each with :PORT or without (80 and 443), allowed without a look into the connections: for programs that do not accept the sandbox's authority"`
	AllowPR     bool         `json:"allow_pr,omitempty" doc:"GitHub's API, where it may be reached, may be asked to open pull requests, to comment, and to comment in reviews; otherwise only to read"`
}

// PolicyText is a policy document.
type PolicyText struct {
	Source string `json:"source" maxLength:"255" example:"policy.yaml" doc:"What verdicts name it by"`
	Text   string `json:"text" doc:"YAML"`
}
