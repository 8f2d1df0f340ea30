package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// options are the flags of "cove run" as they were written.
type options struct {
	flags.Spec

	code  string
	files []string
	stdin bool // pass a terminal's input on, too
	json  bool
}

func runCommand(sess *session.Session) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "run RUNTIME [FILE] [-c CODE] [--file PATH]... [-- ARG...]",
		Short: "Run code in a fresh sandbox",
		Long: `Run a program in a fresh sandbox, print what it prints as it comes, and exit
with its exit code. The code is FILE, or -c CODE, or standard input when FILE
is "-"; otherwise standard input is the program's when it is piped.

The sandbox has no network unless --network, --allow, --policy or
--model-provider say what it may reach, a read-only root, an unprivileged user and limits.
What a limit ended is said on standard error. Exit codes beside the program's:
124 out of time, 125 Cove itself failed, 126 refused, 127 the runtime or image
is missing, 128+N ended by signal N.`,
		Example: `  cove run python -c 'print(6 * 7)'
  cove run python train.py --file data.csv --memory 1G --timeout 60s
  cove run bash -c 'echo "$1"' -- hello
  cat words.txt | cove run perl -c 'print sort <>'
  cove run python main.py --mount ./src:/src:ro --env MODE=test
  cove run node -c 'while (1) {}' --timeout 2s --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Given = cmd.Flags().Changed
			return runCode(cmd.Context(), sess, &o, args, cmd.ArgsLenAtDash())
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			var names []string
			for _, r := range runtime.All() {
				names = append(names, r.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	f := c.Flags()
	f.StringVarP(&o.code, "code", "c", "", "the `CODE` itself")
	f.StringArrayVar(&o.files, "file", nil, "place the file `PATH` beside the code (repeatable)")
	f.BoolVarP(&o.stdin, "interactive", "i", false, "hand on standard input although it is a terminal")
	f.StringArrayVar(&o.Env, "env", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.StringArrayVar(&o.Mounts, "mount", nil, "attach `SOURCE:TARGET[:ro]` (repeatable)")
	f.StringVar(&o.WorkDir, "work-dir", "", "attach `DIR` at /workspace and run there")
	o.AddMake(f, "`ENGINE`: native, docker or auto")
	o.Policy.Add(f)
	f.StringArrayVar(&o.Credentials, "credential", nil,
		"set the credential `NAME` on its requests, outside the sandbox (repeatable)")
	o.Models.Add(f)
	f.StringVar(&o.Timeout, "timeout", "", "wall `TIME`, like 10s")
	f.StringVar(&o.Memory, "memory", "", "memory `SIZE`, writable files included, like 256M")
	f.Float64Var(&o.CPUs, "cpus", 0, "`CORES`, like 0.5")
	f.Int64Var(&o.PIDs, "pids", 0, "`COUNT` of processes and threads")
	f.StringVar(&o.Disk, "disk", "", "`SIZE` of everything writable, like 100M")
	f.Int64Var(&o.Inodes, "inodes", 0, "`COUNT` of files and directories of everything writable")
	f.Int64Var(&o.OpenFiles, "open-files", 0, "`COUNT` of open files of each process")
	f.StringVar(&o.Stdout, "stdout-limit", "", "`SIZE` of output that is kept, like 1M")
	f.StringVar(&o.Stderr, "stderr-limit", "", "`SIZE` of error output that is kept, like 256K")
	f.BoolVar(&o.json, "json", false, "print one JSON object with the result, output included")
	f.SortFlags = false
	sess.AddProfile(c, &o.Profile)
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cove.Errorf(cove.InvalidArgument, "%w", err).
			WithHint("see \"cove run --help\"; arguments of the program follow --")
	})
	return c
}

func runCode(ctx context.Context, sess *session.Session, o *options, args []string, dash int) error {
	interrupts := ui.WatchSignals(sess.Out, sess.Err)
	defer interrupts.Stop()
	language, file, rest, err := splitArgs(args, dash)
	if err != nil {
		return err
	}
	req, err := o.request(language, rest, sess.Getenv)
	if err != nil {
		return err
	}
	req.Profile, err = sess.ResolveProfile(o.Profile)
	if err != nil {
		return err
	}
	if req.Code, err = o.source(file, sess.In); err != nil {
		return err
	}
	ctx, cancel := interrupts.Cover(ctx)
	defer cancel()
	b, err := sess.Connect(ctx, true)
	if err != nil {
		return interrupts.Explain(err)
	}
	stdin := programInput(sess, o, file)
	e, err := execute(ctx, sess, b.Client, req, o.json, stdin, askable(sess, req, file, stdin), interrupts)
	if cerr := b.Close(); err == nil && cerr != nil {
		sess.Say.Fail(cerr) // the program's own result stands
	}
	if err != nil {
		if o.json && !errors.Is(err, syscall.EPIPE) {
			sess.PrintJSON(api.Error{Error: err.Error(), Code: string(cove.ErrorCode(err)), Hint: cove.ErrorHint(err)})
		}
		return interrupts.Explain(err)
	}
	sess.Exit = exitOf(e, interrupts.First())
	if o.json {
		return sess.PrintJSON(e)
	}
	conclude(sess, e, req)
	return nil
}

// programInput returns the standard input of the program, or nil.
func programInput(sess *session.Session, o *options, file string) io.Reader {
	if file == "-" || ui.IsNull(sess.In) || ui.IsTerminal(sess.In) && !o.stdin {
		return nil
	}
	return sess.In
}

// execute runs one request to its end. A signal kills the execution, whose record then still arrives. What its policy
// asks about is asked at terminal, or said if that is nil.
func execute(ctx context.Context, sess *session.Session, c *client.Client, req api.ExecuteRequest, collect bool,
	stdin io.Reader, terminal *os.File, in *ui.Interrupts) (api.Execution, error) {
	var stdout, stderr bytes.Buffer
	out := sess.NewScreen()
	defer out.Restore()
	asker := interact.NewAsker(sess, c, terminal, out)
	defer asker.Stop()
	s := client.Stream{Stdin: stdin, Stdout: out.Stdout, Stderr: out.Stderr, Holds: asker.Take}
	if collect {
		s.Stdout, s.Stderr = &stdout, &stderr
	}
	defer in.Settle()
	s.Started = func(id string) {
		in.OnSignal(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.KillTimeout)
			defer cancel()
			if _, err := c.Kill(ctx, id); err != nil && cove.ErrorCode(err) != cove.Conflict {
				in.GiveUp()
			}
		})
	}
	e, err := c.ExecuteStream(ctx, req, s)
	if err == nil && collect {
		e.Output, e.Stderr = valid(stdout.Bytes()), valid(stderr.Bytes())
	}
	return e, err
}

// valid is text for JSON: as everywhere in the API, invalid UTF-8 is replaced.
func valid(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

// conclude prints the summary below the program's output.
func conclude(sess *session.Session, e api.Execution, req api.ExecuteRequest) {
	used := report.InForce(defaultsOf(req.Language), req.Limits, req.Timeout)
	for _, w := range warnings(e) {
		sess.Say.Line("%s", w)
	}
	if t := report.Truncation(e, used); t != "" {
		sess.Say.Line("%s", t)
	}
	if m := modelsUsed(e.Models); m != "" {
		sess.Say.Line("%s", m)
	}
	if v := report.Verdict(e, used); v != "" {
		sess.Say.Line("%s", v)
	}
}

// defaultsOf are the declared limits of a runtime, zero when it is unknown.
func defaultsOf(language string) cove.Limits {
	r, err := runtime.Lookup(language)
	if err != nil {
		return cove.Limits{}
	}
	limits, err := r.Resolve(cove.Limits{})
	if err != nil {
		return cove.Limits{}
	}
	return limits
}

// modelsUsed describes the use of models in one line. It is empty if there was none.
func modelsUsed(all []api.ModelUsage) string {
	var parts []string
	for _, u := range all {
		requests := "requests"
		if u.Requests == 1 {
			requests = "request"
		}
		in := fmt.Sprintf("%d tokens in", u.InputTokens+u.CacheReadTokens+u.CacheWriteTokens)
		if u.CacheReadTokens > 0 {
			in += fmt.Sprintf(" (%d from cache)", u.CacheReadTokens)
		}
		part := fmt.Sprintf("%s %d %s, %s, %d out", u.Provider, u.Requests, requests, in, u.OutputTokens)
		if u.Cost > 0 {
			part += fmt.Sprintf(", $%.4f", u.Cost)
		}
		if u.Estimated > 0 {
			part += " (estimated)"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "models: " + strings.Join(parts, "; ")
}

// warnings are the security events worth a person's attention.
func warnings(e api.Execution) []string {
	var lines []string
	for _, ev := range e.SecurityEvents {
		if ev.Rule == execution.DeniedRule {
			lines = append(lines, fmt.Sprintf("note: policy denied %s (allow it with --allow %[1]s)", ev.Detail))
		}
		if ev.Severity == "high" || ev.Severity == "critical" {
			lines = append(lines,
				fmt.Sprintf("note: line %d looks like an escape attempt: %s (%s)", ev.Line, ev.Detail, ev.Rule))
		}
	}
	return lines
}

// askable returns the terminal at which the user can be asked, or nil. Neither the
// program's input nor its code comes from it, and its policy may ask.
func askable(sess *session.Session, req api.ExecuteRequest, file string, stdin io.Reader) *os.File {
	if req.Permissions == nil || stdin != nil || file == "-" {
		return nil
	}
	if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Err) || !interact.Foreground(sess.In) {
		return nil
	}
	return sess.In
}

// exitOf is the exit code for an execution that came to its end. stopped is
// the signal with which the user ended it, or 0.
func exitOf(e api.Execution, stopped syscall.Signal) int {
	switch {
	case stopped != 0 && e.Status == api.StatusKilled:
		return ui.ExitSignal(stopped)
	case e.Status == api.StatusTimeout:
		return ui.ExitTimeout
	case e.Status == api.StatusRefused:
		return ui.ExitRefused
	case e.Status == api.StatusFailed:
		return ui.ExitCove
	case e.ExitCode < 0: // ended from outside: "cove kill", a limit
		return ui.ExitSignal(syscall.SIGKILL)
	}
	return e.ExitCode & 0xff
}
