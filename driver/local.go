package driver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/settle"
	"github.com/cove-sandbox/cove/internal/apispec"
)

const (
	defaultTimeout = 30 * time.Minute
	grace          = 10 * time.Second // between SIGTERM and SIGKILL
	maxLine        = 64 << 20         // bytes of one line of output
	maxStderr      = 16 << 10         // bytes kept of its end
)

// local is a driver of agents on this machine, without a wall.
type local struct {
	agent  agent.Agent
	config Config
	spent  sync.Map // by conversation: api.AgentUsage so far
	tasks
}

// Local returns a driver that runs an agent on this machine directly: with the caller's files, keys and network, and
// without permission questions. The agent must be installed. Errors: NotFound for an unknown agent, RuntimeMissing.
func Local(config Config) (Driver, error) {
	a, err := agent.Find(agent.Merge(config.Declared), config.Agent)
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(a.Program); err != nil {
		return nil, cove.Errorf(cove.RuntimeMissing, "%s is not installed on this machine: there is no %s",
			a.Title, a.Program).
			WithHint("install it, or use a profile with sandboxes, for which \"cove agents install\" does")
	}
	return &local{agent: a, config: config, tasks: newTasks()}, nil
}

// Generate implements Driver.
func (l *local) Generate(ctx context.Context, prompt string, o Options) (Result, error) {
	return generate(ctx, l, prompt, o)
}

// Run implements Driver.
func (l *local) Run(ctx context.Context, prompt string, o Options) iter.Seq2[api.Message, error] {
	return func(yield func(api.Message, error) bool) {
		ctx, task, err := l.begin(ctx)
		if err != nil {
			yield(api.Message{}, err)
			return
		}
		defer task.end()
		if err := l.check(prompt, o); err != nil {
			yield(api.Message{}, err)
			return
		}
		wanted := true
		err = l.run(ctx, prompt, o, func(m api.Message) bool {
			task.recordUsage(m)
			wanted = wanted && yield(m, nil)
			return wanted
		})
		if err != nil && wanted {
			yield(api.Message{}, err)
		}
	}
}

func (l *local) check(prompt string, o Options) error {
	if err := check(prompt, o); err != nil {
		return err
	}
	if o.Directory != "" && !o.Bind {
		return cove.Errorf(cove.Unsupported, "without a sandbox there is no copy of %s to work on",
			o.Directory).WithHint("say that the agent may work on the directory itself (bind)")
	}
	return nil
}

// run runs the program to its end; hand returns false when the caller has stopped listening.
func (l *local) run(ctx context.Context, prompt string, o Options, hand func(api.Message) bool) error {
	dir, err := os.MkdirTemp("", "cove-task-")
	if err != nil {
		return cove.Errorf(cove.StorageFull, "cannot make a place for the task: %w", err)
	}
	defer os.RemoveAll(dir)
	p := l.config.profile
	command, err := l.agent.HeadlessCommand(agent.Task{
		Prompt: prompt, Model: cmp.Or(o.Model, l.config.Model, p.Model), Session: o.Resume,
		Turns:        cmp.Or(o.MaxTurns, p.MaxTurns),
		Instructions: cmp.Or(o.Instructions, p.Instructions), Schema: o.Schema, Dir: dir,
		Extras: extras(o.AgentOptions).Over(extras(p.AgentOptions)),
	})
	if err != nil {
		return err
	}
	for path, content := range command.Files {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return cove.Errorf(cove.StorageFull, "cannot write the task: %w", err)
		}
	}
	timeout := cmp.Or(o.Timeout, apispec.Duration(p.Timeout), defaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeUp)
	defer cancel()
	cmd := exec.Command(command.Args[0], command.Args[1:]...)
	cmd.Dir = o.Directory
	cmd.Env = os.Environ()
	for _, env := range []map[string]string{command.Env, p.Env, l.config.New.Env} {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			cmd.Env = append(cmd.Env, name+"="+env[name])
		}
	}
	cmd.Stdin = strings.NewReader(command.Stdin)
	var turn sync.Mutex // serialises callbacks
	said := &tail{log: func(p []byte) {
		if o.Log != nil {
			turn.Lock()
			defer turn.Unlock()
			o.Log(p)
		}
	}}
	cmd.SysProcAttr = inGroup()
	cmd.WaitDelay = grace
	process, err := start(cmd)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "%s cannot be started: %w", l.agent.Title, err)
	}
	defer process.out.Close()
	defer process.log.Close()
	var interrupted bool // written by the goroutine below
	var beside sync.WaitGroup
	beside.Go(func() { interrupted = process.stop(ctx, o.Interrupt) })
	beside.Go(func() { _, _ = io.Copy(said, process.log) })

	before, _ := l.spent.Load(o.Resume)
	earlier, _ := before.(api.AgentUsage)
	parser := l.agent.NewParser(earlier)
	var misfit error
	say := func(m api.Message) bool {
		m, err := settle.Message(m, o.Schema, time.Now())
		if m.Type == api.MessageResult {
			misfit = err
		}
		if m.Usage != nil && m.Session != "" {
			l.spent.Store(m.Session, earlier.Plus(*m.Usage))
		}
		turn.Lock()
		defer turn.Unlock()
		return hand(m)
	}
	bad := follow(process.out, parser, say)
	if bad != nil {
		cancel()
		_, _ = io.Copy(io.Discard, process.out) // until the program has ended
	}
	<-process.over
	beside.Wait()
	switch {
	case errors.Is(bad, errBrokenOff):
		return nil
	case bad != nil:
		return bad
	}
	code, err := exitCode(process.err)
	if err != nil {
		return err
	}
	last, err := parser.End(code, said.String())
	for _, m := range last {
		if !say(m) {
			return nil
		}
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeUp):
		return cove.Errorf(cove.LimitReached, "%s had not ended after %s", l.agent.Title,
			timeout).WithHint("allow more time, or ask for less")
	case interrupted:
		return cove.Errorf(cove.Canceled, "%s was interrupted", l.agent.Title)
	case cause != nil:
		return cove.Errorf(cove.Canceled, "%s was ended: %w", l.agent.Title, cause)
	case err != nil:
		return err
	}
	return misfit
}

// process is a running program, with its process group.
type process struct {
	cmd      *exec.Cmd
	out, log *os.File // standard output, and standard error
	over     chan struct{}
	err      error // of Wait, set at the end
}

// start starts a program. Its group ends with it, and it gets SIGTERM when this process dies.
func start(cmd *exec.Cmd) (*process, error) {
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	log, stderr, err := os.Pipe()
	if err != nil {
		out.Close()
		return nil, err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	p := &process{cmd: cmd, out: out, log: log, over: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is bound to the thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err != nil {
			return
		}
		p.err = cmd.Wait()
		p.signal(syscall.SIGKILL) // what it left behind; mostly nothing
		for _, f := range []*os.File{out, log} {
			_ = f.SetReadDeadline(time.Now().Add(grace)) // a process outside the group may hold it for ever
		}
		close(p.over)
	}()
	if err := <-started; err != nil {
		out.Close()
		log.Close()
		return nil, err
	}
	return p, nil
}

// stop sends SIGTERM when the channel closes, and SIGKILL after a while or at ctx's end. It returns when the program
// has ended, and reports whether when came first.
func (p *process) stop(ctx context.Context, when <-chan struct{}) (interrupted bool) {
	var ended <-chan struct{} // ctx's end, after an interrupt
	select {
	case <-p.over:
		return false
	case <-ctx.Done():
	case <-when:
		interrupted, ended = true, ctx.Done()
	}
	p.signal(syscall.SIGINT)
	select {
	case <-p.over:
		return interrupted
	case <-ended:
	case <-time.After(grace):
	}
	p.signal(syscall.SIGKILL)
	<-p.over
	return interrupted
}

// signal signals the group. An ended group is ignored.
func (p *process) signal(s syscall.Signal) { _ = signalGroup(p.cmd.Process.Pid, s) }

var errTimeUp = errors.New("its time is up")

// follow passes on the messages in a program's output. Errors: the parser's, and errBrokenOff.
func follow(out io.Reader, parser agent.Parser, hand func(api.Message) bool) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		all, err := parser.Line(lines.Bytes())
		for _, m := range all {
			if !hand(m) {
				return errBrokenOff
			}
		}
		if err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return cove.Errorf(cove.AgentProtocol, "the agent wrote a line of more than %d MiB", maxLine>>20)
	}
	return nil
}

// exitCode returns the exit code of an ended program: 128+N for signal N.
func exitCode(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	case !ok:
		return 0, cove.Errorf(cove.Unavailable, "the agent cannot be waited for: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// tail keeps the end of its input, and passes it to log.
type tail struct {
	kept bytes.Buffer
	log  func([]byte)
}

func (t *tail) Write(p []byte) (int, error) {
	t.log(p)
	t.kept.Write(p)
	if over := t.kept.Len() - maxStderr; over > 0 {
		t.kept.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(t.kept.String()) }
