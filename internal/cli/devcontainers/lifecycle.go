package devcontainers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

// lifecycle is kept of a sandbox with a dev container, for its later starts: what the user has agreed to, and not what
// the repository says by then.
type lifecycle struct {
	WorkDir  string                 `json:"work_dir"`
	Commands []devcontainer.Command `json:"commands"`
	Digest   string                 `json:"digest,omitempty"` // of the content that was agreed to
	Done     int                    `json:"done,omitempty"`   // commands at the beginning that run once, and have
	Ports    []devcontainer.Port    `json:"ports,omitempty"`
	file     string
}

func lifecycleFile(sess *session.Session, id string) (string, error) {
	return sess.InHome("devcontainers", filepath.Base(id)+".json")
}

// lifecycleOf reads what is kept of a sandbox. Errors: fs.ErrNotExist for one without a dev container, Forbidden,
// Corrupt.
func lifecycleOf(sess *session.Session, id string) (*lifecycle, error) {
	file, err := lifecycleFile(sess, id)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, cove.Errorf(cove.Forbidden, "cannot read %s: %w", file, ui.Cause(err))
	}
	l := &lifecycle{file: file}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, cove.Errorf(cove.Corrupt, "%s: %w", file, err)
	}
	return l, nil
}

func (l *lifecycle) keep() error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return session.Keep(l.file, data)
}

// Remove destroys a sandbox, and forgets the commands of its dev container.
func Remove(ctx context.Context, sess *session.Session, c *client.Client, id string,
	keepWork bool) (said api.Destroyed, err error) {
	said, err = c.DestroySandbox(ctx, id, keepWork)
	if err != nil && cove.ErrorCode(err) != cove.NotFound {
		return said, err
	}
	file, failed := lifecycleFile(sess, id)
	if failed == nil {
		failed = os.Remove(file)
	}
	if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
		sess.Say.Fail(cove.Errorf(cove.Forbidden, "cannot remove %s: %w", file, ui.Cause(failed))) // the sandbox is gone
	}
	return said, err
}

// Begin runs the commands of a new sandbox, and keeps them for later starts.
func (e *Found) Begin(ctx context.Context, sess *session.Session, s api.Sandbox, attach bool) error {
	file, err := lifecycleFile(sess, s.ID)
	if err != nil {
		return err
	}
	l := &lifecycle{WorkDir: e.WorkDir, Commands: e.Commands, Digest: e.Digest, Ports: e.Ports, file: file}
	if err := l.keep(); err != nil {
		return err
	}
	when := []devcontainer.When{devcontainer.Once, devcontainer.Start}
	if attach {
		when = append(when, devcontainer.Attach)
	}
	if err := l.covered(ctx, sess, s, when); err != nil {
		return err
	}
	if len(l.Ports) > 0 {
		sess.Say.Line("this machine reaches the ports of the dev container (%s) by: %s", portsText(l.Ports),
			sess.Command("forward", s.Name))
	}
	return nil
}

func portsText(all []devcontainer.Port) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// covered runs commands until a signal comes.
func (l *lifecycle) covered(ctx context.Context, sess *session.Session, s api.Sandbox, when []devcontainer.When) error {
	ctx, interrupts := ui.CoverSignals(ctx, sess.Out, sess.Err)
	defer interrupts.Stop()
	b, err := sess.Server(ctx)
	if err != nil {
		return interrupts.Explain(err)
	}
	defer b.Close()
	return interrupts.Explain(l.run(ctx, sess, b.Client, s, when))
}

// Again runs the commands of a sandbox that was started, if it has a dev container.
func Again(ctx context.Context, sess *session.Session, c *client.Client, s api.Sandbox) error {
	l, err := lifecycleOf(sess, s.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.run(ctx, sess, c, s, []devcontainer.When{devcontainer.Start})
}

// Resume runs the commands of a sandbox that is there and runs: those that run once and have not, those of each start
// if it was started, and those of each attachment.
func Resume(ctx context.Context, sess *session.Session, s api.Sandbox, started bool) error {
	l, err := lifecycleOf(sess, s.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	once := func(c devcontainer.Command) bool { return c.When == devcontainer.Once }
	left := slices.ContainsFunc(l.Commands[min(l.Done, len(l.Commands)):], once)
	when := []devcontainer.When{devcontainer.Once, devcontainer.Attach}
	if started || left { // a failure has kept those of the start from running, too
		when = append(when, devcontainer.Start)
	}
	return l.covered(ctx, sess, s, when)
}

// Changed reports whether the dev container of a directory is another than the one that a sandbox was made by.
func (e *Found) Changed(sess *session.Session, id string) bool {
	l, err := lifecycleOf(sess, id)
	return err == nil && l.Digest != "" && l.Digest != e.Digest
}

// WorkDir returns the directory in which the programs of a sandbox's dev container begin; empty without one.
func WorkDir(sess *session.Session, id string) (string, error) {
	l, err := lifecycleOf(sess, id)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return l.WorkDir, nil
}

// Ports returns the ports of a sandbox's dev container.
func Ports(sess *session.Session, id string) ([]devcontainer.Port, error) {
	l, err := lifecycleOf(sess, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return l.Ports, nil
}

// run runs the commands of some moments, one after the other, the steps of each at the same time. Errors:
// InvalidArgument for one that fails; those after it do not run.
func (l *lifecycle) run(ctx context.Context, sess *session.Session, c *client.Client, s api.Sandbox,
	when []devcontainer.When) error {
	for n, command := range l.Commands {
		if !slices.Contains(when, command.When) || command.When == devcontainer.Once && n < l.Done {
			continue
		}
		sess.Say.Line("%s of %s", command.Name, command.From)
		begun := time.Now()
		failures := make([]error, len(command.Steps))
		screen := sess.NewScreen()
		out := &steps{to: screen.Stderr}
		var running sync.WaitGroup
		for i, step := range command.Steps {
			running.Go(func() {
				req := api.ExecRequest{Args: step.Args, WorkDir: l.WorkDir}
				r, err := c.Exec(ctx, s.ID, req, client.Stream{Stdout: out, Stderr: out})
				if err == nil && r.ExitCode != 0 {
					name := strings.TrimSuffix(command.Name+"."+step.Name, ".")
					err = cove.Errorf(cove.InvalidArgument, "%s failed in the sandbox %s, with the exit code %d", name,
						s.Name, r.ExitCode).WithHint("the sandbox is there to look at: %s%s", sess.Command("shell", s.Name),
						lacked(ctx, sess, c, s, begun))
				}
				failures[i] = err
			})
		}
		running.Wait()
		screen.Restore()
		for _, err := range failures {
			if err != nil {
				return err
			}
		}
		if command.When == devcontainer.Once {
			l.Done = n + 1 // the commands are in their order
			if err := l.keep(); err != nil {
				return err
			}
		}
	}
	return nil
}

// lacked returns lines with what a sandbox did not reach since a time, and the commands that allow it.
func lacked(ctx context.Context, sess *session.Session, c *client.Client, s api.Sandbox, since time.Time) string {
	if s.Network == string(cove.NetworkNone) {
		return "; it has no network: where a command needs one, remove it, and make it with --preset NAME or --allow HOST"
	}
	denied, err := session.DecisionsUpTo(ctx, c,
		client.DecisionOptions{Sandbox: s.ID, Verdict: api.VerdictDeny, Since: since}, maxLacked)
	if err != nil {
		sess.Say.Fail(err) // the command's own failure is said as well
	}
	var lines []string
	for _, d := range denied {
		if line := "; the policy denied " + d.Host + ": allow it with " + d.Remedy; d.Remedy != "" &&
			!slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

const maxLacked = 100 // attempts that are looked at

// steps prints the output of commands that run at the same time.
type steps struct {
	mu sync.Mutex
	to io.Writer
}

func (o *steps) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(p)
}
