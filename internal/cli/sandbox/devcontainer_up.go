package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	gitfolder "github.com/cove-sandbox/cove/internal/git/folder"
)

// folderLabel is the label of a dev container's sandbox with the directory that it is of, as the specification has it.
const folderLabel = "devcontainer.local_folder"

// folder is the directory whose dev container a command is about.
type folder struct{ dir string }

func (o *folder) add(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "workspace-folder", "", "`DIR` of the repository (default: this one)")
}

// label is the value of folderLabel: a server of another machine has the directories of several.
func label(sess *session.Session, top string) string {
	if sess.Far() {
		return gitfolder.Name(top)
	}
	return top
}

// find returns the sandbox of the directory's dev container; it has no id where there is none.
func (o folder) find(ctx context.Context, c *client.Client, of string) (s api.Sandbox, err error) {
	l, err := c.LabeledSandboxes(ctx, map[string]string{folderLabel: of})
	for _, one := range l.Sandboxes {
		if !one.OfAnother && one.State != string(cove.StateDestroying) && (s.ID == "" || one.LastUsedAt.After(s.LastUsedAt)) {
			s = one
		}
	}
	return s, err
}

// must returns the sandbox of the directory's dev container. Errors: NotFound.
func (o folder) must(ctx context.Context, sess *session.Session) (s api.Sandbox, err error) {
	top, err := repositoryOf(o.dir)
	if err != nil {
		return s, err
	}
	b, err := sess.Server(ctx)
	if err != nil {
		return s, err
	}
	defer b.Close()
	s, err = o.find(ctx, b.Client, label(sess, top))
	if err == nil && s.ID == "" {
		err = cove.Errorf(cove.NotFound, "there is no sandbox of the dev container of %s", top).
			WithHint("make it: %s", sess.Command("devcontainer", "up"))
	}
	return s, err
}

type upOptions struct {
	flags.NewSandbox
	folder
	dev  devcontainers.Options
	bind bool
}

func devUp(sess *session.Session) *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: "Make or start the sandbox of a directory's dev container",
		Long: `Make the sandbox of the dev container of a directory, or start the one that is
there, and print its name. A directory has one. Its commands run in their order:
those that run once, those of each start, and postAttachCommand. Where one has
failed, the next "up" goes on with it.

By this command you agree to what the file says, as by "cove new --devcontainer";
what of it is left out is said. A sandbox that is there stays as it was made: "cove
devcontainer down" and "up" make it anew when the file has changed.

The sandbox has a checkout of the repository on a branch of its own, as those of
"cove new" have, or with --bind the directory itself. With dockerComposeFile it has
the other services beside it, which programs reach by their names.`,
		Example: `  cove devcontainer up
  cove devcontainer up --workspace-folder ../shop --preset npm
  cove devcontainer up --bind --json`,
		Args: func(cmd *cobra.Command, _ []string) error {
			if o.bind && o.Uncommitted {
				return ui.UsageError(cmd, "--bind and --uncommitted exclude each other")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Given = cmd.Flags().Changed
			s, err := o.up(cmd.Context(), sess)
			if err != nil {
				return err
			}
			return sess.Show(ui.Result{Value: s, Text: s.Name + "\n"}, nil)
		},
	}
	f := c.Flags()
	o.folder.add(f)
	f.StringVar(&o.Name, "name", "", "`NAME` of a new sandbox (default: made up)")
	f.BoolVar(&o.bind, "bind", false, "the directory itself is the workspace, and what is done in it is done")
	f.BoolVar(&o.Uncommitted, "uncommitted", false,
		"begin at what is in the directory now, committed or not; it need not be a repository")
	flags.AddIgnored(f, &o.Ignored)
	o.AddSandbox(f)
	o.dev.Add(f)
	f.MarkHidden("no-devcontainer")
	sess.AddJSON(f, "print one JSON object")
	f.SortFlags = false
	sess.AddProfile(c, &o.Profile)
	return c
}

func (o *upOptions) up(ctx context.Context, sess *session.Session) (s api.Sandbox, err error) {
	top, err := repositoryOf(o.dir)
	if err != nil {
		return s, err
	}
	sum := sha256.Sum256([]byte(top))
	lock, err := sess.InHome("devcontainers", "up-"+hex.EncodeToString(sum[:8])+".lock")
	if err != nil {
		return s, err
	}
	release, err := session.Alone(ctx, lock)
	if err != nil {
		return s, err
	}
	defer release()
	b, err := sess.Server(ctx)
	if err != nil {
		return s, err
	}
	defer b.Close()
	if s, err = o.find(ctx, b.Client, label(sess, top)); err != nil {
		return s, err
	}
	if s.ID != "" {
		return o.resume(ctx, sess, b.Client, s, top)
	}
	return o.make(ctx, sess, top)
}

// resume has a sandbox that is there run, and its commands.
func (o *upOptions) resume(ctx context.Context, sess *session.Session, c *client.Client, s api.Sandbox,
	top string) (api.Sandbox, error) {
	if found, err := o.dev.Explain(ctx, sess, top); err == nil && found.Changed(sess, s.ID) {
		sess.Say.Line("%s has changed since %s was made, which stays as it is; make it anew: %s, %s", found.File, s.Name,
			sess.Command("devcontainer", "down"), sess.Command("devcontainer", "up"))
	}
	was := s.State
	var err error
	switch cove.State(was) {
	case cove.StateRunning:
	case cove.StatePaused:
		s, err = c.ResumeSandbox(ctx, s.ID)
	default:
		s, err = c.StartSandbox(ctx, s.ID)
	}
	if err != nil {
		return s, err
	}
	started := !slices.Contains([]cove.State{cove.StateRunning, cove.StatePaused}, cove.State(was))
	return s, devcontainers.Resume(ctx, sess, s, started)
}

// make makes the sandbox of a directory.
func (o *upOptions) make(ctx context.Context, sess *session.Session, top string) (s api.Sandbox, err error) {
	if o.Source = top; o.bind {
		o.Source, o.Bind = "", top
	}
	req, err := o.Request(sess.Getenv)
	if err != nil {
		return s, err
	}
	if err := flags.CheckNear(sess, req.Bind); err != nil {
		return s, err
	}
	if req.Profile, err = sess.ResolveProfile(o.Profile); err != nil {
		return s, err
	}
	if r := req.Repository; r != nil {
		if r.Ignored, err = interact.Ignored(ctx, sess, req.Profile, r.Source, r.Ignored); err != nil {
			return s, err
		}
	}
	o.dev.Always()
	found, err := o.dev.Bring(ctx, sess, &req)
	if err != nil {
		return s, err
	}
	if req.Labels == nil {
		req.Labels = map[string]string{}
	}
	req.Labels[folderLabel] = label(sess, top)
	if s, err = interact.CreateSandbox(ctx, sess, req); err != nil {
		return s, err
	}
	if err := found.Begin(ctx, sess, s, true); err != nil {
		return s, err
	}
	if !sess.JSON {
		sayReady(sess, s)
	}
	return s, nil
}

func devExec(sess *session.Session) *cobra.Command {
	var at folder
	var o execOptions
	c := &cobra.Command{
		Use:   "exec COMMAND [ARG]...",
		Short: "Run a command in the sandbox of a directory's dev container",
		Long: `Run a command in the sandbox of a directory's dev container, which "cove devcontainer
up" has made: with the variables of the file, and where its workspaceFolder says. Flags
stand before COMMAND. Otherwise it is as "cove exec", and exits with its exit code.`,
		Example: `  cove devcontainer exec make test
  cove devcontainer exec --workspace-folder ../shop -e CI=1 npm test`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.command = args; len(args) == 0 {
				return ui.UsageError(cmd, "COMMAND is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := flags.Environment(o.env, sess.Getenv)
			if err != nil {
				return err
			}
			s, err := at.must(cmd.Context(), sess)
			if err == nil && s.State != string(cove.StateRunning) {
				err = cove.Errorf(cove.Conflict, "the sandbox %s is %s", s.Name, s.State).
					WithHint("start it: %s", sess.Command("devcontainer", "up"))
			}
			if err != nil {
				return err
			}
			o.Target = flags.Target{Name: s.ID}
			if o.dir == "" {
				if o.dir, err = devcontainers.WorkDir(sess, s.ID); err != nil {
					return err
				}
			}
			if !o.tty {
				return execute(sess, cmd, &o, env)
			}
			if sess.JSON {
				return ui.UsageError(cmd, "-t and --json exclude each other")
			}
			return interact.AttachTerminal(sess, cmd, o.Target, o.keys,
				client.TerminalOptions{New: true, Args: o.command, Env: env, WorkDir: o.dir})
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	at.add(f)
	f.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	f.BoolVarP(&o.input, "interactive", "i", false, "pass standard input on, though it is a terminal")
	f.StringVar(&o.dir, "dir", "", "`DIR` where it begins: relative to the workspace, or absolute")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.DurationVar(&o.timeout, "timeout", 0, "end the command after this `DURATION`")
	sess.AddRaw(f)
	sess.AddJSON(f, "print one JSON object, with the output in it")
	interact.AddDetachKeys(f, &o.keys)
	ui.OldNames(f, map[string]string{"remote-env": "env"})
	return c
}

func devStop(sess *session.Session) *cobra.Command {
	var o folder
	c := &cobra.Command{
		Use:   "stop",
		Short: "Stop the sandbox of a directory's dev container",
		Long: `End everything that runs in the sandbox of a directory's dev container. Its work
stays, and "cove devcontainer up" begins with it.`,
	}
	o.add(c.Flags())
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (r ui.Result, err error) {
		err = sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
			s, err := o.must(ctx, sess)
			if err == nil {
				s, err = c.StopSandbox(ctx, s.ID)
			}
			r = ui.Result{Value: s, Text: s.Name + "\n"}
			return err
		})
		return r, err
	})
}

func devDown(sess *session.Session) *cobra.Command {
	var at folder
	var o destroyOptions
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove the sandbox of a directory's dev container, and the work in it",
		Long: `Remove the sandbox of a directory's dev container with the work in it, as "cove
destroy" does: it asks at a terminal, and elsewhere --yes has to be there.`,
		Example: "  cove devcontainer down\n  cove devcontainer down --keep-work --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := at.must(cmd.Context(), sess)
			if err != nil {
				return err
			}
			return destroy(sess, cmd, o, []string{s.ID})
		},
	}
	f := c.Flags()
	at.add(f)
	f.BoolVar(&o.keepWork, "keep-work", false, "leave the checkout where it is")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	sess.AddJSON(f, "print one JSON object")
	return c
}

func devBuild(sess *session.Session) *cobra.Command {
	var at folder
	var spec flags.Spec
	var dev devcontainers.Options
	c := &cobra.Command{
		Use:   "build",
		Short: "Build or pull the image of a directory's dev container",
		Long: `Build or pull the image of a directory's dev container, unless it is there, and
print its name. Those of its services are built or pulled, too. By this command
you agree to what the file says. A build needs root or subordinate ids.`,
		Example: "  cove devcontainer build\n  cove devcontainer build --preset debian",
	}
	f := c.Flags()
	at.add(f)
	dev.Add(f)
	f.MarkHidden("no-devcontainer")
	spec.Policy.Add(f)
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (r ui.Result, err error) {
		spec.Given = cmd.Flags().Changed
		top, err := repositoryOf(at.dir)
		if err != nil {
			return r, err
		}
		found, err := dev.Agree(cmd.Context(), sess, top)
		if err != nil {
			return r, err
		}
		resolved, err := spec.Resolve(sess.Getenv)
		if err != nil {
			return r, err
		}
		name, err := found.BuildImage(cmd.Context(), sess, resolved.Network, nil)
		if err == nil {
			err = found.BuildBeside(cmd.Context(), sess, resolved.Network)
		}
		return ui.Result{Value: map[string]string{"image": name}, Text: name + "\n"}, err
	})
}

// repositoryOf returns the top of the repository that a directory is in, or the directory; empty is the current one.
func repositoryOf(dir string) (string, error) {
	real, err := flags.RealDirectory(dir)
	if err != nil {
		return "", err
	}
	return cmp.Or(flags.RepositoryTop(real), real), nil
}
