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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
)

const (
	defaultTimeout = 30 * time.Minute
	grace          = 10 * time.Second // between being asked to end and being killed
	maxLine        = 64 << 20         // bytes of one line of output
	maxStderr      = 16 << 10         // bytes of its end that are kept
)

// local is a driver of agents on this machine, without a wall.
type local struct {
	agent  agent.Agent
	config Config
	tasks
}

// Local runs an agent on this machine as it is: with the files, keys and network
// of whoever calls, and without asking for permission. It has to be installed
// here. Errors: NotFound for one that Cove does not know, RuntimeMissing.
func Local(config Config) (Driver, error) {
	a, err := agent.Find(agent.Builtin(), config.Agent)
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(a.Program); err != nil {
		return nil, cove.Errorf(cove.RuntimeMissing, "%s is not installed on this machine: there is no %s", a.Title, a.Program).
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
		ctx, end, err := l.begin(ctx)
		if err != nil {
			yield(api.Message{}, err)
			return
		}
		defer end()
		if err := l.check(prompt, o); err != nil {
			yield(api.Message{}, err)
			return
		}
		wanted := true
		err = l.run(ctx, prompt, o, func(m api.Message) bool {
			if m.Type == api.MessageUsage && m.Usage != nil {
				l.count(*m.Usage)
			}
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
		return cove.Errorf(cove.Unsupported, "without a sandbox there is no copy of %s to work on", o.Directory).WithHint("say that the agent may work on the directory itself (bind)")
	}
	return nil
}

// run runs the program to its end; hand is false when nobody listens any more.
func (l *local) run(ctx context.Context, prompt string, o Options, hand func(api.Message) bool) error {
	dir, err := os.MkdirTemp("", "cove-task-")
	if err != nil {
		return cove.Errorf(cove.StorageFull, "cannot make a place for the task: %w", err)
	}
	defer os.RemoveAll(dir)
	command, err := l.agent.HeadlessCommand(agent.Task{
		Prompt: prompt, Model: cmp.Or(o.Model, l.config.Model), Session: o.Resume, Turns: o.MaxTurns, Instructions: o.Instructions, Schema: o.Schema, Dir: dir,
	})
	if err != nil {
		return err
	}
	for path, content := range command.Files {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return cove.Errorf(cove.StorageFull, "cannot write the task: %w", err)
		}
	}
	timeout := cmp.Or(o.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeUp)
	defer cancel()
	cmd := exec.CommandContext(ctx, command.Args[0], command.Args[1:]...)
	cmd.Dir = o.Directory
	cmd.Env = os.Environ()
	for _, env := range []map[string]string{command.Env, l.config.New.Env} {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			cmd.Env = append(cmd.Env, name+"="+env[name])
		}
	}
	cmd.Stdin = strings.NewReader(command.Stdin)
	said := &tail{}
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = grace
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return cove.Errorf(cove.Unavailable, "%s cannot be started: %w", l.agent.Title, err)
	}
	parser := l.agent.NewParser(api.AgentUsage{})
	bad := follow(out, parser, hand)
	if bad != nil {
		cancel()
		_, _ = io.Copy(io.Discard, out) // until it is gone
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind; mostly nothing
	switch cause := context.Cause(ctx); {
	case errors.Is(bad, errBrokenOff):
		return nil
	case bad != nil:
		return bad
	case errors.Is(cause, errTimeUp):
		return cove.Errorf(cove.LimitReached, "%s had not ended after %s", l.agent.Title, timeout).WithHint("allow more time, or ask for less")
	case cause != nil:
		return cove.Errorf(cove.Canceled, "%s was ended: %w", l.agent.Title, cause)
	}
	code, err := exitCode(err)
	if err != nil {
		return err
	}
	last, err := parser.End(code, said.String())
	for _, m := range last {
		if !hand(m) {
			return nil
		}
	}
	return err
}

var errTimeUp = errors.New("its time is up")

// follow hands out the messages that a program's output makes. Errors: the
// parser's, and errBrokenOff.
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

// exitCode is that of a program that has ended: 128+N for signal N.
func exitCode(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0, nil
	case !ok:
		return 0, cove.Errorf(cove.Unavailable, "the agent cannot be waited for: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// tail keeps the end of what is written to it.
type tail struct{ kept bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.kept.Write(p)
	if over := t.kept.Len() - maxStderr; over > 0 {
		t.kept.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(t.kept.String()) }

