package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/runtime"
)

type options struct {
	flags.Spec

	code  string
	files []string
	stdin bool // pass a terminal's input on, too

	entrypoint string
}

func runCommand(sess *session.Session) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "run [RUNTIME] [FILE] [-c CODE] [--file PATH]... [-- ARG...]",
		Short: "Run code in a fresh sandbox",
		Long: `Run a program in a fresh sandbox, print what it prints as it comes, and exit
with its exit code. The code is FILE, or -c CODE, or standard input when FILE
is "-"; otherwise standard input is the program's when it is piped. RUNTIME may
be left out where the extension of FILE says it. Without RUNTIME and code, the
program of --image is run: its ENTRYPOINT, with ARG or else its CMD.

The sandbox has no network unless --network, --allow, --policy or
--model-provider say what it may reach, a read-only root, an unprivileged user and limits.
What a limit ended is said on standard error. Exit codes beside the program's:
124 out of time, 126 refused, 127 the runtime or image is missing, 128+N ended by
signal N; "cove help exit-codes" has those of Cove itself, from 120 on.`,
		Example: `  cove run python -c 'print(6 * 7)'
  cove run script.js
  cove run python train.py --file data.csv --memory 1G --timeout 2h
  cove run bash -c 'echo "$1"' -- hello
  cove run --image alpine:3.22 -- ls /
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
			return names, cobra.ShellCompDirectiveDefault // or a file, whose extension says it
		},
	}
	f := c.Flags()
	f.StringVarP(&o.code, "code", "c", "", "the `CODE` itself")
	f.StringArrayVar(&o.files, "file", nil, "place the file `PATH` beside the code (repeatable)")
	f.StringVar(&o.entrypoint, "entrypoint", "", "run `PROGRAM` of the image with ARG..., in place of the image's own")
	f.BoolVarP(&o.stdin, "interactive", "i", false, "hand on standard input although it is a terminal")
	f.StringArrayVar(&o.Env, "env", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	o.AddMounts(f)
	f.StringVar(&o.WorkDir, "dir", "", "attach `DIR` at /workspace and run there")
	o.AddMake(f, "`ENGINE`: native, docker, podman or auto")
	f.StringVar(&o.Timeout, "timeout", "", "wall `TIME`, like 10s")
	f.StringVar(&o.Memory, "memory", "", "memory `SIZE`, writable files included, like 256M")
	f.Float64Var(&o.CPUs, "cpus", 0, "`CORES`, like 0.5")
	f.Int64Var(&o.PIDs, "pids", 0, "`COUNT` of processes and threads")
	f.StringVar(&o.Disk, "disk", "", "`SIZE` of everything writable, like 100M")
	f.Int64Var(&o.Inodes, "inodes", 0, "`COUNT` of files and directories of everything writable")
	f.Int64Var(&o.OpenFiles, "open-files", 0, "`COUNT` of open files of each process")
	f.StringVar(&o.Stdout, "stdout-limit", "", "`SIZE` of output that is kept, like 1M")
	f.StringVar(&o.Stderr, "stderr-limit", "", "`SIZE` of error output that is kept, like 256K")
	sess.AddRaw(f)
	sess.AddJSON(f, "print one JSON object with the result, output included")
	f.SortFlags = false
	ui.OldNames(f, map[string]string{"work-dir": "dir"})
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
	language, file, rest, err := o.split(args, dash)
	if err != nil {
		return err
	}
	req, err := o.request(language, rest, sess.Getenv)
	if err != nil {
		return err
	}
	if req.Profile, err = sess.ResolveProfile(o.Profile); err != nil {
		return err
	}
	server, err := session.Settle(ctx, sess, true)
	if err != nil {
		return err
	}
	if language != runtime.Image {
		if req.Code, err = o.source(file, sess.In); err != nil {
			return err
		}
	}
	ctx, cancel := interrupts.Cover(ctx)
	defer cancel()
	b, err := session.Use(ctx, sess, server, true)
	if err != nil {
		return interrupts.Explain(err)
	}
	if req.Profile != "" || req.Permissions != nil { // which may name credentials
		session.ShareKeys(ctx, sess, b.Client)
	}
	stdin := programInput(sess, o, file)
	e, err := execute(ctx, sess, b.Client, req, stdin, askable(sess, req, file, stdin), interrupts)
	if cerr := b.Close(); err == nil && cerr != nil {
		sess.Say.Fail(cerr) // the program's own result stands
	}
	if err != nil {
		return interrupts.Explain(explainLanguage(err, language))
	}
	sess.Exit = exitOf(e, interrupts.First())
	if sess.JSON {
		return sess.PrintJSON(e)
	}
	conclude(sess, e)
	return nil
}

func programInput(sess *session.Session, o *options, file string) io.Reader {
	if file == "-" || ui.IsNull(sess.In) || ui.IsTerminal(sess.In) && !o.stdin {
		return nil
	}
	return sess.In
}

// execute runs one request to its end. A signal kills the execution, whose record then still arrives. What its policy
// asks about is asked at terminal, or said if that is nil.
func execute(ctx context.Context, sess *session.Session, c *client.Client, req api.ExecuteRequest, stdin io.Reader,
	terminal *os.File, in *ui.Interrupts) (api.Execution, error) {
	var stdout, stderr bytes.Buffer
	out := sess.NewScreen()
	defer out.Restore()
	in.BeforeLeaving(out.Restore)
	asker := interact.NewAsker(sess, c, terminal, out)
	defer asker.Stop()
	s := client.Stream{Stdin: stdin, Stdout: out.Stdout, Stderr: out.Stderr, Holds: asker.Take}
	var last ending
	if len(req.Mounts) > 0 || req.WorkDir != "" {
		s.Stderr = io.MultiWriter(out.Stderr, &last)
	}
	if sess.JSON {
		s.Stdout, s.Stderr = &stdout, &stderr
	}
	defer in.Settle()
	s.Started = func(id string) { in.OnSignal(func() { session.Kill(ctx, c, in, id) }) }
	e, err := c.ExecuteStream(ctx, req, s)
	if err == nil && sess.JSON {
		e.Output, e.Stderr = valid(stdout.Bytes()), valid(stderr.Bytes())
	} else if err == nil {
		e.Stderr = valid(last)
	}
	return e, err
}

// ending keeps the last of what is written to it, as much as is searched for what went wrong.
type ending []byte

func (e *ending) Write(p []byte) (int, error) {
	const most = 4096
	*e = append(*e, p[max(0, len(p)-most):]...)
	*e = append((*e)[:0], (*e)[max(0, len(*e)-most):]...)
	return len(p), nil
}

// valid is text for JSON: as everywhere in the API, invalid UTF-8 is replaced.
func valid(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

func conclude(sess *session.Session, e api.Execution) {
	sess.Say.Lines(append(warnings(e), gitReadOnly(e), report.Truncation(e), modelsUsed(e.Models), report.History(e),
		report.Verdict(e))...)
}

// gitReadOnly explains what programs in a mounted checkout say when they cannot write to .git. It is empty where they
// say no such thing.
func gitReadOnly(e api.Execution) string {
	note := ""
	for line := range strings.Lines(e.Stderr) {
		config := strings.Contains(line, ".git/config")
		busy := config && strings.Contains(line, "Device or resource busy")
		readOnly := strings.Contains(line, "/.git/") && strings.Contains(line, "Read-only file system")
		switch {
		case busy, readOnly && e.ExitCode != 0 && (config || strings.Contains(line, ".git/hooks")):
			return "note: hooks and configuration of git are read-only in a mounted directory; " +
				"--writable-git --writable-hooks changes that, see docs/mounts.md"
		case readOnly && e.ExitCode != 0:
			note = "note: .git of a mounted directory is read-only inside; --writable-git changes that, see docs/mounts.md"
		}
	}
	return note
}

// modelsUsed describes the use of models in one line. It is empty if there was none.
func modelsUsed(all []api.ModelUsage) string {
	var parts []string
	for _, u := range all {
		in := fmt.Sprintf("%d tokens in", u.InputTokens+u.CacheReadTokens+u.CacheWriteTokens)
		if u.CacheReadTokens > 0 {
			in += fmt.Sprintf(" (%d from cache)", u.CacheReadTokens)
		}
		requests := ui.Counted(int(u.Requests), "request", "requests")
		part := fmt.Sprintf("%s %s, %s, %d out", u.Provider, requests, in, u.OutputTokens)
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
		switch ev.Rule {
		case detect.NetworkDenied:
			lines = append(lines, fmt.Sprintf("note: policy denied %s (allow it with %s)", ev.Detail, ev.Remedy))
		case detect.NetworkUntrusted:
			lines = append(lines, fmt.Sprintf("note: %s: the program does not accept the sandbox's authority (pinned?): "+
				"%s lets it through unjudged", ev.Detail, ev.Remedy))
		case detect.MadeInMount:
			lines = append(lines, "note: "+ev.Detail)
		default:
			if ev.Severity == "high" || ev.Severity == "critical" {
				lines = append(lines,
					fmt.Sprintf("note: line %d looks like an escape attempt: %s (%s)", ev.Line, ev.Detail, ev.Rule))
			}
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
	return interact.AskTerminal(sess)
}

// exitOf is the exit code for an execution that has ended. stopped is the user's signal that ended it, or 0.
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
	case e.Status == api.StatusShutdown:
		return ui.ExitAway
	case e.ExitCode < 0: // ended from outside: "cove kill", a limit
		return ui.ExitSignal(syscall.SIGKILL)
	}
	return e.ExitCode & 0xff
}

// maxCode is the API's limit on the size of code, in bytes. Code beyond it is not read.
const maxCode = 1 << 20

// request builds what is sent, apart from the code.
func (o *options) request(language string, args []string, getenv func(string) string) (api.ExecuteRequest, error) {
	req := api.ExecuteRequest{Language: language, Args: args}
	if o.entrypoint != "" {
		req.Entrypoint = []string{o.entrypoint}
	}
	made, err := o.Resolve(getenv)
	if err != nil {
		return req, err
	}
	req.Spec, req.Timeout = made.Spec, made.Timeout
	if made.Network != nil {
		req.Permissions = &api.Permissions{Network: made.Network}
	}
	for i, arg := range args {
		if err := flags.CheckText(fmt.Sprintf("argument %d of the program", i+1), arg); err != nil {
			return req, err
		}
	}
	if req.Files, err = flags.ReadFiles(o.files); err != nil {
		return req, err
	}
	if o.WorkDir != "" {
		if req.WorkDir, err = filepath.Abs(o.WorkDir); err != nil {
			return req, cove.Errorf(cove.InvalidArgument, "--dir %s: %w", o.WorkDir, err)
		}
	}
	return req, nil
}

// source finds the program's text: -c, a FILE, or standard input for "-".
func (o *options) source(file string, stdin io.Reader) (string, error) {
	switch {
	case o.Given("code") && file != "":
		return "", cove.Errorf(cove.InvalidArgument, "both -c and the file %s were given", file).
			WithHint("put -- before arguments of the program")
	case o.Given("code") && o.code == "":
		return "", cove.Errorf(cove.InvalidArgument, "the code of -c is empty").WithHint("quote it: -c 'print(1)'")
	case o.Given("code"):
		return o.code, flags.CheckText("the code of -c", o.code)
	case file == "":
		return "", cove.Errorf(cove.InvalidArgument, "there is no code to run").
			WithHint("name a file, write the code with -c, or use - to read it from standard input")
	}
	name := file
	var data []byte
	var err error
	if file == "-" {
		name = "the code on standard input"
		data, err = flags.ReadLimited(stdin, name, maxCode)
	} else {
		data, _, err = flags.ReadFile(file, maxCode)
	}
	if err != nil {
		return "", err
	}
	return string(data), flags.CheckText(name, string(data))
}
