package api

import (
	"encoding/json"
	"time"
)

// RunRequest gives an agent a task: POST /runs. It works in a sandbox that is made for it, or in one that is there.
type RunRequest struct {
	Agent        string `json:"agent,omitempty" doc:"As GET /agents lists them; the profile's when absent" example:"claude"`
	Prompt       string `json:"prompt" doc:"The task, in words"`
	Model        string `json:"model,omitempty" doc:"Of the provider; the profile's, or the agent's own choice, when absent"`
	Instructions string `json:"instructions,omitempty" doc:"What the agent is told beside its own instructions"`
	MaxTurns     int    `json:"max_turns,omitempty" minimum:"1" doc:"Answers of the model; the agent's own bound when absent"`
	AgentOptions
	Schema     json.RawMessage `json:"schema,omitempty" doc:"A JSON Schema: the result's data is valid by it"`
	Timeout    Seconds         `json:"timeout,omitempty" doc:"Half an hour when absent"`
	Resume     string          `json:"resume,omitempty" doc:"An earlier run, whose conversation goes on in its sandbox"`
	Sandbox    string          `json:"sandbox,omitempty" doc:"Name or id of a sandbox to work in, instead of a new one"`
	Ignored    []string        `json:"ignored,omitempty" maxItems:"100" doc:"With directory: paths that git ignores there, such as node_modules, to copy nevertheless"`
	Directory  string          `json:"directory,omitempty" doc:"A directory of the machine, for its owner: the agent works on a private copy of it, with what is not committed. Of one that is within a repository all of that is copied, and the agent begins there"`
	Bind       bool            `json:"bind,omitempty" doc:"The directory itself, which the agent then changes, instead of a copy"`
	New        *SandboxRequest `json:"new,omitempty" doc:"What the new sandbox must be; its repository instead of directory"`
	SharedName string          `json:"shared_name,omitempty" doc:"Work in a checkout of its own in the shared sandbox of this name, which is made if there is none and stays; for a repository in new"`
	Keep       bool            `json:"keep,omitempty" doc:"Keep a sandbox that was made for this, also when nothing has changed in it"`
	Detach     bool            `json:"detach,omitempty" doc:"Go on when the caller leaves, who otherwise interrupts it so"`
}

// AgentOptions are options of a task that some agents have. Names of tools and of modes are the agent's own; an option
// that an agent does not have is refused.
type AgentOptions struct {
	AllowedTools    []string       `json:"allowed_tools,omitempty" yaml:"allowed_tools,omitempty" doc:"Tools that the agent may use; others are refused unless permission_mode says otherwise" example:"[\"Read\"]"`
	DisallowedTools []string       `json:"disallowed_tools,omitempty" yaml:"disallowed_tools,omitempty" doc:"Tools that the agent may not use"`
	MCPConfig       map[string]any `json:"mcp_config,omitempty" yaml:"mcp_config,omitempty" doc:"MCP servers of the task, as an object whose mcpServers has each by its name"`
	PermissionMode  string         `json:"permission_mode,omitempty" yaml:"permission_mode,omitempty" doc:"The agent's own mode of permissions, in place of one without questions" example:"plan"`
}

// Statuses of a Run. One that failed could not be done by the agent, which is
// not an error of Cove's; one with an error did not come to an end.
const (
	RunRunning     = "running"
	RunSucceeded   = "succeeded"
	RunFailed      = "failed"      // the agent says so, or ended with an exit code
	RunInterrupted = "interrupted" // a user ended it
	RunLimit       = "limit"       // a limit did: LimitHit says which
	RunError       = "error"       // Error says why
)

// Run is a task of an agent, and what became of it.
type Run struct {
	ID          string       `json:"id" example:"ru_0123456789abcdefghjkmnpqrs"`
	Agent       string       `json:"agent"`
	Interactive bool         `json:"interactive,omitempty" doc:"In a terminal, with a user: it has a recording, and no messages"`
	Version     string       `json:"version,omitempty" doc:"Of the agent's program"`
	Model       string       `json:"model,omitempty"`
	Profile     string       `json:"profile,omitempty"`
	Prompt      string       `json:"prompt" doc:"Cut short in lists"`
	Status      string       `json:"status" enum:"running,succeeded,failed,interrupted,limit,error"`
	Error       *Error       `json:"error,omitempty"`
	ExitCode    *int         `json:"exit_code,omitempty" doc:"Of the agent's program, once it has ended"`
	LimitHit    string       `json:"limit_hit,omitempty" enum:"oom,timeout,pids,disk,file_size,output,locks,turns,budget"`
	Limits      *Limits      `json:"limits,omitempty" doc:"Of its sandbox"`
	Timeout     float64      `json:"timeout,omitempty" doc:"In force, in seconds"`
	Result      string       `json:"result,omitempty" doc:"What the agent answered"`
	Session     string       `json:"session_id,omitempty" doc:"The agent's own name for the conversation"`
	Usage       AgentUsage   `json:"usage"`
	Sandbox     string       `json:"sandbox,omitempty" doc:"Id of the sandbox"`
	SandboxName string       `json:"sandbox_name,omitempty"`
	Directory   string       `json:"directory,omitempty" doc:"What it works on, on the machine"`
	Bind        bool         `json:"bind,omitempty"`
	Exposes     []string     `json:"exposes,omitempty" doc:"As of its sandbox: variables whose real tokens it can read"`
	Recordings  []string     `json:"recordings,omitempty" doc:"Terminals whose recordings are kept, for GET /runs/{run}/recordings/{terminal}; absent in lists"`
	Changes     []WorkChange `json:"changes,omitempty" doc:"What it changed, once it has ended; absent in lists and where it worked on the directory itself"`
	Made        []Made       `json:"made_in_mounts,omitempty" doc:"Once it has ended: what its sandbox has made in writable mounts by then that decides what programs of their owner run; absent in lists"`
	CreatedBy   string       `json:"created_by"`
	StartedAt   time.Time    `json:"started_at"`
	EndedAt     *time.Time   `json:"ended_at,omitempty"`
	Cut         bool         `json:"cut,omitempty" doc:"There was no room for all of it when it ended: result is cut short, or changes are missing"`
	OutputGone  string       `json:"output_gone,omitempty" enum:"history_size" doc:"Why its messages are gone"`
	Unrecorded  bool         `json:"unrecorded,omitempty" doc:"The server could not write this end to its history, and tries again while it runs"`
}

// RunList is the answer of GET /runs, newest first.
type RunList struct {
	Runs []Run  `json:"runs" nullable:"false"`
	Next string `json:"next,omitempty" doc:"Give it as before, for older ones"`
}

// Names of the SSE events of POST /runs and GET /runs/{run}/events, beside progress, holds, decision, done (Run) and
// error. The id of an event counts the messages and logs so far: sent as Last-Event-ID, what follows it comes.
const (
	EventRun     = "run"     // Run, once it has begun
	EventMessage = "message" // Message
	EventLog     = "log"     // OutputEvent: what the agent writes to its standard error
)

// RunInterrupt ends what an agent does: POST /runs/{run}/interrupt.
type RunInterrupt struct {
	Kill bool `json:"kill,omitempty" doc:"End it at once, instead of asking it to stop and to say what it has"`
}

// Agent is one that this server knows.
type Agent struct {
	Name      string   `json:"name" example:"claude"`
	Title     string   `json:"title" example:"Claude Code"`
	Installed string   `json:"installed,omitempty" doc:"Version that runs use"`
	Versions  []string `json:"versions,omitempty" doc:"All that are installed"`
	Ready     bool     `json:"ready" doc:"Whether its program is there; doctor tells whether it runs"`
	Pinned    string   `json:"pinned,omitempty" doc:"Version that is installed when nothing else is said"`
	Package   string   `json:"package,omitempty" doc:"Where it comes from; absent of one that comes with Cove, or with an image"`
	Size      int64    `json:"size,omitempty" doc:"Bytes on disk"`
	Provider  string   `json:"provider,omitempty" doc:"Whose models it uses when nothing else is said"`
	Hosts     []string `json:"hosts,omitempty" doc:"What it may reach"`
	Builtin   bool     `json:"builtin" doc:"Known to Cove; the others are declared in the configuration"`
}

// AgentList is the answer of GET /agents.
type AgentList struct {
	Agents []Agent `json:"agents" nullable:"false"`
}

// AgentInstall installs an agent: POST /agents/{agent}/install, for the machine's owner.
type AgentInstall struct {
	Version string `json:"version,omitempty" maxLength:"64" doc:"The pinned one when absent" example:"1.2.3"`
}

// EventInstalled is the last event of POST /agents/{agent}/install that succeeded: an Agent.
const EventInstalled = "installed"

// AgentRemoval is the answer of DELETE /agents/{agent}/versions.
type AgentRemoval struct {
	Removed []string `json:"removed" nullable:"false" doc:"Versions"`
}

// AgentReport is the answer of GET /agents/{agent}/doctor.
type AgentReport struct {
	Agent   string       `json:"agent"`
	Title   string       `json:"title"`
	Healthy bool         `json:"healthy" doc:"Whether nothing failed"`
	Checks  []AgentCheck `json:"checks" nullable:"false"`
}

// AgentCheck is one thing that an agent needs.
type AgentCheck struct {
	Name  string `json:"name" enum:"installed,runs,credential,network"`
	OK    bool   `json:"ok"`
	Found string `json:"found" doc:"What was found; never a value of a credential"`
	Fix   string `json:"fix,omitempty" doc:"What to do about it"`
}
