// Package cove is the vocabulary of Cove: sandboxes, executions, limits, usage, states and errors, as plain values.
//
// It imports the standard library only, decides nothing and does no I/O, so that every other package can speak it.
// ARCHITECTURE.md defines the words.
package cove

import (
	"crypto/rand"
	"encoding/base32"
	"slices"
	"strings"
	"time"
)

// SandboxID names one sandbox: "sb_" and 26 lower-case base32 characters
// (130 random bits), so that it can be neither guessed nor mistaken for a path.
type SandboxID string

// ExecutionID names one execution: "ex_" and 26 lower-case base32 characters.
type ExecutionID string

// InstanceID names one running Cove process (a server, or the daemon inside one "cove run"): "in_" and 26 lower-case
// base32 characters. Whatever an engine creates carries the instance that owns it.
type InstanceID string

// HoldID names what waits for an answer on its way out of a sandbox: "ho_" and 26 lower-case base32 characters.
type HoldID string

// RunID names one task of an agent: "ru_" and 26 lower-case base32 characters.
type RunID string

// ApprovalID names an approval that is remembered: "ap_" and 26 lower-case base32 characters.
type ApprovalID string

// UploadID names a folder that was uploaded for a sandbox: "up_" and 26 lower-case base32 characters.
type UploadID string

// NewUploadID returns a fresh random id.
func NewUploadID() UploadID { return UploadID(newID("up_")) }

// NewSandboxID returns a fresh random id.
func NewSandboxID() SandboxID { return SandboxID(newID("sb_")) }

// NewExecutionID returns a fresh random id.
func NewExecutionID() ExecutionID { return ExecutionID(newID("ex_")) }

// NewInstanceID returns a fresh random id.
func NewInstanceID() InstanceID { return InstanceID(newID("in_")) }

// NewHoldID returns a fresh random id.
func NewHoldID() HoldID { return HoldID(newID("ho_")) }

// NewRunID returns a fresh random id.
func NewRunID() RunID { return RunID(newID("ru_")) }

// NewApprovalID returns a fresh random id.
func NewApprovalID() ApprovalID { return ApprovalID(newID("ap_")) }

// Run returns the id of the run that an agent's execution is.
func (id ExecutionID) Run() RunID { return RunID("ru_" + strings.TrimPrefix(string(id), "ex_")) }

// ParseSandboxID accepts exactly what NewSandboxID makes.
func ParseSandboxID(s string) (SandboxID, error) {
	return SandboxID(s), checkID("sandbox", "sb_", s)
}

// ParseExecutionID accepts exactly what NewExecutionID makes.
func ParseExecutionID(s string) (ExecutionID, error) {
	return ExecutionID(s), checkID("execution", "ex_", s)
}

// ParseInstanceID accepts exactly what NewInstanceID makes.
func ParseInstanceID(s string) (InstanceID, error) {
	return InstanceID(s), checkID("instance", "in_", s)
}

// ParseHoldID accepts exactly what NewHoldID makes.
func ParseHoldID(s string) (HoldID, error) {
	return HoldID(s), checkID("hold", "ho_", s)
}

// ParseRunID accepts exactly what NewRunID makes.
func ParseRunID(s string) (RunID, error) {
	return RunID(s), checkID("run", "ru_", s)
}

// ParseApprovalID accepts exactly what NewApprovalID makes.
func ParseApprovalID(s string) (ApprovalID, error) {
	return ApprovalID(s), checkID("approval", "ap_", s)
}

// ParseUploadID accepts exactly what NewUploadID makes.
func ParseUploadID(s string) (UploadID, error) {
	return UploadID(s), checkID("upload", "up_", s)
}

const (
	idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz" // Crockford's, lower case
	idLength   = 26
)

var idEncoding = base32.NewEncoding(idAlphabet).WithPadding(base32.NoPadding)

func newID(prefix string) string {
	var b [17]byte // 136 bits, of which 26 characters keep 130
	rand.Read(b[:])
	return prefix + idEncoding.EncodeToString(b[:])[:idLength]
}

func checkID(noun, prefix, s string) error {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != idLength || strings.Trim(rest, idAlphabet) != "" {
		return Errorf(InvalidArgument, "%.64q is not a %s id (%s and %d characters)", s, noun, prefix, idLength)
	}
	return nil
}

// Isolation is how strong the wall around a sandbox is.
type Isolation string

const (
	// IsolationContainer is namespaces, cgroups, seccomp and no capabilities on the host's own kernel.
	IsolationContainer Isolation = "container"
	// IsolationGVisor is a kernel in user space between the sandbox and the host's.
	IsolationGVisor Isolation = "gvisor"
	// IsolationMicroVM is a virtual machine with a kernel of its own.
	IsolationMicroVM Isolation = "microvm"
)

// ParseIsolation accepts the name of an isolation; empty is the default.
func ParseIsolation(s string) (Isolation, error) {
	switch i := Isolation(s); i {
	case "", IsolationContainer, IsolationGVisor, IsolationMicroVM:
		return i, nil
	}
	return "", Errorf(InvalidArgument, "the isolation %.80q is none of container, gvisor, microvm", s).
		WithHint("choose one of them, or leave it out for the default")
}

// NetworkMode names how much a sandbox can reach. The zero value means none.
type NetworkMode string

const (
	// NetworkNone is loopback only: no route, no names.
	NetworkNone NetworkMode = "none"
	// NetworkLimited is the hosts on an allowlist.
	NetworkLimited NetworkMode = "limited"
	// NetworkHostOnly is named services of the host.
	NetworkHostOnly NetworkMode = "host-only"
	// NetworkOpen is everything but private and special addresses.
	NetworkOpen NetworkMode = "open"
)

// Limits bound one sandbox. Every field is enforced by the kernel or, for output and time, by Cove outside the sandbox;
// zero means the default, never "no limit".
type Limits struct {
	Memory    int64         // bytes of memory and tmpfs together; swap is off
	CPUs      float64       // quota in cores
	PIDs      int64         // tasks: processes and threads
	Disk      int64         // bytes of everything writable inside, together
	Inodes    int64         // files and directories of everything writable
	OpenFiles int64         // descriptors per process (RLIMIT_NOFILE)
	Stdout    int64         // bytes kept; the rest is dropped and reported
	Stderr    int64         // bytes kept; the rest is dropped and reported
	Timeout   time.Duration // wall time of an execution
}

// LimitKind says which limit ended an execution; empty when none did.
type LimitKind string

const (
	LimitOOM      LimitKind = "oom"       // memory: the kernel killed a process
	LimitTimeout  LimitKind = "timeout"   // wall time
	LimitPIDs     LimitKind = "pids"      // a fork or thread was refused
	LimitDisk     LimitKind = "disk"      // bytes or inodes ran out
	LimitFileSize LimitKind = "file_size" // a file was to have more bytes than the disk limit
	LimitOutput   LimitKind = "output"    // output went far beyond what is kept
	LimitLocks    LimitKind = "locks"     // programs held more locks of files than a sandbox may
)

// Status is the state of an execution.
type Status string

const (
	StatusRunning   Status = "running"
	StatusCompleted Status = "completed" // the program exited by itself, with any code
	StatusTimeout   Status = "timeout"
	StatusLimited   Status = "limited"  // another limit ended it
	StatusKilled    Status = "killed"   // by a caller, or because the caller went away
	StatusShutdown  Status = "shutdown" // by the server, which was told to stop; it may be run again
	StatusRefused   Status = "refused"  // an escape attempt of critical severity
	StatusFailed    Status = "failed"   // Cove could not run it, or was itself killed
)

// Usage holds the resources that an execution consumed. CPU, memory and pids are the kernel's
// own accounting of the sandbox's cgroup.
type Usage struct {
	CPUTime      time.Duration
	MemoryPeak   int64 // bytes, tmpfs files included
	PIDsPeak     int64
	BytesWritten int64 // bytes passed to write calls, output included
	DiskUsed     int64 // bytes in writable places when the execution ended
}

// Mount puts a host directory or file into a sandbox.
type Mount struct {
	Source   string // absolute host path; passes the allowlist first (invariant H5)
	Target   string // absolute path inside
	ReadOnly bool
	NoExec   bool // nothing in it can be run
	NoFollow bool // symbolic links in it lead nowhere
}

// The words of Spec.MountsAllow.
const (
	MountSockets = "sockets"
	MountSystem  = "system"
	MountGit     = "git"
	MountHooks   = "hooks"
)

// MountAllowOf returns what words of Spec.MountsAllow allow.
func MountAllowOf(words []string) MountAllow {
	return MountAllow{Sockets: slices.Contains(words, MountSockets), System: slices.Contains(words, MountSystem),
		Git: slices.Contains(words, MountGit), Hooks: slices.Contains(words, MountHooks)}
}

// CheckMountsAllow refuses unknown words. Errors: InvalidArgument.
func CheckMountsAllow(words []string) error {
	known := []string{MountSockets, MountSystem, MountGit, MountHooks}
	for _, w := range words {
		if !slices.Contains(known, w) {
			return Errorf(InvalidArgument, "mounts_allow: %.80q is none of %s", w, strings.Join(known, ", ")).
				WithHint("see docs/mounts.md")
		}
	}
	return nil
}

// MountAllow says what mounts may hold, or leave writable, that they otherwise may not.
type MountAllow struct {
	Sockets bool // unix sockets, and what was not searched for them
	System  bool // programs of the machine can be written
	Git     bool // repositories can be written, except what in them is Hooks
	Hooks   bool // files that decide what programs of their owner run can be written
}

// Open reports whether nothing of what the owner's programs run or obey is kept read-only.
func (a MountAllow) Open() bool { return a.Git && a.Hooks }

// Layer is the installed program of an agent, shown read-only at Target. Its
// directory is Cove's own, so it has a name in the store of layers and no path.
type Layer struct {
	Name   string // "claude/2.1.329", or "worker" for a program beside cove
	Target string // absolute path inside
}

// Home is the home directory of both users that sandboxes have unless a Spec names another.
const Home = "/home/cove"

// WorkDir is the directory of code and its files, in which the code runs.
const WorkDir = "/work"

// Tokens is the directory of real tokens inside, of sandboxes whose profile asks for it and of no others: files with
// the names of the variables in which programs look for them.
const Tokens = "/opt/cove/tokens"

// Workspace is the directory at which a caller's own directory is attached.
const Workspace = "/workspace"
