package fake

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
)

// Program is what a command does; it returns the exit code. It comes back soon
// after the context of its process has ended.
type Program func(p *Process) int

// Process is one running Program, as the program sees it.
type Process struct {
	Context context.Context // ends when the process is killed
	Args    []string
	Env     []string
	Dir     string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer

	table  *processes
	pid    int
	group  int
	tty    *terminal // nil without one
	cancel context.CancelFunc
	input  *pipe // what the guest writes to; nil for none
	inputW *writer
	out    *pipe
	outW   *writer
	errs   *pipe // nil with a terminal
	errsW  *writer
	exited chan struct{}
	once   sync.Once
	code   int
	signal syscall.Signal
}

// terminal is the size of one.
type terminal struct {
	mu         sync.Mutex
	rows, cols uint16
}

// PID is the process's id inside.
func (p *Process) PID() int { return p.pid }

// Getenv reads the process's environment.
func (p *Process) Getenv(key string) string {
	for _, kv := range p.Env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// ReadFile reads a file with the rights of the sandbox's user; relative names begin at the process's directory.
func (p *Process) ReadFile(name string) ([]byte, error) {
	p.table.files.wait(p.Context, p.path(name))
	return p.table.files.read(p.path(name))
}

// WriteFile replaces a file likewise.
func (p *Process) WriteFile(name string, data []byte) error {
	return p.table.files.write(p.path(name), 0o644, 0, data)
}

func (p *Process) path(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(p.Dir, "/") + "/" + name
}

// Sleep waits, and reports whether the process still lives.
func (p *Process) Sleep(d time.Duration) bool { return pause(p.Context, d) == nil }

// Account changes what the sandbox's Stats will say.
func (p *Process) Account(f func(*engine.Stats)) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	f(&p.table.stats)
}

// AccountGuest changes what the guest's own Stats will say, beyond the files.
func (p *Process) AccountGuest(f func(*guest.Stats)) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	f(&p.table.extra)
}

// end is the process's end, for the first reason there is.
func (p *Process) end(code int, sig syscall.Signal) {
	p.once.Do(func() {
		p.code, p.signal = code, sig
		p.cancel()
		p.outW.Close()
		if p.errsW != nil {
			p.errsW.Close()
		}
		p.input.Close()
		p.table.gone(p)
		close(p.exited)
	})
}

// processes are the processes of one sandbox.
type processes struct {
	files    *tree
	programs map[string]Program
	uid      int
	limit    int64
	running  sync.WaitGroup

	mu      sync.Mutex
	stats   engine.Stats
	extra   guest.Stats
	nextPID int
	live    map[int]*Process
	ended   bool
}

var _ guestd.Spawner = (*processes)(nil)

func newProcesses(files *tree, programs map[string]Program, uid int, limit int64) *processes {
	return &processes{
		files: files, programs: programs, uid: uid, limit: limit, nextPID: 2, live: map[int]*Process{},
		stats: engine.Stats{MemoryPeak: 4 << 20}, // a guest and nothing else
	}
}

// Start implements guestd.Spawner.
func (t *processes) Start(spec guest.ProcessSpec) (guestd.Process, error) {
	if err := noNUL(spec); err != nil {
		return nil, err
	}
	if spec.Args[0] == "" {
		return nil, &guest.Failure{Kind: guest.FailNotFound, Message: "no command"}
	}
	dir := spec.Dir
	if dir == "" {
		dir = "/"
	}
	if err := t.files.isDir(dir); err != nil {
		return nil, err
	}
	p := &Process{Args: spec.Args, Env: spec.Env, Dir: dir, table: t, input: newPipe()}
	p.inputW = &writer{pipe: p.input}
	if !spec.Stdin {
		p.inputW.Close()
	}
	p.out = newPipe()
	p.outW = &writer{pipe: p.out, crlf: spec.TTY}
	if spec.TTY {
		p.tty = &terminal{rows: spec.Rows, cols: spec.Cols}
		p.Stderr = p.outW
	} else {
		p.errs = newPipe()
		p.errsW = &writer{pipe: p.errs}
		p.Stderr = p.errsW
	}
	p.Stdin, p.Stdout = p.input, p.outW
	prog, err := t.find(p, spec.Args[0])
	if err != nil {
		return nil, err
	}
	if err := t.launch(p, prog); err != nil {
		return nil, err
	}
	return served{p}, nil
}

func noNUL(spec guest.ProcessSpec) error {
	for _, s := range append(append([]string{spec.Dir}, spec.Args...), spec.Env...) {
		if strings.Contains(s, "\x00") {
			return &guest.Failure{Kind: guest.FailInvalid,
				Message: "a NUL byte in the command, its environment or its directory"}
		}
	}
	return nil
}

// find looks a program up as execvp does.
func (t *processes) find(p *Process, name string) (Program, error) {
	if strings.Contains(name, "/") {
		return t.executable(p.path(name))
	}
	for dir := range strings.SplitSeq(p.Getenv("PATH"), ":") {
		if prog, err := t.executable(dir + "/" + name); err == nil {
			return prog, nil
		}
	}
	return nil, &guest.Failure{Kind: guest.FailNotFound, Message: name + ": not found"}
}

// executable is the program in the file at path: a usual one, or a script.
func (t *processes) executable(path string) (Program, error) {
	name, script, err := t.files.executable(path)
	if err != nil {
		return nil, err
	}
	if prog := t.programs[name]; prog != nil && script == "" {
		return prog, nil
	}
	if strings.HasPrefix(script, "#!/bin/sh\n") {
		return func(p *Process) int { return runScript(p, script, p.Args) }, nil
	}
	return nil, syscall.EACCES
}

// launch starts p as a process of its own.
func (t *processes) launch(p *Process, prog Program) error {
	p.Context, p.cancel = context.WithCancel(context.Background())
	p.exited = make(chan struct{})
	t.mu.Lock()
	if t.ended || t.limit > 0 && int64(len(t.live)) >= t.limit {
		t.stats.PIDsDenied++
		t.mu.Unlock()
		p.cancel()
		return syscall.EAGAIN
	}
	p.pid = t.nextPID
	t.nextPID++
	if p.group == 0 {
		p.group = p.pid
	}
	t.live[p.pid] = p
	t.stats.CPUTime += time.Millisecond
	t.stats.PIDsPeak = max(t.stats.PIDsPeak, int64(len(t.live)))
	t.running.Add(1)
	t.mu.Unlock()
	go func() {
		defer t.running.Done()
		p.end(prog(p), 0)
	}()
	return nil
}

// fork is a process like p, in its group, writing where p writes.
func (p *Process) fork() *Process {
	c := &Process{Args: p.Args, Env: p.Env, Dir: p.Dir, table: p.table, group: p.group, tty: p.tty, input: newPipe(),
		outW: p.outW.dup()}
	c.inputW = &writer{pipe: c.input}
	c.inputW.Close()
	c.Stdin, c.Stdout, c.Stderr = c.input, c.outW, c.outW
	if p.errsW != nil {
		c.errsW = p.errsW.dup()
		c.Stderr = c.errsW
	}
	return c
}

func (t *processes) gone(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, p.pid)
}

// signalIf reaches every live process that is meant and counts them: parents first, as none may see that a child has
// ended before the signal that both get at once.
func (t *processes) signalIf(sig syscall.Signal, meant func(*Process) bool) int {
	t.mu.Lock()
	var targets []*Process
	for _, p := range t.live {
		if meant(p) {
			targets = append(targets, p)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(targets, func(a, b *Process) int { return cmp.Compare(a.pid, b.pid) })
	for _, p := range targets {
		switch sig {
		case 0, syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGURG, syscall.SIGWINCH:
		default:
			p.end(0, sig)
		}
	}
	return len(targets)
}

// SignalAll implements guestd.Spawner.
func (t *processes) SignalAll(sig syscall.Signal) error {
	t.signalIf(sig, func(*Process) bool { return true })
	return nil
}

// Stats implements guestd.Spawner.
func (t *processes) Stats() guest.Stats {
	s := t.files.usage()
	t.mu.Lock()
	defer t.mu.Unlock()
	s.BytesWritten = t.extra.BytesWritten
	s.DiskUsed += t.extra.DiskUsed
	s.InodesUsed += t.extra.InodesUsed
	return s
}

func (t *processes) account() engine.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.PIDs = int64(len(t.live))
	return s
}

// end kills everything and lets nothing start any more.
func (t *processes) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.SignalAll(syscall.SIGKILL)
}

func (t *processes) wait() { t.running.Wait() }

// served is a Process as the guest sees it.
type served struct{ p *Process }

func (s served) PID() int { return s.p.pid }

func (s served) Stdin() io.WriteCloser { return s.p.inputW }

func (s served) Stdout() guestd.Output { return s.p.out }

func (s served) Stderr() guestd.Output {
	if s.p.errs == nil {
		return nil
	}
	return s.p.errs
}

func (s served) Signal(sig syscall.Signal) error {
	if s.p.table.signalIf(sig, func(p *Process) bool { return p.group == s.p.group }) == 0 {
		return &guest.Failure{Kind: guest.FailNotFound, Message: "the process has gone"}
	}
	return nil
}

func (s served) Resize(rows, cols uint16) error {
	if s.p.tty == nil {
		return &guest.Failure{Kind: guest.FailInvalid, Message: "the process has no terminal"}
	}
	s.p.tty.mu.Lock()
	defer s.p.tty.mu.Unlock()
	s.p.tty.rows, s.p.tty.cols = rows, cols
	return nil
}

func (s served) Wait() (int, syscall.Signal) {
	<-s.p.exited
	return s.p.code, s.p.signal
}
