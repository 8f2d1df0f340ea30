package api

import "time"

// SandboxRequest asks for a detached sandbox: POST /sandboxes. With a
// repository it has a checkout of it at /workspace, on a branch of its own.
type SandboxRequest struct {
	Name       string             `json:"name,omitempty" doc:"Small letters, digits and hyphens, at most 63; made up when absent" example:"brave-otter"`
	IfExists   string             `json:"if_exists,omitempty" enum:"error,return" doc:"When the caller has a sandbox of this name: error (default) refuses with 409; return answers with that sandbox as it is, after waiting for it while it is being made, and starting it if it does not run"`
	Repository *RepositoryRequest `json:"repository,omitempty"`
	Bind       string             `json:"bind,omitempty" doc:"A directory of the machine to be the workspace itself, instead of one that is made; it must lie under sandbox.allowed_workdir_roots, or come from the local command line"`
	Spec
	Profile     string             `json:"profile,omitempty" doc:"Name of a profile of the configuration; what the request says itself wins"`
	Agent       string             `json:"agent,omitempty" doc:"An agent, as GET /agents lists it, whose screen its terminal shows instead of a shell, with what it needs; another name is a program of the image"`
	AgentTasks  bool               `json:"agent_tasks,omitempty" doc:"For tasks of the agent, without a screen too"`
	Network     *NetworkPermission `json:"network,omitempty"`
	Files       []File             `json:"files,omitempty" doc:"Files to place in the workspace, at most 256"`
	AgentConfig *AgentConfig       `json:"agent_config,omitempty" doc:"A user's own configuration of the agent, which the caller has read"`
	WorkDir     string             `json:"work_dir,omitempty" doc:"Where its processes begin, relative to /workspace or absolute"`
	ImageUser   string             `json:"image_user,omitempty" maxLength:"256" doc:"The user that the image is taken to say, in the place of its own, NAME or UID with :GROUP or without; as with that, root is not taken, and an engine without users of images ignores it" example:"vscode"`
	AllowPR     bool               `json:"allow_pr,omitempty" doc:"Pull requests may be opened and commented on"`
	Git         *GitIdentity       `json:"git,omitempty"`
	Services    []ServiceRequest   `json:"services,omitempty" maxItems:"16" doc:"Sandboxes beside it, each with the program of an image, which run and are ready before it does, and which it reaches by their names"`
	Volumes     []Volume           `json:"volumes,omitempty" maxItems:"32" doc:"Directories of its own, which no other sandbox sees"`
	SSHAgent    string             `json:"ssh_agent,omitempty" doc:"Socket of an SSH agent of the machine, for its owner: it signs for the sandbox, which sees no key"`
}

// ServiceRequest describes a service of a sandbox.
type ServiceRequest struct {
	Name    string            `json:"name" doc:"By which the sandbox and its other services reach it: small letters, digits and hyphens within, at most 32, with a letter first" example:"db"`
	Image   string            `json:"image" doc:"dir:PATH, tar:PATH or a reference; its ENTRYPOINT, CMD, USER, ENV, WORKDIR, HEALTHCHECK and EXPOSE hold" example:"postgres:15"`
	Args    []string          `json:"args,omitempty" doc:"In place of the image's CMD"`
	Env     map[string]string `json:"env,omitempty" doc:"Variables, beside those of the image"`
	Ports   []uint16          `json:"ports,omitempty" maxItems:"64" doc:"TCP ports that all accept connections once it is ready; without, one of those that the image exposes. A HEALTHCHECK of the image decides before either" example:"[5432]"`
	Limits  *Limits           `json:"limits,omitempty" doc:"Of the service alone; what is left out is as for any sandbox"`
	Volumes []Volume          `json:"volumes,omitempty" maxItems:"32" doc:"Directories of the service alone"`
}

// Volume is a directory of a sandbox's own.
type Volume struct {
	Target string `json:"target" doc:"Absolute path inside" example:"/data"`
	Memory bool   `json:"memory,omitempty" doc:"It is in memory, empty at each start; otherwise it is on the sandbox's disk, and lasts as long as the sandbox"`
	SizeMB int64  `json:"size_mb,omitempty" minimum:"1" doc:"In memory, within limits.disk_mb; that much when absent"`
}

// Service is a service of a sandbox, as the sandbox shows it.
type Service struct {
	Name    string `json:"name" doc:"By which the group reaches it"`
	Sandbox string `json:"sandbox" doc:"Its own name as a sandbox, for commands in it" example:"brave-otter.db"`
	ID      string `json:"id"`
	Image   string `json:"image"`
	State   string `json:"state" enum:"preparing,running,paused,stopped,failed,destroying"`
	Error   string `json:"error,omitempty" doc:"Why it stopped or failed"`
}

// AgentConfig is a user's own configuration of a sandbox's agent. JSON and TOML documents that Cove writes for the agent
// as well are merged, and Cove's own values win.
type AgentConfig struct {
	Files   []File   `json:"files" nullable:"false" doc:"Relative to the home, at most 1024"`
	Brought []string `json:"brought,omitempty" maxItems:"200" doc:"What the files are, in words, which the sandbox shows; their paths when absent" example:"[\"3 skills\"]"`
	LeftOut []string `json:"left_out,omitempty" maxItems:"200" doc:"What the caller has left out, in words, which the sandbox shows"`
}

// AgentConfigShown describes the configuration of a user in a sandbox.
type AgentConfigShown struct {
	Brought []string `json:"brought" nullable:"false"`
	LeftOut []string `json:"left_out,omitempty"`
}

// GitIdentity is the author of a sandbox's commits.
type GitIdentity struct {
	Name  string `json:"name,omitempty" yaml:"name,omitempty" example:"Ada Byron"`
	Email string `json:"email,omitempty" yaml:"email,omitempty" example:"ada@example.com"`
}

// RepositoryRequest selects the repository that a sandbox works on.
type RepositoryRequest struct {
	Source      string          `json:"source" doc:"An HTTPS address, OWNER/REPO of GitHub, or for the machine's owner a directory" example:"https://git.example/owner/repo.git"`
	Branch      string          `json:"branch,omitempty" doc:"The sandbox's own; made up when absent" example:"cove/brave-otter"`
	From        string          `json:"from,omitempty" doc:"A branch, tag or commit to begin at; the default branch when absent, what a directory has checked out, or Branch where the repository has it"`
	Sparse      []string        `json:"sparse,omitempty" doc:"Directories to check out, instead of all"`
	Depth       int             `json:"depth,omitempty" minimum:"1" doc:"History to fetch, in commits; all when absent"`
	Ignored     []string        `json:"ignored,omitempty" maxItems:"100" doc:"Of a directory: paths that git ignores there, such as node_modules, to copy into the checkout nevertheless"`
	Uncommitted bool            `json:"uncommitted,omitempty" doc:"Of a directory: begin at what is in its files now, and not at what is committed; it need not be a repository"`
	Upload      *UploadedFolder `json:"upload,omitempty" doc:"A folder of another machine, whose name is source: file://HOST/PATH"`
	Worktree    bool            `json:"worktree,omitempty" doc:"A worktree of a repository outside, to edit from the host: git inside is a service"`
}

// Sandbox is a detached sandbox, as GET /sandboxes/{sandbox} shows it.
type Sandbox struct {
	ID          string             `json:"id"`
	Name        string             `json:"name"`
	State       string             `json:"state" enum:"preparing,running,paused,stopped,failed,destroying"`
	Error       string             `json:"error,omitempty" doc:"Why it failed, and what to do"`
	Engine      string             `json:"engine"`
	Isolation   string             `json:"isolation,omitempty" enum:"container,gvisor,microvm" doc:"What stands between it and the host"`
	Image       string             `json:"image"`
	Root        bool               `json:"root,omitempty" doc:"Its programs are, or may become, root inside"`
	User        string             `json:"user,omitempty" doc:"Of its image, whom its programs are"`
	Debuggers   bool               `json:"debuggers,omitempty" doc:"Its programs may trace others of it"`
	Profile     string             `json:"profile,omitempty"`
	Agent       string             `json:"agent,omitempty"`
	AgentConfig *AgentConfigShown  `json:"agent_config,omitempty" doc:"What was brought of a user's own configuration of the agent, and what was left out"`
	Repository  *SandboxRepository `json:"repository,omitempty"`
	Directory   string             `json:"directory" doc:"The workspace on the host"`
	WorkDir     string             `json:"work_dir" doc:"Where its processes begin, inside"`
	Within      string             `json:"within,omitempty" doc:"Id of the sandbox that others share with this one, which is no more than a checkout in it"`
	Services    []Service          `json:"services,omitempty" doc:"Of its group, which it reaches by their names"`
	ServiceOf   string             `json:"service_of,omitempty" doc:"Id of the sandbox that this one is a service of; lists leave services out"`
	Network     string             `json:"network" enum:"none,limited,host-only,open"`
	AllowPR     bool               `json:"allow_pr,omitempty"`
	SSHAgent    bool               `json:"ssh_agent,omitempty"`
	Limits      Limits             `json:"limits"`
	Mounts      []Mount            `json:"mounts" nullable:"false"`
	Volumes     []Volume           `json:"volumes,omitempty" doc:"Directories of its own"`
	Exposes     []string           `json:"exposes,omitempty" doc:"Variables whose real tokens whatever runs in it can read, because its profile has a token_file"`
	Labels      map[string]string  `json:"labels,omitempty"`
	Terminals   []Terminal         `json:"terminals,omitempty" doc:"What runs in terminals, while the sandbox runs; absent in lists"`
	DiskUsed    int64              `json:"disk_used" doc:"Bytes of its workspace and home; absent in lists"`
	DiskBound   string             `json:"disk_bound,omitempty" enum:"image,watched" doc:"What holds them to limits.disk_mb: the kernel, by a file system of their own in an image file, or Cove, which measures them and pauses the sandbox; absent for sandboxes of earlier versions, which nothing holds to it, and in lists"`
	Made        []Made             `json:"made_in_mounts,omitempty" doc:"In the answer of the first stop after its end, if none has told it: what came into being in its writable mounts that decides what programs of their owner run"`
	CreatedBy   string             `json:"created_by" doc:"local, key:NAME or ip:ADDRESS"`
	OfAnother   bool               `json:"of_another,omitempty" doc:"Whether it belongs to another caller"`
	CreatedAt   time.Time          `json:"created_at"`
	LastUsedAt  time.Time          `json:"last_used_at"`
}

// Made names places that came into being in a writable mount and decide what programs of its owner run.
type Made struct {
	Paths  []string `json:"paths" nullable:"false" doc:"On the host, git's own first"`
	Detail string   `json:"detail" doc:"In a sentence"`
}

// Destroyed is the answer of DELETE /sandboxes/{sandbox} where there is something to say.
type Destroyed struct {
	Made []Made `json:"made_in_mounts" nullable:"false" doc:"What came into being in its writable mounts that decides what programs of their owner run"`
}

// SandboxRepository is the repository of a sandbox.
type SandboxRepository struct {
	Source   string `json:"source" doc:"As it was asked for"`
	Remote   string `json:"remote,omitempty" doc:"Where pushes go; absent when there is none"`
	Branch   string `json:"branch" doc:"The sandbox's own"`
	From     string `json:"from" doc:"What it began at"`
	Base     string `json:"base" doc:"Id of the commit it began at"`
	Worktree bool   `json:"worktree,omitempty"`
}

// SandboxList is the answer of GET /sandboxes, newest first.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes" nullable:"false"`
	Orphans   []string  `json:"orphans,omitempty" doc:"Workspaces that belong to no sandbox; \"cove destroy\" removes them by their id"`
}

// SandboxChange changes a sandbox: PATCH /sandboxes/{sandbox}.
type SandboxChange struct {
	Name   string `json:"name,omitempty"`
	DiskMB int64  `json:"disk_mb,omitempty" minimum:"0" maximum:"1048576" doc:"MiB of workspace and home together"`
}

// CommitRequest says what image to make of a sandbox: POST /sandboxes/{sandbox}/commit.
type CommitRequest struct {
	Image   string   `json:"image" maxLength:"512" doc:"What it will be called: NAME or NAME:TAG" example:"mine:latest"`
	Changes []string `json:"changes,omitempty" maxItems:"100" doc:"Instructions of a Dockerfile"`
}

// CommittedImage is an image that was made of a sandbox.
type CommittedImage struct {
	Digest string `json:"digest" example:"sha256:0123"`
	Name   string `json:"name" example:"mine:latest"`
	Size   int64  `json:"size" doc:"Bytes of its files"`
	Files  int64  `json:"files"`
}

// Names of the SSE events of POST /sandboxes; done or error is the last.
const (
	EventProgress = "progress" // Progress
	EventCreated  = "created"  // Sandbox, the last event of one that was made, or returned
)

// Values of SandboxRequest.IfExists.
const (
	IfExistsError  = "error"
	IfExistsReturn = "return"
)

// Progress is one step of something that takes a while.
type Progress struct {
	Step    string  `json:"step" doc:"In words" example:"fetching https://git.example/owner/repo.git"`
	Done    float64 `json:"done,omitempty" doc:"0 to 1, where it is known"`
	Bytes   int64   `json:"bytes,omitempty" doc:"Those that are there of a transfer, where they are counted"`
	Total   int64   `json:"total,omitempty" doc:"Bytes in all, or about as many, where that is known"`
	Elapsed float64 `json:"elapsed" doc:"Seconds since the beginning"`
}

// ExecRequest runs a command in a sandbox: POST /sandboxes/{sandbox}/exec.
type ExecRequest struct {
	Args        []string          `json:"args" doc:"Program and arguments; no shell"`
	Env         map[string]string `json:"env,omitempty"`
	WorkDir     string            `json:"work_dir,omitempty" doc:"Relative to the sandbox's, or absolute"`
	Timeout     Seconds           `json:"timeout,omitempty" doc:"None when absent"`
	Stdin       string            `json:"stdin,omitempty"`
	StdinStream bool              `json:"stdin_stream,omitempty" doc:"Standard input will follow at POST /executions/{id}/stdin"`
	Detach      bool              `json:"detach,omitempty" doc:"Go on when the caller or the server leaves; its input then ends, and what it prints is dropped"`
	Git         bool              `json:"git,omitempty" doc:"It needs git: where the image has none, it runs in a sandbox beside, on the same files, with the machine's toolchain and the same policy"`
}

// ExecResult is how a command in a sandbox ended: the data of the SSE event done.
type ExecResult struct {
	ID       string  `json:"id"`
	ExitCode int     `json:"exit_code" doc:"128+N for signal N"`
	Duration float64 `json:"duration" doc:"Seconds"`
	LimitHit string  `json:"limit_hit,omitempty" enum:"oom,timeout,disk" doc:"What ended it; oom with exit code 137"`
}

// Terminal is a program in a terminal of a sandbox. It runs on while no client is attached.
type Terminal struct {
	ID        string    `json:"id" example:"t1"`
	Args      []string  `json:"args" nullable:"false" doc:"Its program; long arguments are cut short once another server has it"`
	Title     string    `json:"title,omitempty" doc:"What the program calls its window"`
	Attached  int       `json:"attached" doc:"How many look at it"`
	Rows      int       `json:"rows"`
	Columns   int       `json:"columns"`
	CreatedAt time.Time `json:"created_at"`
	ExitCode  *int      `json:"exit_code,omitempty" doc:"Of one that has ended; 128+N for signal N, -1 when it is not known"`
}

// TerminalList is the answer of GET /sandboxes/{sandbox}/terminals: the oldest
// first, the last few that have ended among them.
type TerminalList struct {
	Terminals []Terminal `json:"terminals" nullable:"false"`
}

// TerminalMessage is a text message of GET /sandboxes/{sandbox}/terminal, either
// way; binary messages are what the program shows, and what is typed.
type TerminalMessage struct {
	// Type is of the client resize (Rows, Columns) and colors (Foreground, Background); of the server attached
	// (Terminal), and as the last message exit (ExitCode) or error (Error).
	Type       string `json:"type" enum:"resize,colors,attached,exit,error"`
	Terminal   string `json:"terminal,omitempty"`
	Rows       int    `json:"rows,omitempty"`
	Columns    int    `json:"columns,omitempty"`
	Foreground string `json:"foreground,omitempty" doc:"As in rgb:0000/0000/0000, for programs that ask"`
	Background string `json:"background,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty" doc:"128+N for signal N"`
	Error      *Error `json:"error,omitempty"`
}

// Types of TerminalMessage.
const (
	TerminalResize   = "resize"
	TerminalColors   = "colors"
	TerminalAttached = "attached"
	TerminalExit     = "exit"
	TerminalError    = "error"
)

// PortMessage is a text message of GET /sandboxes/{sandbox}/ports/{port}, either way; binary messages are what a side
// sends.
type PortMessage struct {
	Type string `json:"type" enum:"end" doc:"end: no more comes from the sender"`
}

// PortEnd is a type of PortMessage.
const PortEnd = "end"

// SignalRequest sends a signal to a command: POST /sandboxes/{sandbox}/exec/{id}/signal.
type SignalRequest struct {
	Signal string `json:"signal" enum:"HUP,INT,QUIT,KILL,USR1,USR2,TERM,CONT,STOP,TSTP,WINCH" example:"INT"`
}
