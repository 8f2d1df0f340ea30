package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// host is the machine under examination.
type host struct {
	options Options
	root    string // "/"; tests substitute a tree of their own for reading
	// hierarchy finds, once, the place for control groups. The doctor has its own, which close removes.
	hierarchy func() (*cgroup.Hierarchy, error)
}

func newHost(o Options) *host {
	place := fmt.Sprintf("cove-doctor-%d", os.Getpid())
	return &host{options: o, root: "/", hierarchy: sync.OnceValues(func() (*cgroup.Hierarchy, error) {
		return cgroup.Find(place)
	})}
}

// close removes the doctor's groups; one in use ends with its processes.
func (h *host) close() {
	if hierarchy, err := h.hierarchy(); err == nil {
		hierarchy.Close()
	}
}

// read returns a file of the host, trimmed; ok is false if it is unreadable.
func (h *host) read(name string) (text string, ok bool) {
	b, err := os.ReadFile(filepath.Join(h.root, name))
	return strings.TrimSpace(string(b)), err == nil
}

func (h *host) sysctl(name string) (value string, ok bool) {
	return h.read("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
}

func (h *host) number(name string) (value int, ok bool) {
	text, ok := h.sysctl(name)
	if !ok {
		return 0, false
	}
	value, err := strconv.Atoi(text)
	return value, err == nil
}

func isRoot() bool { return os.Geteuid() == 0 }

func (h *host) user() string {
	if isRoot() {
		return "as root"
	}
	return fmt.Sprintf("as uid %d", os.Geteuid())
}

func (h *host) kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:]) + " (" + unix.ByteSliceToString(u.Machine[:]) + ")"
}

// trial is a child that tries something.
type trial struct {
	name string
	args []string
	// namespaces holds the clone flags of the child, among them a user namespace in which the caller is root.
	namespaces uintptr
	group      *os.File // control group it starts in
	tree       *os.File // mount passed as its descriptor 3
}

type answer struct {
	Step  string `json:"step,omitempty"` // the failed step
	Error string `json:"error,omitempty"`
	Found string `json:"found,omitempty"`
	Errno int    `json:"errno,omitempty"`
}

// step ends the trial with a panic, which report recovers, if a step of it has failed.
func step(name string, err error) {
	if err == nil {
		return
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	panic(answer{Step: name, Error: err.Error(), Errno: int(errno)})
}

// trialError is the error of a failed step in the child.
type trialError struct{ answer }

func (e *trialError) Error() string { return e.Step + ": " + e.answer.Error }

func (e *trialError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return syscall.Errno(e.Errno)
}

func (h *host) command(ctx context.Context, t trial) *exec.Cmd {
	args := slices.Concat(h.options.Probe[1:], []string{t.name}, t.args)
	cmd := exec.CommandContext(ctx, h.options.Probe[0], args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	cmd.SysProcAttr = attributes(t.namespaces)
	if t.tree != nil {
		cmd.ExtraFiles = []*os.File{t.tree}
	}
	if t.group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(t.group.Fd())
	}
	return cmd
}

// waiting starts a child that waits until end is called. It has the attributes a.
func (h *host) waiting(ctx context.Context, a *syscall.SysProcAttr) (pid string, end func(), err error) {
	cmd := h.command(ctx, trial{name: "wait"})
	cmd.SysProcAttr = a
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	return strconv.Itoa(cmd.Process.Pid), func() { stdin.Close(); cmd.Wait() }, nil
}

// attributes returns the attributes for namespaces; in a user namespace the caller is root.
func attributes(namespaces uintptr) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	if namespaces&unix.CLONE_NEWUSER != 0 {
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// try runs a trial to its end. The error is the failed step, or the failure to start the child.
func (h *host) try(ctx context.Context, t trial) (found string, err error) {
	if len(h.options.Probe) == 0 {
		return "", errors.New("not tried: this program has no way to start itself again")
	}
	return ask(h.command(ctx, t))
}

func ask(cmd *exec.Cmd) (found string, err error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	var a answer
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		if runErr == nil {
			runErr = fmt.Errorf("said %.100q", stdout.String())
		}
		if text := strings.TrimSpace(stderr.String()); text != "" {
			runErr = fmt.Errorf("%w: %.200s", runErr, text)
		}
		return "", runErr
	}
	if a.Error != "" {
		return "", &trialError{a}
	}
	return a.Found, nil
}
