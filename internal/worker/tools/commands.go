package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	usualTimeout = 120  // seconds
	maxTimeout   = 1800 // seconds
	grace        = time.Second
	maxProcesses = 16 // concurrently in the background
)

func (s *Set) commandTools() []tool {
	return []tool{
		define("bash", "bash",
			fmt.Sprintf("Runs a command line with bash, in the directory of the task, without a terminal and without input. "+
				"Answers with output, errors included, and the exit code. It ends after timeout seconds (%d), and what it leaves "+
				"running ends with it. With background it goes on, and the answer is an id for bash_output and bash_kill.",
				usualTimeout),
			fmt.Sprintf(
				`"command":{"type":"string","minLength":1},"timeout":{"type":"integer","minimum":1,"maximum":%d},`+
					`"background":{"type":"boolean"}`, maxTimeout),
			[]string{"command"}, s.bash),
		define("bash", "bash_output",
			"What a command in the background printed since it was last asked for, and whether it still runs. wait is how "+
				"many seconds to wait for its end. Without an id, the commands that there are.",
			`"id":{"type":"string"},"wait":{"type":"integer","minimum":0,"maximum":600}`,
			[]string{}, s.poll),
		define("bash", "bash_kill",
			"Ends a command in the background.",
			`"id":{"type":"string"}`, []string{"id"}, s.kill),
	}
}

// quiet sets variables for programs without a terminal.
func quiet(env []string) []string {
	return append(slices.Clip(env), "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true",
		"DEBIAN_FRONTEND=noninteractive")
}

// processes holds the commands that have been started.
type processes struct {
	env  []string
	mu   sync.Mutex // guards the fields below
	all  []*process
	next int
	mine map[int]bool // pids of commands that their starter waits for
}

// process is one command.
type process struct {
	id      string
	command string
	pid     int // also the id of its session
	out     capture
	done    chan struct{}
	// Valid after done is closed.
	state *os.ProcessState
	left  int // processes that it left running
}

type bashInput struct {
	Command    string
	Timeout    int
	Background bool
}

func (s *Set) bash(ctx context.Context, in bashInput) (string, error) {
	if in.Background {
		if n := len(s.processes.running()); n >= maxProcesses {
			return "", fmt.Errorf("%d commands run in the background already: end one with bash_kill", n)
		}
	}
	p, err := s.processes.start(s.dir, in.Command)
	if err != nil {
		return "", err
	}
	if in.Background {
		return fmt.Sprintf("%s runs in the background; bash_output shows what it prints", s.processes.keep(p)), nil
	}
	defer s.processes.reap()
	in.Timeout = cmp.Or(in.Timeout, usualTimeout)
	timer := time.NewTimer(time.Duration(in.Timeout) * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.result()
	case <-timer.C:
		p.end()
		return p.out.take(), fmt.Errorf("[ended after %d seconds: give a longer timeout, or run it in the background]",
			in.Timeout)
	case <-ctx.Done():
		p.end()
		return p.out.take(), ctx.Err()
	}
}

// start starts a command line in its own session. The shell gets it as one argument, so it is not parsed before.
func (ps *processes) start(dir, command string) (*process, error) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		shell = "/bin/sh"
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(shell, "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, ps.env, w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = ps.launch(cmd)
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	p := &process{command: command, pid: cmd.Process.Pid, done: make(chan struct{})}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(&p.out, r)
	}()
	go func() {
		defer close(p.done)
		defer r.Close()
		// The session is ended before its leader is reaped, so that its id cannot be reused.
		for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		p.left = endSession(p.pid)
		cmd.Wait()
		ps.waited(p.pid)
		p.state = cmd.ProcessState
		// A process that has left the session may hold the pipe open.
		select {
		case <-copied:
		case <-time.After(grace):
			r.SetReadDeadline(time.Now())
			<-copied
		}
	}()
	return p, nil
}

// end ends a command with its children, SIGTERM first, and waits for it.
func (p *process) end() {
	syscall.Kill(-p.pid, syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(grace):
	}
	syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
}

// result returns the answer for an ended command.
func (p *process) result() (string, error) {
	out := p.out.take()
	if p.left > 0 {
		out = join(out, fmt.Sprintf("[%d processes that it left running were ended; start those in the background]", p.left))
	}
	if p.state == nil {
		return out, errors.New("[its exit code is unknown: another part of this program waited for it]")
	}
	if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return out, fmt.Errorf("[ended by signal %d, %s]", status.Signal(), status.Signal())
	}
	if code := p.state.ExitCode(); code != 0 {
		return out, fmt.Errorf("[exit code %d]", code)
	}
	if out == "" {
		return "(no output)", nil
	}
	return out, nil
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}

// launch starts a command and registers its pid, so that reap leaves the command to its starter even if it ends at
// once.
func (ps *processes) launch(cmd *exec.Cmd) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		ps.mine[cmd.Process.Pid] = true
	}
	return err
}

// waited forgets a pid whose starter has waited for it.
func (ps *processes) waited(pid int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.mine, pid)
}

// keep registers a background command and returns its id.
func (ps *processes) keep(p *process) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.next++
	p.id = fmt.Sprintf("b%d", ps.next)
	ps.all = append(ps.all, p)
	return p.id
}

func (p *process) runs() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// running returns the background commands that have not ended.
func (ps *processes) running() []*process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ps.all), func(p *process) bool { return !p.runs() })
}

func (ps *processes) find(id string) (*process, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.all {
		if p.id == id {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no command %.40q in the background", id)
}

type pollInput struct {
	ID   string
	Wait int
}

func (s *Set) poll(ctx context.Context, in pollInput) (string, error) {
	ps := &s.processes
	if in.ID == "" {
		return ps.show(), nil
	}
	p, err := ps.find(in.ID)
	if err != nil {
		return "", err
	}
	defer ps.reap()
	timer := time.NewTimer(time.Duration(in.Wait) * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.result()
	case <-ctx.Done():
		return "", ctx.Err()
	case <-timer.C:
		return join(p.out.take(), "[still running]"), nil
	}
}

// show lists the background commands.
func (ps *processes) show() string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var b strings.Builder
	for _, p := range ps.all {
		state := "ended"
		if p.runs() {
			state = "running"
		}
		fmt.Fprintf(&b, "%s %s: %.200s\n", p.id, state, p.command)
	}
	if len(ps.all) == 0 {
		return "no command is in the background"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

type killInput struct{ ID string }

func (s *Set) kill(_ context.Context, in killInput) (string, error) {
	p, err := s.processes.find(in.ID)
	if err != nil {
		return "", err
	}
	if !p.runs() {
		return join(p.out.take(), "[it had ended]"), nil
	}
	p.end()
	s.processes.reap()
	return join(p.out.take(), "[ended]"), nil
}

// end ends every background command and every other started process.
func (ps *processes) end() {
	var wait sync.WaitGroup
	for _, p := range ps.running() {
		wait.Go(p.end)
	}
	wait.Wait()
	ps.endOrphans()
}
