package guest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Hello is the guest's first message on every connection.
type Hello struct {
	Version int `json:"version"`
	// Processes run, or have an exit that is not collected; for a host that reconnects.
	Processes []uint32 `json:"processes,omitempty"`
	Threads   int64    `json:"threads,omitempty"` // of a keeper
}

// Op is the operation of a request.
type Op string

const (
	OpHealth Op = "health" // → Health
	OpBegin  Op = "begin"  // Begin → nothing; once, first
	OpSetup  Op = "setup"  // Setup → nothing; once, after OpBegin and before OpBind
	OpBind   Op = "bind"   // Bind → nothing, with the listeners' descriptors; once
	OpStart  Op = "start"  // ProcessSpec → Started; the request's id becomes the process's
	OpAttach Op = "attach" // Attach → Attached; sends again what is not acknowledged
	OpSignal Op = "signal" // Signal → nothing
	OpResize Op = "resize" // Resize → nothing
	OpWrite  Op = "write"  // WriteFile and raw bytes → nothing
	OpRead   Op = "read"   // ReadFile → FileInfo and raw bytes
	OpStat   Op = "stat"   // Path → FileInfo
	OpList   Op = "list"   // Path → []FileInfo
	OpMkdir  Op = "mkdir"  // WriteFile without bytes → nothing; parents are made too
	OpRemove Op = "remove" // Path → nothing; recursive
	// OpPark makes a named pipe at a path, whose reader waits; one at a time. OpRelease puts a file in its place, and
	// gives the reader the file's content and its end.
	OpPark    Op = "park"    // Path → nothing
	OpRelease Op = "release" // WriteFile and at most MaxParked raw bytes → nothing
	// OpZygote makes a zygote of a program that waits at the pipe of OpPark, for the Bind of other sandboxes.
	OpZygote Op = "zygote" // Zygote → nothing, with the zygote's descriptor
	OpStats  Op = "stats"  // → Stats
	// OpProcesses describes the processes of Hello, for a host that has returned.
	OpProcesses Op = "processes" // → []ProcessInfo
	// OpNote stores raw bytes of the host with a process and replaces earlier ones; OpNoted reads them. A returning
	// host needs them beside the output that it has acknowledged.
	OpNote  Op = "note"  // Note and raw bytes → nothing
	OpNoted Op = "noted" // Note → raw bytes
	// OpListeners returns Bind's listeners again, for a host that has returned.
	OpListeners Op = "listeners" // → Listeners
	// OpSocket makes a TCP socket of IPv6 in the sandbox's network namespace, for the host to connect. A socket whose
	// caller has left serves the next one.
	OpSocket Op = "socket" // → nothing, with the socket's descriptor
)

// Request is the JSON of a FrameRequest.
type Request struct {
	Op     Op              `json:"op"`
	Params json.RawMessage `json:"params,omitempty"`
	FDs    int             `json:"fds,omitempty"` // descriptors that travel with this frame
}

// Failure answers a request that failed.
type Failure struct {
	Kind    FailureKind `json:"kind"`
	Message string      `json:"message"`
}

func (f *Failure) Error() string { return f.Message }

// FailureKind is the reason of a failure, from a closed list.
type FailureKind string

const (
	FailInvalid    FailureKind = "invalid"    // the request makes no sense
	FailNotFound   FailureKind = "not_found"  // no such file, program or process
	FailPermission FailureKind = "permission" // the user inside may not
	FailExists     FailureKind = "exists"     // already there
	FailNoSpace    FailureKind = "no_space"   // the sandbox's disk is full
	FailNoProcess  FailureKind = "no_process" // the pids limit refused the start
	FailState      FailureKind = "state"      // not in this phase: before Bind, or a second time
	FailOther      FailureKind = "other"
)

// ProcessSpec is a process to start.
type ProcessSpec struct {
	Args []string `json:"args"` // Args[0] is looked up in Env's PATH
	Env  []string `json:"env"`  // the whole environment, KEY=VALUE
	Dir  string   `json:"dir"`
	// Stdin announces input; without it standard input is empty.
	Stdin bool `json:"stdin,omitempty"`
	// TTY gives the process a terminal of Rows and Cols; all output is then Stdout.
	TTY  bool   `json:"tty,omitempty"`
	Rows uint16 `json:"rows,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
	// Alone ends every other process of the sandbox when this one exits, so that its output is complete.
	Alone bool `json:"alone,omitempty"`
	// StdoutLimit and StderrLimit bound the bytes sent to the host; the rest is read and dropped. Zero means no limit.
	StdoutLimit int64 `json:"stdout_limit,omitempty"`
	StderrLimit int64 `json:"stderr_limit,omitempty"`
	// OutputCap ends the process when both streams together exceed it. Zero means no cap.
	OutputCap int64 `json:"output_cap,omitempty"`
	// Label is stored with the process for OpProcesses: at most MaxLabel bytes that the guest does not interpret.
	Label []byte `json:"label,omitempty"`
	// Keep is the host's own: the guest remembers the process, its retained output and its exit, until Forget.
	Keep bool `json:"-"`
}

// Check refuses strings that no system call takes.
func (s ProcessSpec) Check() error {
	for _, text := range slices.Concat([]string{s.Dir}, s.Args, s.Env) {
		if strings.IndexByte(text, 0) >= 0 {
			return &Failure{Kind: FailInvalid, Message: "a NUL byte in an argument, the environment or the directory"}
		}
	}
	return nil
}

const (
	// MaxLabel bounds ProcessSpec.Label, in bytes, so that the labels of all processes fit into one answer.
	MaxLabel = 512
	// MaxNote bounds a note, in bytes.
	MaxNote = 256 << 10
	// MaxProcesses bounds the processes that a guest holds.
	MaxProcesses = 1024
)

// ProcessInfo describes a process whose exit has not been collected.
type ProcessInfo struct {
	ID    uint32 `json:"id"`
	Label []byte `json:"label,omitempty"`
	TTY   bool   `json:"tty,omitempty"`
	// Stdout and Stderr are the offsets of the earliest output still retained; OpAttach cannot go back further.
	Stdout uint64 `json:"stdout"`
	Stderr uint64 `json:"stderr"`
	// StdoutEnd is the offset of Stdout's end so far.
	StdoutEnd uint64 `json:"stdout_end"`
}

// Zygote names a process, and the named pipe at which it waits.
type Zygote struct {
	Process uint32 `json:"process"`
	Path    string `json:"path"`
}

// Note names the process of a note.
type Note struct {
	Process uint32 `json:"process"`
}

// Started answers OpStart.
type Started struct {
	PID int `json:"pid"` // inside the sandbox
}

// Exit is how a process ended. All its output has been sent before.
type Exit struct {
	Code          int    `json:"code"`             // 128+signal when a signal ended it
	Signal        int    `json:"signal,omitempty"` // 0 when it exited by itself
	StdoutDropped uint64 `json:"stdout_dropped,omitempty"`
	StderrDropped uint64 `json:"stderr_dropped,omitempty"`
	OutputCapped  bool   `json:"output_capped,omitempty"`
	Stats         Stats  `json:"stats"` // at the exit
}

// Stats are the counters that are visible only inside the sandbox.
type Stats struct {
	BytesWritten int64 `json:"bytes_written"` // passed to write calls by reaped processes
	DiskUsed     int64 `json:"disk_used"`     // bytes in writable places
	DiskSize     int64 `json:"disk_size"`
	InodesUsed   int64 `json:"inodes_used"`
	InodesSize   int64 `json:"inodes_size"`
	// Exhausted reports that one of several writable places is full, whatever room the others have.
	Exhausted bool `json:"exhausted,omitempty"`
}

// Full reports whether a writable place has run out of bytes or inodes.
func (s Stats) Full() bool {
	const page = 4096
	return s.Exhausted || s.DiskSize > 0 && s.DiskSize-s.DiskUsed < page ||
		s.InodesSize > 0 && s.InodesUsed >= s.InodesSize
}

// Attach requests a process's output again, from the given offsets.
type Attach struct {
	Process uint32 `json:"process"`
	Stdout  uint64 `json:"stdout"`
	Stderr  uint64 `json:"stderr"`
}

// Attached answers OpAttach: input continues at Stdin, and the process has taken it up to StdinTaken. A guest of an
// earlier build, which may still run, does not say the latter.
type Attached struct {
	Stdin      uint64  `json:"stdin"`
	StdinTaken *uint64 `json:"stdin_taken,omitempty"`
}

// Listeners answers OpListeners; FDs descriptors travel with it.
type Listeners struct {
	Count int `json:"count"`
}

// Signal is sent to a process's group, or to every process when All is set.
type Signal struct {
	Process uint32 `json:"process,omitempty"`
	All     bool   `json:"all,omitempty"`
	Signal  int    `json:"signal"`
}

// Resize changes a process's terminal.
type Resize struct {
	Process uint32 `json:"process"`
	Rows    uint16 `json:"rows"`
	Cols    uint16 `json:"cols"`
}

// Path names a file, absolute inside the sandbox.
type Path struct {
	Path string `json:"path"`
}

// WriteFile writes the request's raw bytes to a file, as the sandbox's user.
type WriteFile struct {
	Path   string `json:"path"`
	Mode   uint32 `json:"mode"`   // permission bits
	Offset int64  `json:"offset"` // 0 truncates
}

// ReadFile reads at most MaxChunk bytes of a regular file.
type ReadFile struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
}

// FileInfo describes a file. A symlink is described itself, not its target.
type FileInfo struct {
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"` // as io/fs.FileMode
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"` // of a symlink
	// Dev and Ino identify the file, with the same values on both sides of a mount; 0 if unknown.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
}

// Health answers OpHealth.
type Health struct {
	Bound     bool `json:"bound"`
	Processes int  `json:"processes"`
}
