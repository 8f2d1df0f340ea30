package tools

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/clock"
)

const (
	usualTimeout = 120  // seconds
	maxTimeout   = 1800 // seconds
	grace        = time.Second
	maxProcesses = 16 // concurrently in the background
)

func (s *Set) commandTools() []tool {
	return []tool{
		define("bash",
			fmt.Sprintf("Runs a command line with bash, in the directory of the task, without a terminal and without input. "+
				"Answers with output, errors included, and the exit code. It ends after timeout seconds (%d), and what it leaves "+
				"running ends with it. With background it goes on, and the answer is an id for bash_output and bash_kill.",
				usualTimeout),
			fmt.Sprintf(
				`"command":{"type":"string","minLength":1},"timeout":{"type":"integer","minimum":1,"maximum":%d},`+
					`"background":{"type":"boolean"}`, maxTimeout),
			[]string{"command"}, s.bash),
		define("bash_output",
			"What a command in the background printed since it was last asked for, and whether it still runs. wait is how "+
				"many seconds to wait for its end. Without an id, the commands that there are.",
			`"id":{"type":"string"},"wait":{"type":"integer","minimum":0,"maximum":600}`,
			[]string{}, s.poll),
		define("bash_kill", "Ends a command in the background.", `"id":{"type":"string"}`, []string{"id"}, s.kill),
	}
}

// quiet sets variables for programs without a terminal.
func quiet(env []string) []string {
	return append(slices.Clip(env), "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true",
		"DEBIAN_FRONTEND=noninteractive")
}

type processes struct {
	env  []string
	mu   sync.Mutex // guards the fields below
	all  []*process
	next int
}

// started holds the pids of every command of this program that its starter waits for. Orphans are the program's, so all
// sets of tools share it.
var started = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

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
	if n := len(s.processes.running()); in.Background && n >= maxProcesses {
		return "", fmt.Errorf("%d commands run in the background already: end one with bash_kill", n)
	}
	p, err := s.processes.start(s.dir, in.Command)
	if err != nil {
		return "", err
	}
	if in.Background {
		return fmt.Sprintf("%s runs in the background; bash_output shows what it prints", s.processes.keep(p)), nil
	}
	defer reap()
	in.Timeout = cmp.Or(in.Timeout, usualTimeout)
	err = clock.Await(ctx, p.done, time.After(time.Duration(in.Timeout)*time.Second))
	if err == nil {
		return p.result()
	}
	p.end()
	if errors.Is(err, clock.ErrLate) {
		err = fmt.Errorf("[ended after %d seconds: give a longer timeout, or run it in the background]", in.Timeout)
	}
	return p.out.take(), err
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
	err = launch(cmd)
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
		started.Lock()
		delete(started.pids, p.pid)
		started.Unlock()
		p.state = cmd.ProcessState
		// A process that has left the session may hold the pipe open.
		if clock.Await(context.Background(), copied, time.After(grace)) != nil {
			r.SetReadDeadline(time.Now())
			<-copied
		}
	}()
	return p, nil
}

// end ends a command with its children, SIGTERM first, and waits for it.
func (p *process) end() {
	syscall.Kill(-p.pid, syscall.SIGTERM)
	if clock.Await(context.Background(), p.done, time.After(grace)) == nil {
		return
	}
	syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.done
}

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

// launch starts a command and registers its pid, so that reap leaves even one that ends at once to its starter.
func launch(cmd *exec.Cmd) error {
	started.Lock()
	defer started.Unlock()
	err := cmd.Start()
	if err == nil {
		started.pids[cmd.Process.Pid] = true
	}
	return err
}

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

func (ps *processes) running() []*process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ps.all), func(p *process) bool { return !p.runs() })
}

func (ps *processes) find(id string) (*process, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	i := slices.IndexFunc(ps.all, func(p *process) bool { return p.id == id })
	if i < 0 {
		return nil, fmt.Errorf("there is no command %.40q in the background", id)
	}
	return ps.all[i], nil
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
	defer reap()
	err = clock.Await(ctx, p.done, time.After(time.Duration(in.Wait)*time.Second))
	switch {
	case err == nil:
		return p.result()
	case errors.Is(err, clock.ErrLate):
		return join(p.out.take(), "[still running]"), nil
	}
	return "", err
}

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

func (s *Set) kill(_ context.Context, in struct{ ID string }) (string, error) {
	p, err := s.processes.find(in.ID)
	if err != nil {
		return "", err
	}
	if !p.runs() {
		return join(p.out.take(), "[it had ended]"), nil
	}
	p.end()
	reap()
	return join(p.out.take(), "[ended]"), nil
}

// end ends every background command and every other started process.
func (ps *processes) end() {
	var wait sync.WaitGroup
	for _, p := range ps.running() {
		wait.Go(p.end)
	}
	wait.Wait()
	endOrphans()
}

// stat holds fields of proc_pid_stat(5).
type stat struct {
	pid, parent, session int
	zombie               bool
}

// parseStat parses /proc/PID/stat. The program's name in it may contain spaces and parentheses.
func parseStat(data []byte) (s stat, ok bool) {
	pid, _, _ := bytes.Cut(data, []byte(" "))
	name := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[name+1:]))
	if name < 0 || len(fields) < 4 {
		return s, false
	}
	var errs [3]error
	s.pid, errs[0] = strconv.Atoi(string(pid))
	s.parent, errs[1] = strconv.Atoi(fields[1])
	s.session, errs[2] = strconv.Atoi(fields[3])
	s.zombie = fields[0] == "Z" || fields[0] == "X"
	return s, errs == [3]error{}
}

func everyProcess() []stat {
	entries, _ := os.ReadDir("/proc")
	var all []stat
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if s, ok := parseStat(data); err == nil && ok {
			all = append(all, s)
		}
	}
	return all
}

func descendants(all []stat, of int) []stat {
	var below []stat
	parents := []int{of}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		for _, s := range all {
			if s.parent == parent && s.pid != of && !slices.Contains(below, s) {
				below = append(below, s)
				parents = append(parents, s.pid)
			}
		}
	}
	return below
}

// endSession kills the processes of a session except its leader, and returns their number.
func endSession(leader int) int {
	ended := 0
	for range 100 { // processes forked meanwhile are found in the next round
		now := 0
		for _, s := range everyProcess() {
			if s.session == leader && s.pid != leader && !s.zombie {
				syscall.Kill(s.pid, syscall.SIGKILL)
				now++
			}
		}
		if now == 0 {
			break
		}
		ended = max(ended, now)
		time.Sleep(time.Millisecond)
	}
	return ended
}

// adopt makes this process the reaper of its orphaned descendants, so that they stay known.
func (ps *processes) adopt() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// orphans returns the children of this program that none of it waits for: what commands have left. Commands have a
// starter that waits for them, and other children of this program are in its own session, which no command is.
func orphans(all []stat) []stat {
	self := os.Getpid()
	session, _ := unix.Getsid(self)
	return slices.DeleteFunc(slices.Clone(all), func(s stat) bool {
		return s.parent != self || s.session == session || started.pids[s.pid]
	})
}

// reap collects ended orphans.
func reap() {
	all := everyProcess()
	started.Lock()
	defer started.Unlock()
	for _, s := range orphans(all) {
		if s.zombie {
			syscall.Wait4(s.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// endOrphans kills what commands have left, including processes that have left the session or process group of theirs.
func endOrphans() {
	for range 1000 {
		all := everyProcess()
		started.Lock()
		left := orphans(all)
		started.Unlock()
		for _, s := range left {
			left = append(left, descendants(all, s.pid)...)
		}
		left = slices.DeleteFunc(left, func(s stat) bool { return s.zombie })
		if len(left) == 0 {
			break
		}
		for _, s := range left {
			syscall.Kill(s.pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
	reap()
}

// capture keeps the beginning and the end of a command's output.
type capture struct {
	mu    sync.Mutex // guards the fields below
	head  []byte
	tail  []byte // the end, at most twice the bytes to keep
	total int64
}

const half = maxOutput / 2

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	rest := p
	if room := half - len(c.head); room > 0 {
		take := min(room, len(rest))
		c.head = append(c.head, rest[:take]...)
		rest = rest[take:]
	}
	if len(rest) > half {
		rest = rest[len(rest)-half:]
	}
	c.tail = append(c.tail, rest...)
	if len(c.tail) > 2*half {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-half:]...)
	}
	return len(p), nil
}

func (c *capture) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := c.tail[max(0, len(c.tail)-half):]
	left := c.total - int64(len(c.head)) - int64(len(tail))
	text := string(c.head)
	if left > 0 {
		text += fmt.Sprintf("\n[… %d bytes are left out: put output into a file to see all of it …]\n", left)
	}
	text += string(tail)
	c.head, c.tail, c.total = nil, nil, 0
	return strings.TrimRight(strings.ToValidUTF8(text, "\uFFFD"), "\n")
}
