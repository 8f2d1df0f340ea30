package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/profile"
)

// bareProfile is the profile of a command line if it has agents work on this machine itself, and else nil. What is done
// in a sandbox that is there, or with a server that was named, is never done here.
func bareProfile(ctx context.Context, sess *session.Session, o *options) (*api.Profile, error) {
	_, err := cove.ParseRunID(o.resume)
	if o.sandbox != "" || err == nil || sess.ServerAddress() != "" {
		return nil, nil
	}
	name, err := sess.ResolveProfile(o.Profile)
	if err != nil || name == "" {
		return nil, err
	}
	all, err := profilesHere(ctx, sess)
	if err != nil {
		return nil, err
	}
	p, err := profile.Find(all, name)
	if err != nil || p.Mode != profile.ModeNone {
		return nil, err
	}
	return &p, nil
}

// profilesHere returns the profiles of this machine, whether its server runs or not.
func profilesHere(ctx context.Context, sess *session.Session) ([]api.Profile, error) {
	if err := session.Here(); err != nil {
		return nil, err
	}
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	if !session.Answers(ctx, cfg.Socket()) {
		return session.ProfilesHere(sess)
	}
	return session.OfAddress(ctx, sess, "unix:"+cfg.Socket(), (*client.Client).Profiles)
}

// Daemon carries out what this room does without a server.
type Daemon interface {
	// Work has an agent do a task on this machine itself, and returns its messages. An error is the last.
	Work(ctx context.Context, prompt string, t BareTask) iter.Seq2[api.Message, error]
}

// BareTask is a task for an agent on this machine itself.
type BareTask struct {
	Agent        string
	Declared     []agent.Agent // beside the built-in ones
	Env          map[string]string
	Directory    string // in which it works
	Model        string
	Instructions string // in addition to the agent's own
	MaxTurns     int    // 0: the agent's own limit
	Options      api.AgentOptions
	Timeout      time.Duration
	Schema       json.RawMessage // of the answer; nil: none
	Resume       string          // the conversation that goes on; empty: a new one
	Interrupt    <-chan struct{} // closing it asks the agent to stop
	Log          func([]byte)    // receives what the agent writes to its standard error

	profile api.Profile
	home    string // of this machine's Cove
}

// agentHere gives an agent its task on this machine itself, or shows its screen when there is none.
func agentHere(sess *session.Session, d Daemon, cmd *cobra.Command, o *options, p api.Profile, prompt string) error {
	if flag := o.walled(); flag != "" {
		return cove.Errorf(cove.Unsupported,
			"--%s is about a sandbox, and with the profile %s there is none: its mode is none", flag, p.Name).
			WithHint("leave it out, or use another profile (--profile default is none)")
	}
	t, err := newBareTask(sess, o, p)
	if err != nil {
		return err
	}
	if prompt == "" {
		return screenHere(sess, cmd, o, t)
	}
	return giveTaskHere(cmd.Context(), sess, o, d, t, prompt)
}

// walled is a flag that was given and needs a sandbox, or its server; empty is none.
func (o *options) walled() string {
	made := slices.DeleteFunc(o.ofSandbox(), func(flag string) bool { return flag == "env" })
	if len(made) > 0 {
		return made[len(made)-1]
	}
	flags := []string{"apply", "keep", "detach"}
	if i := slices.IndexFunc(flags, o.Given); i >= 0 {
		return flags[i]
	}
	return ""
}

// newBareTask returns the task that the flags describe. The profile fills in what the flags leave out.
func newBareTask(sess *session.Session, o *options, p api.Profile) (BareTask, error) {
	t := BareTask{
		Agent:        o.Agent,
		Model:        cmp.Or(o.model, p.Model),
		Instructions: cmp.Or(o.instructions, p.Instructions),
		MaxTurns:     cmp.Or(o.turns, p.MaxTurns),
		profile:      p,
	}
	cfg, err := sess.Config()
	if err != nil {
		return t, err
	}
	t.home, t.Declared = cfg.Home, cfg.Agents
	if t.Directory, err = flags.RealDirectory(o.dir); err != nil {
		return t, err
	}
	_, timeout, err := o.Limits()
	if err != nil {
		return t, err
	}
	t.Timeout = cmp.Or(apispec.Duration(cmp.Or(timeout, p.Timeout)), defaultTimeout)
	if t.Schema, err = o.readSchema(); err != nil {
		return t, err
	}
	if t.Options, err = o.tools.read(); err != nil {
		return t, err
	}
	env, err := flags.Environment(o.Env, sess.Getenv)
	if err != nil {
		return t, err
	}
	t.Env = map[string]string{}
	maps.Copy(t.Env, p.Env)
	maps.Copy(t.Env, env)
	switch o.resume {
	case "":
	case lastRun:
		t.Resume, err = t.last()
	default:
		t.Resume = o.resume
	}
	return t, err
}

// sayBare warns that no sandbox contains the agent, even with --quiet.
func sayBare(sess *session.Session, t BareTask) {
	sess.Say.Line("%s works on this machine itself, without a sandbox and without asking, because the profile %s says so",
		t.Agent, t.profile.Name)
}

// giveTaskHere runs a task without a sandbox, and shows its progress.
func giveTaskHere(ctx context.Context, sess *session.Session, o *options, d Daemon, b BareTask,
	prompt string) error {
	t := newTask(sess, o)
	defer t.in.Stop()
	covered, cancel := t.in.Cover(ctx)
	defer cancel()
	interrupt := make(chan struct{})
	b.Interrupt, b.Log = interrupt, func(p []byte) { _ = t.log(p) }
	t.stop = func(_ context.Context, kill bool) error { // once each
		if kill {
			cancel()
		} else {
			close(interrupt)
		}
		return nil
	}
	t.run = api.Run{Agent: o.Agent, Directory: b.Directory, Bind: true, StartedAt: time.Now(),
		Timeout: b.Timeout.Seconds()}
	run, err := t.followHere(covered, d, b, prompt)
	if err != nil {
		return t.failed(err)
	}
	if run.Session != "" {
		_ = session.Keep(b.lastFile(), []byte(run.Session)) // the summary names the conversation, too
	}
	err = t.conclude(ctx, run, nil)
	if err == nil && t.view != nil && run.Session != "" {
		resume := t.Command(o.Agent, "--profile", b.profile.Name, "--resume="+ui.ShellWord(run.Session), "PROMPT")
		t.SayFacts(ui.Facts{{"go on", resume}})
	}
	return err
}

// followHere follows the task to its end. It fails when its progress can no longer be shown.
func (t *task) followHere(ctx context.Context, d Daemon, b BareTask, prompt string) (api.Run, error) {
	run := t.run
	defer t.in.Settle()
	defer t.endBelow()
	t.show()
	sayBare(t.Session, b)
	t.follows()
	var failed error
	for m, err := range d.Work(ctx, prompt, b) {
		if failed = err; err != nil {
			break // it is the last
		}
		if err := t.message(m); err != nil {
			return run, err
		}
		run.Session = cmp.Or(m.Session, run.Session)
		if m.Type == api.MessageUsage && m.Usage != nil {
			run.Usage = *m.Usage
		}
	}
	now := time.Now()
	run.EndedAt, run.Result = &now, t.answer.Content
	run.Status, run.LimitHit, run.Error = outcomeHere(t.answer.IsError, failed)
	return run, nil
}

// outcomeHere is how a task has ended that had no sandbox. It is pure.
func outcomeHere(isError bool, err error) (status, limit string, why *api.Error) {
	code := cove.ErrorCode(err)
	switch {
	case err == nil && isError:
		return api.RunFailed, "", nil
	case err == nil:
		return api.RunSucceeded, "", nil
	case code == cove.Canceled:
		return api.RunInterrupted, "", nil
	case errors.Is(err, agent.ErrTurns):
		return api.RunLimit, "turns", nil
	case errors.Is(err, agent.ErrBudget):
		return api.RunLimit, "budget", nil
	case code == cove.LimitReached:
		return api.RunLimit, string(cove.LimitTimeout), nil
	}
	return api.RunError, "", &api.Error{Error: ui.Message(err), Code: string(code), Hint: cove.ErrorHint(err)}
}

// screenHere becomes the agent's program, on this terminal.
func screenHere(sess *session.Session, cmd *cobra.Command, o *options, t BareTask) error {
	if err := checkScreen(sess, cmd, o, "json", "quiet", "verbose", "schema", "max-turns", "timeout",
		"allowed-tools", "disallowed-tools", "mcp-config", "permission-mode"); err != nil {
		return err
	}
	who, err := agent.Find(agent.Merge(t.Declared), o.Agent)
	if err != nil {
		return err
	}
	command, err := who.InteractiveCommand(agent.Task{
		Model: t.Model, Session: t.Resume, Instructions: t.Instructions,
	})
	if err != nil {
		return err
	}
	program, err := exec.LookPath(command.Args[0])
	if err != nil {
		return cove.Errorf(cove.RuntimeMissing, "%s is not installed on this machine: there is no %s",
			who.Title, command.Args[0]).
			WithHint("install it, or use a profile with sandboxes, for which \"cove agents install\" does")
	}
	env := os.Environ()
	for _, more := range []map[string]string{command.Env, t.Env} {
		for _, name := range slices.Sorted(maps.Keys(more)) {
			env = append(env, name+"="+more[name])
		}
	}
	sayBare(sess, t)
	if err := os.Chdir(t.Directory); err != nil {
		return cove.Errorf(cove.InvalidArgument, "%s: %w", t.Directory, ui.Cause(err))
	}
	return cove.Errorf(cove.Unavailable, "%s cannot be started: %w", who.Title, syscall.Exec(program, command.Args, env))
}

// lastFile is the file that names the last conversation of the agent in a directory: no server knows it.
func (t BareTask) lastFile() string {
	sum := sha256.Sum256([]byte(t.Directory))
	return filepath.Join(t.home, "conversations", fmt.Sprintf("%s-%x", t.Agent, sum[:12]))
}

func (t BareTask) last() (string, error) {
	data, err := os.ReadFile(t.lastFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", cove.Errorf(cove.NotFound,
			"%s has done nothing in %s yet without a sandbox", t.Agent, t.Directory).
			WithHint("name its conversation: --resume=ID")
	}
	if err != nil {
		return "", cove.Errorf(cove.InvalidArgument, "cannot read which conversation was the last: %w", ui.Cause(err))
	}
	return strings.TrimSpace(string(data)), nil
}
