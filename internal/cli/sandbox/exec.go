package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

type execOptions struct {
	flags.Target
	command            []string
	tty, input, detach bool
	start              bool
	dir, keys          string
	env                []string
	timeout            time.Duration
}

func execCommand(sess *session.Session) *cobra.Command {
	var o execOptions
	c := &cobra.Command{
		Use:   "exec",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox that runs, print what it prints as it comes, and exit
with its exit code. Standard input that is piped is the command's; with -i one
that is a terminal is, too. ctrl-c is passed on; a second one leaves, which ends
the command. With --detach it goes on, and its output is discarded.

With -t the command has a terminal, as "cove shell" has. There is no shell
between, unless it is the command. A sandbox that does not run is started first
with --start, and else refused. Exit codes beside the command's: 124 out of
time, 127 the program is missing, 128+N ended by signal N, of which 137 may be
the sandbox's memory limit, and a line then says so; "cove help exit-codes" has
those of Cove itself, from 120 on.`,
		Example: `  cove exec brave-otter -- make test
  cove exec -- git status
  cove exec --start brave-otter -- git status
  tar c data | cove exec brave-otter -- tar x
  cove exec -t brave-otter -- vim README.md
  cove exec brave-otter --json -- sh -c 'echo out; echo err >&2; exit 3'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := flags.Environment(o.env, sess.Getenv)
			if err != nil {
				return err
			}
			if o.start {
				if err := o.With(cmd, sess, o.wake); err != nil {
					return err
				}
			}
			if !o.tty {
				return execute(sess, cmd, &o, env)
			}
			if sess.JSON || o.detach || o.timeout != 0 {
				return ui.UsageError(cmd, "-t goes with neither --json, --detach nor --timeout")
			}
			return interact.AttachTerminal(sess, cmd, o.Target, o.keys,
				client.TerminalOptions{New: true, Args: o.command, Env: env, WorkDir: o.dir})
		},
	}
	f := c.Flags()
	f.SetInterspersed(true)
	o.AddTo(sess, c)
	c.Use += " [flags] -- COMMAND [ARG...]"
	c.Args = func(cmd *cobra.Command, args []string) error {
		name := args
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			name, o.command = args[:n], args[n:]
		} else if len(args) > 0 {
			name, o.command = args[:1], args[1:]
		}
		if len(o.command) == 0 {
			return cove.Errorf(cove.InvalidArgument, "COMMAND is missing").WithHint("write %q", "cove exec SANDBOX -- COMMAND")
		}
		return o.Take(cmd, name)
	}
	f.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	f.BoolVarP(&o.input, "interactive", "i", false, "pass standard input on, though it is a terminal")
	f.BoolVar(&o.start, "start", false, "start the sandbox first if it does not run")
	f.BoolVarP(&o.detach, "detach", "d", false, "let the command go on, and do not wait for it")
	f.StringVar(&o.dir, "dir", "", "`DIR` where it begins: relative to the workspace, or absolute")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.DurationVar(&o.timeout, "timeout", 0, "end the command after this `DURATION`")
	sess.AddRaw(f)
	sess.AddJSON(f, "print one JSON object, with the output in it")
	interact.AddDetachKeys(f, &o.keys)
	ui.OldNames(f, oldNames)
	return c
}

// wake has the sandbox run, and keeps to it.
func (o *execOptions) wake(ctx context.Context, c *client.Client, s api.Sandbox) error {
	o.Target = flags.Target{Name: s.ID}
	begin := c.StartSandbox
	if s.State == string(cove.StatePaused) {
		begin = c.ResumeSandbox
	}
	_, err := begin(ctx, s.ID)
	return err
}

const maxCollected = 16 << 20 // bytes of each stream that --json prints

type collected struct {
	api.ExecResult
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated,omitempty"`
}

// execute runs a command without a terminal.
func execute(sess *session.Session, cmd *cobra.Command, o *execOptions, env map[string]string) error {
	ctx, interrupts := ui.CoverSignals(cmd.Context(), sess.Out, sess.Err)
	defer interrupts.Stop()
	b, s, err := o.Open(ctx, sess)
	if err != nil {
		return interrupts.Explain(err)
	}
	defer b.Close()
	req := api.ExecRequest{Args: o.command, WorkDir: o.dir, Timeout: api.Seconds(o.timeout.Seconds()), Detach: o.detach}
	if len(env) > 0 {
		req.Env = env
	}
	out := sess.NewScreen()
	if !sess.JSON {
		interrupts.BeforeLeaving(out.Restore)
	}
	stream := client.Stream{Stdout: out.Stdout, Stderr: out.Stderr}
	if o.input || !ui.IsTerminal(sess.In) && !ui.IsNull(sess.In) {
		stream.Stdin = sess.In
	}
	var stdout, stderr bounded
	if sess.JSON {
		stream.Stdout, stream.Stderr = &stdout, &stderr
	}
	stream.Started = func(id string) {
		if o.detach {
			interrupts.GiveUp()
			return
		}
		interrupts.OnSignal(func() { passOn(sess, s.ID, id, b.Client, interrupts) })
	}
	result, err := b.Client.Exec(ctx, s.ID, req, stream)
	interrupts.Settle()
	if !sess.JSON {
		out.Restore()
	}
	if o.detach && interrupts.First() == 0 && cove.ErrorCode(err) == cove.Canceled {
		return nil
	}
	if err != nil {
		return interrupts.Explain(err)
	}
	if sess.JSON {
		all := collected{result, stdout.String(), stderr.String(), stdout.over || stderr.over}
		if err := sess.PrintJSON(all); err != nil {
			return err
		}
	}
	sess.Exit = result.ExitCode & 0xff
	switch cove.LimitKind(result.LimitHit) {
	case cove.LimitTimeout:
		sess.Say.Line("stopped: it ran longer than %v", o.timeout)
		sess.Exit = ui.ExitTimeout
	case cove.LimitOOM:
		sess.Say.Line("%s", report.Stopped("out of memory", ui.SizeText(s.Limits.MemoryMB<<20), "cove new --memory"))
	case cove.LimitDisk:
		sess.Say.Line("%s", report.Stopped("disk full", ui.SizeText(s.Limits.DiskMB<<20), "cove limits --disk"))
	}
	return nil
}

// passOn sends the signal that came to a command. One that cannot be sent ends the command by leaving it.
func passOn(sess *session.Session, sandbox, id string, c *client.Client, in *ui.Interrupts) {
	ctx, cancel := context.WithTimeout(context.Background(), session.KillTimeout)
	defer cancel()
	name := map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGHUP: "HUP"}[in.First()]
	if err := c.SignalExec(ctx, sandbox, id, cmp.Or(name, "TERM")); err != nil && cove.ErrorCode(err) != cove.NotFound {
		in.GiveUp()
	}
}

type bounded struct {
	bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), maxCollected-b.Len())
	b.over = b.over || n < len(p)
	b.Buffer.Write(p[:n])
	return len(p), nil
}

func attachCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var keys, id, kill string
	var list bool
	c := &cobra.Command{
		Use:   "attach",
		Short: "Look at a sandbox's terminal, and type",
		Long: `Look at the terminal of a sandbox that runs: at the oldest, whose program is its
agent or a shell. Where there is none, it is started.

` + interact.TerminalHelp,
		Example: `  cove attach
  cove attach brave-otter --terminal t2
  cove attach brave-otter --list
  cove attach --last --detach-keys ctrl-]`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case list:
				return listTerminals(sess, cmd, p)
			case sess.JSON:
				return ui.UsageError(cmd, "--json goes with --list")
			case kill != "":
				return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
					return c.KillTerminal(ctx, s.ID, kill)
				})
			}
			return interact.AttachTerminal(sess, cmd, p, keys, client.TerminalOptions{ID: id})
		},
	}
	p.AddTo(sess, c)
	interact.AddDetachKeys(c.Flags(), &keys)
	c.Flags().StringVar(&id, "terminal", "", "`ID` of the terminal")
	ui.OldLetter(c.Flags(), "t", "terminal")
	c.Flags().BoolVar(&list, "list", false, "list the sandbox's terminals instead")
	c.Flags().StringVar(&kill, "kill", "", "end the program of the terminal `ID` instead")
	sess.AddJSON(c.Flags(), "with --list, print one JSON object")
	return c
}

func shellCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var keys, dir string
	var env, rest []string
	c := &cobra.Command{
		Use:   "shell",
		Short: "Start a shell in a sandbox",
		Long: `Start a login shell in a new terminal of a sandbox that runs: bash, or sh where
that is not there, with the arguments after --.

` + interact.TerminalHelp,
		Example: `  cove shell
  cove shell brave-otter
  cove shell brave-otter --dir src -- -x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := client.TerminalOptions{New: true, WorkDir: dir}
			if len(rest) > 0 {
				// Which shell there is only the sandbox knows.
				const shell = `if command -v bash >/dev/null; then exec bash -l "$@"; fi; exec sh -l "$@"`
				o.Args = append([]string{"sh", "-c", shell, "sh"}, rest...)
			}
			var err error
			if o.Env, err = flags.Environment(env, sess.Getenv); err != nil {
				return err
			}
			return interact.AttachTerminal(sess, cmd, p, keys, o)
		},
	}
	addRest(sess, c, &p, "ARG", &rest)
	interact.AddDetachKeys(c.Flags(), &keys)
	c.Flags().StringVar(&dir, "dir", "", "`DIR` where it begins: relative to the workspace, or absolute")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	ui.OldNames(c.Flags(), oldNames)
	return c
}

func listTerminals(sess *session.Session, cmd *cobra.Command, p flags.Target) error {
	return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
		all, err := c.Terminals(ctx, s.ID)
		headings := []string{"TERMINAL", "STATE", "SIZE", "ATTACHED", "STARTED", "PROGRAM"}
		return sess.Show(ui.Listing("terminals", all, headings, func(t api.Terminal) []string {
			state := "runs"
			if t.ExitCode != nil {
				state = fmt.Sprintf("ended (%d)", *t.ExitCode)
			}
			return []string{t.ID, state, fmt.Sprintf("%dx%d", t.Columns, t.Rows), fmt.Sprint(t.Attached),
				ui.Ago(time.Since(t.CreatedAt)), strings.Join(t.Args, " ")}
		}), err)
	})
}
