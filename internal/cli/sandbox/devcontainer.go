package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/devcontainer"
	"github.com/cove-sandbox/cove/internal/profile"
)

// devOptions are the flags about a repository's dev container.
type devOptions struct {
	use  string // of --devcontainer: empty, "default", or the name of one of several
	skip bool
	env  []string // names of variables of this shell
}

// defaultDev is --devcontainer without a name.
const defaultDev = "default"

func (o *devOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.use, "devcontainer", "",
		"use the repository's dev container, of several the one that is called `NAME`: --devcontainer=NAME")
	f.Lookup("devcontainer").NoOptDefVal = defaultDev
	f.BoolVar(&o.skip, "no-devcontainer", false, "leave the repository's dev container alone")
	f.StringArrayVar(&o.env, "devcontainer-env", nil,
		"let the dev container read the variable `NAME` of this shell (repeatable)")
}

func (o *devOptions) name() string {
	if o.use == defaultDev {
		return ""
	}
	return o.use
}

// context returns the values that a dev container is judged against.
func (o *devOptions) context(sess *session.Session, dir string, limits cove.Limits,
	allowed []string) devcontainer.Context {
	c := devcontainer.Context{Local: dir, Limits: limits, Allowed: allowed, LocalEnv: map[string]string{},
		Machine: cove.Limits{CPUs: float64(runtime.NumCPU())}}
	for _, name := range o.env {
		c.LocalEnv[name] = sess.Getenv(name)
	}
	return c
}

// readDev finds and judges the dev container of a checkout. digest identifies its content.
func readDev(dir, name string, c devcontainer.Context) (e *devcontainer.Effective, digest string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", cove.Errorf(cove.InvalidArgument, "cannot open %s: %w", dir, ui.Cause(err))
	}
	defer root.Close()
	f, err := devcontainer.Find(root.FS(), name)
	if err != nil {
		return nil, "", err
	}
	if e, err = devcontainer.Evaluate(f, c); err != nil {
		return nil, "", err
	}
	digest, err = devcontainer.Digest(root.FS(), f, e)
	return e, digest, err
}

func devcontainerCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "devcontainer",
		Short: "See what a sandbox takes of a repository's dev container",
		Long: `See what a sandbox takes of a repository's devcontainer.json. "cove new" uses it
once you have agreed to its content.`,
	}, devExplain(sess))
}

func devExplain(sess *session.Session) *cobra.Command {
	var o devOptions
	dir := ""
	c := &cobra.Command{
		Use:   "explain [DIR]",
		Short: "Show every effective value of a dev container, and whence it is",
		Long: `Show what a sandbox takes of the devcontainer.json of the repository in DIR, or in
this directory: each value with the line of the file that says it, and what is left
out, with the reason. Nothing is made.

The file is the repository's, and so it is not trusted: limits that are lower than
yours are taken, and what would weaken a sandbox is left out.`,
		Example: `  cove devcontainer explain
  cove devcontainer explain ../shop --json
  cove devcontainer explain --devcontainer=go`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return ui.UsageError(cmd, "%q is one argument too many", args[1])
			}
			dir = strings.Join(args, "")
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			top, err := flags.RealDirectory(dir)
			if err != nil {
				return err
			}
			top = cmp.Or(flags.RepositoryTop(top), top)
			limits, err := defaultLimits(sess)
			if err != nil {
				return err
			}
			e, _, err := readDev(top, o.name(), o.context(sess, top, limits, nil))
			if err != nil {
				return err
			}
			if sess.JSON {
				return sess.PrintJSON(e)
			}
			return sess.Print(devText(e))
		},
	}
	o.add(c.Flags())
	c.Flags().MarkHidden("no-devcontainer")
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}

// devText shows the values of a dev container, and what of it is not taken.
func devText(e *devcontainer.Effective) string {
	var rows, left [][]string
	for _, v := range e.Values {
		rows = append(rows, []string{v.Key, v.Value, v.From})
	}
	for _, l := range slices.Concat(e.Unsupported, e.LeftOut) {
		left = append(left, []string{l.Key, l.Why})
	}
	for _, host := range slices.Concat(e.Network.Asked, e.Network.PassThrough) {
		left = append(left, []string{"network " + host, "a file of a repository opens nothing; --allow " + host + " does"})
	}
	text := ui.Table([]string{"VALUE", "IS", "FROM"}, rows)
	if len(left) > 0 {
		text += "\n" + ui.Table([]string{"LEFT OUT", "WHY"}, left)
	}
	return text
}

// defaultLimits returns the limits of long-lived sandboxes whose request and profile say nothing.
func defaultLimits(sess *session.Session) (cove.Limits, error) {
	cfg, err := sess.Config()
	if err != nil {
		return cove.Limits{}, err
	}
	l := cfg.Sandbox.Lasting.Limits
	return apispec.Limits(api.Limits{MemoryMB: l.MemoryMB, CPUs: l.CPUs, PIDs: l.PIDs, DiskMB: l.DiskMB}), nil
}

// userLimits returns the limits of a new sandbox without its dev container.
func userLimits(ctx context.Context, sess *session.Session, req api.SandboxRequest) (cove.Limits, error) {
	limits, err := defaultLimits(sess)
	if err != nil {
		return limits, err
	}
	if req.Profile != "" {
		all, err := sess.Profiles(ctx)
		if err != nil {
			return limits, err
		}
		p, err := profile.Find(all, req.Profile)
		if err != nil {
			return limits, err
		}
		if p.Limits != nil {
			limits = apispec.Limits(*p.Limits).Over(limits)
		}
	}
	if req.Limits != nil {
		limits = apispec.Limits(*req.Limits).Over(limits)
	}
	return limits, nil
}

// bring applies the dev container of the request's directory, if the user agrees to it; nil is none. One that cannot be
// used is an error only where it is asked for.
func (o *devOptions) bring(ctx context.Context, sess *session.Session,
	req *api.SandboxRequest) (*devcontainer.Effective, error) {
	dir := ""
	if req.Repository != nil && req.IfExists != api.IfExistsReturn {
		dir = flags.LocalFolder(req.Repository.Source)
	}
	if dir == "" && o.use != "" {
		return nil, cove.Errorf(cove.InvalidArgument, "--devcontainer is about a directory of this machine, "+
			"and a sandbox that is made").WithHint("clone the repository, name its directory, and leave --if-exists out")
	}
	if dir == "" || o.skip {
		return nil, nil
	}
	limits, err := userLimits(ctx, sess, *req)
	if err != nil {
		return nil, err
	}
	var allowed []string
	if req.Network != nil {
		allowed = req.Network.Allow
	}
	e, digest, err := readDev(dir, o.name(), o.context(sess, dir, limits, allowed))
	if err == nil {
		err = e.Err()
	}
	switch {
	case o.use == "" && cove.ErrorCode(err) == cove.NotFound:
		return nil, nil
	case o.use == "" && err != nil:
		sess.Say.Line("the dev container is not used: %s", cove.ErrorMessage(err))
		return nil, nil
	case err != nil:
		return nil, err
	}
	agreed, err := o.agreed(sess, e, digest)
	if err != nil || !agreed {
		return nil, err
	}
	equip(req, e)
	return e, nil
}

// agreed reports whether the user uses this content, now or since an earlier yes.
func (o *devOptions) agreed(sess *session.Session, e *devcontainer.Effective, digest string) (bool, error) {
	file, err := sess.InHome("devcontainers", "agreed")
	if err != nil {
		return false, err
	}
	kept, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, cove.Errorf(cove.Forbidden, "cannot read %s: %w", file, ui.Cause(err))
	}
	if slices.Contains(strings.Fields(string(kept)), digest) {
		sess.Say.Line("the dev container of %s is used; --no-devcontainer leaves it alone", e.File)
		return true, nil
	}
	if o.use == "" {
		if sess.JSON || interact.AskTerminal(sess) == nil {
			sess.Say.Line("%s describes a dev container, which is not used; --devcontainer agrees to it, "+
				"\"cove devcontainer explain\" shows it", e.File)
			return false, nil
		}
		sess.Say.Lines(strings.Split(strings.TrimSuffix(devText(e), "\n"), "\n")...)
		if sess.Confirm("use this dev container, until its files change? [y/N] ", "y", "yes") != nil {
			sess.Say.Line("it is not used")
			return false, nil
		}
	} else {
		sayLeft(sess, e)
	}
	return true, session.Keep(file, append(kept, digest+"\n"...))
}

// sayLeft names what of a dev container is not taken, one line each.
func sayLeft(sess *session.Session, e *devcontainer.Effective) {
	for _, l := range e.LeftOut {
		sess.Say.Line("%s, line %d: %s is left out: %s", e.File, l.Line, l.Key, l.Why)
	}
	for _, host := range slices.Concat(e.Network.Asked, e.Network.PassThrough) {
		sess.Say.Line("%s wishes to reach %s, which --allow %s lets it", e.File, host, host)
	}
}

// equip lays a request over its dev container: what the command line says wins.
func equip(req *api.SandboxRequest, e *devcontainer.Effective) {
	req.Image = cmp.Or(req.Image, e.Image)
	req.WorkDir = cmp.Or(req.WorkDir, e.WorkDir)
	if len(e.Env) > 0 {
		env := maps.Clone(e.Env)
		maps.Copy(env, req.Env)
		req.Env = env
	}
	if e.Limits == (cove.Limits{}) {
		return
	}
	var l api.Limits
	if req.Limits != nil {
		l = *req.Limits
	}
	if e.Limits.Memory > 0 {
		l.MemoryMB = max(e.Limits.Memory>>20, 1)
	}
	l.CPUs, l.PIDs = cmp.Or(e.Limits.CPUs, l.CPUs), cmp.Or(e.Limits.PIDs, l.PIDs)
	req.Limits = &l
}

// lifecycle is kept of a sandbox with a dev container, for its later starts: what the user has agreed to, and not what
// the repository says by then.
type lifecycle struct {
	WorkDir  string                 `json:"work_dir"`
	Commands []devcontainer.Command `json:"commands"`
}

func lifecycleFile(sess *session.Session, id string) (string, error) {
	return sess.InHome("devcontainers", filepath.Base(id)+".json")
}

// remove destroys a sandbox, and forgets the commands of its dev container.
func remove(ctx context.Context, sess *session.Session, c *client.Client, id string,
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

// begin runs the commands of a new sandbox, and keeps them for later starts.
func (l lifecycle) begin(ctx context.Context, sess *session.Session, s api.Sandbox, attach bool) error {
	file, err := lifecycleFile(sess, s.ID)
	if err != nil {
		return err
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := session.Keep(file, data); err != nil {
		return err
	}
	when := []devcontainer.When{devcontainer.Once, devcontainer.Start}
	if attach {
		when = append(when, devcontainer.Attach)
	}
	ctx, interrupts := ui.CoverSignals(ctx, sess.Out, sess.Err)
	defer interrupts.Stop()
	b, err := sess.Server(ctx)
	if err != nil {
		return interrupts.Explain(err)
	}
	defer b.Close()
	return interrupts.Explain(l.run(ctx, sess, b.Client, s, when...))
}

// again runs the commands of a sandbox that was started, if it has a dev container.
func again(ctx context.Context, sess *session.Session, c *client.Client, s api.Sandbox) error {
	file, err := lifecycleFile(sess, s.ID)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cove.Errorf(cove.Forbidden, "cannot read %s: %w", file, ui.Cause(err))
	}
	var l lifecycle
	if err := json.Unmarshal(data, &l); err != nil {
		return cove.Errorf(cove.Corrupt, "%s: %w", file, err)
	}
	return l.run(ctx, sess, c, s, devcontainer.Start)
}

// run runs the commands of some moments, one after the other, the steps of each at the same time. Errors:
// InvalidArgument for one that fails; those after it do not run.
func (l lifecycle) run(ctx context.Context, sess *session.Session, c *client.Client, s api.Sandbox,
	when ...devcontainer.When) error {
	for _, command := range l.Commands {
		if !slices.Contains(when, command.When) {
			continue
		}
		sess.Say.Line("%s of %s", command.Name, command.From)
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
						s.Name, r.ExitCode).WithHint("the sandbox is there to look at: %s", sess.Command("shell", s.Name))
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
	}
	return nil
}

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
