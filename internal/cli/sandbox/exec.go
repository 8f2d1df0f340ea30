package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// execOptions are the flags of "cove exec".
type execOptions struct {
	flags.Target
	command                    []string
	tty, input, detach, asJSON bool
	dir, keys                  string
	env                        []string
	timeout                    time.Duration
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
between, unless it is the command. Exit codes beside the command's: 124 out of
time, 125 Cove itself failed, 127 the program is missing, 128+N ended by signal N.`,
		Example: `  cove exec brave-otter -- make test
  cove exec -- git status
  tar c data | cove exec brave-otter -- tar x
  cove exec -t brave-otter -- vim README.md
  cove exec brave-otter --json -- sh -c 'echo out; echo err >&2; exit 3'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := flags.Environment(o.env, sess.Getenv)
			if err != nil {
				return err
			}
			if !o.tty {
				return execute(sess, cmd, &o, env)
			}
			if o.asJSON || o.detach || o.timeout != 0 {
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
	f.BoolVarP(&o.detach, "detach", "d", false, "let the command go on, and do not wait for it")
	f.StringVar(&o.dir, "wd", "", "`DIR` where it begins: relative to the workspace, or absolute")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.DurationVar(&o.timeout, "timeout", 0, "end the command after this `DURATION`")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object, with the output in it")
	interact.AddDetachKeys(f, &o.keys)
	return c
}

// maxCollected is how much of each stream --json prints, in bytes.
const maxCollected = 16 << 20

// collected is the output of --json for a command.
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
	req := api.ExecRequest{Args: o.command, WorkDir: o.dir, Timeout: o.timeout.Seconds(), Detach: o.detach}
	if len(env) > 0 {
		req.Env = maps.Clone(env)
	}
	out := sess.NewScreen()
	stream := client.Stream{Stdout: out.Stdout, Stderr: out.Stderr}
	if o.input || !ui.IsTerminal(sess.In) && !ui.IsNull(sess.In) {
		stream.Stdin = sess.In
	}
	var stdout, stderr bounded
	if o.asJSON {
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
	if !o.asJSON {
		out.Restore()
	}
	if o.detach && interrupts.First() == 0 && cove.ErrorCode(err) == cove.Canceled {
		return nil
	}
	if err != nil {
		return interrupts.Explain(err)
	}
	if o.asJSON {
		all := collected{
			ExecResult: result,
			Stdout:     stdout.String(),
			Stderr:     stderr.String(),
			Truncated:  stdout.over || stderr.over,
		}
		if err := sess.PrintJSON(all); err != nil {
			return err
		}
	}
	sess.Exit = result.ExitCode & 0xff
	if result.LimitHit == string(cove.LimitTimeout) {
		sess.Say.Line("stopped: it ran longer than %v", o.timeout)
		sess.Exit = ui.ExitTimeout
	}
	return nil
}

// passOn sends the signal that came to a command. One that cannot be sent ends the command by leaving it.
func passOn(sess *session.Session, sandbox, id string, c *client.Client, in *ui.Interrupts) {
	ctx, cancel := context.WithTimeout(context.Background(), session.KillTimeout)
	defer cancel()
	name := map[syscall.Signal]string{
		syscall.SIGINT:  "INT",
		syscall.SIGHUP:  "HUP",
		syscall.SIGTERM: "TERM",
		syscall.SIGPIPE: "TERM",
	}[in.First()]
	if err := c.SignalExec(ctx, sandbox, id, cmp.Or(name, "TERM")); err != nil && cove.ErrorCode(err) != cove.NotFound {
		in.GiveUp()
	}
}

// bounded keeps the beginning of what is written.
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
