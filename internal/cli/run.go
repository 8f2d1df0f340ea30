package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// killTimeout is how long ending an execution may take before the connection
// is dropped instead, which ends it too.
const killTimeout = 10 * time.Second

func (a *app) runCommand() *cobra.Command {
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
			o.given = cmd.Flags().Changed
			return a.run(cmd.Context(), &o, args, cmd.ArgsLenAtDash())
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
	f.StringArrayVar(&o.env, "env", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.StringArrayVar(&o.mounts, "mount", nil, "attach `SOURCE:TARGET[:ro]` (repeatable)")
	f.StringVar(&o.workDir, "work-dir", "", "attach `DIR` at /workspace and run there")
	f.StringVar(&o.image, "image", "", "root filesystem `IMAGE`: host, dir:PATH, tar:PATH, or a reference")
	f.StringVar(&o.engine, "engine", "", "`ENGINE`: native, docker or auto")
	o.policy.add(f)
	f.StringArrayVar(&o.credentials, "credential", nil, "set the credential `NAME` on its requests, outside the sandbox (repeatable)")
	o.models.add(f)
	f.StringVar(&o.timeout, "timeout", "", "wall `TIME`, like 10s")
	f.StringVar(&o.memory, "memory", "", "memory `SIZE`, writable files included, like 256M")
	f.Float64Var(&o.cpus, "cpus", 0, "`CORES`, like 0.5")
	f.Int64Var(&o.pids, "pids", 0, "`COUNT` of processes and threads")
	f.StringVar(&o.disk, "disk", "", "`SIZE` of everything writable, like 100M")
	f.Int64Var(&o.inodes, "inodes", 0, "`COUNT` of files and directories of everything writable")
	f.Int64Var(&o.openFiles, "open-files", 0, "`COUNT` of open files of each process")
	f.StringVar(&o.stdout, "stdout-limit", "", "`SIZE` of output that is kept, like 1M")
	f.StringVar(&o.stderr, "stderr-limit", "", "`SIZE` of error output that is kept, like 256K")
	f.BoolVar(&o.json, "json", false, "print one JSON object with the result, output included")
	f.SortFlags = false
	a.addProfile(c, &o.profile)
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cove.Errorf(cove.InvalidArgument, "%w", err).WithHint("see \"cove run --help\"; arguments of the program follow --")
	})
	return c
}

func (a *app) run(ctx context.Context, o *options, args []string, dash int) error {
	interrupts := watchSignals(a.Out, a.Err)
	defer interrupts.stop()
	language, file, rest, err := splitArgs(args, dash)
	if err != nil {
		return err
	}
	req, err := o.request(language, rest, a.getenv)
	if err != nil {
		return err
	}
	req.Profile, err = a.resolveProfile(o.profile)
	if err != nil {
		return err
	}
	if req.Code, err = o.source(file, a.In); err != nil {
		return err
	}
	ctx, cancel := interrupts.cover(ctx)
	defer cancel()
	b, err := a.connect(ctx, true)
	if err != nil {
		return interrupts.explain(err)
	}
	stdin := a.programInput(o, file)
	e, err := a.execute(ctx, b.client, req, o.json, stdin, a.askable(req, file, stdin), interrupts)
	if cerr := b.close(); err == nil && cerr != nil {
		a.say.fail(cerr) // the program's own result stands
	}
	if err != nil {
		if o.json && !errors.Is(err, syscall.EPIPE) {
			a.printJSON(api.Error{Error: err.Error(), Code: string(cove.ErrorCode(err)), Hint: cove.ErrorHint(err)})
		}
		return interrupts.explain(err)
	}
	a.exit = exitOf(e, interrupts.first())
	if o.json {
		return a.printJSON(e)
	}
	a.conclude(e, req)
	return nil
}

// programInput is what the program gets on its standard input, or nil.
func (a *app) programInput(o *options, file string) io.Reader {
	if file == "-" || isNull(a.In) || isTerminal(a.In) && !o.stdin {
		return nil
	}
	return a.In
}

// execute runs one request to its end. A signal kills the execution, whose
// record then still arrives. What its policy asks about is asked at terminal,
// or said if that is nil.
func (a *app) execute(ctx context.Context, c *client.Client, req api.ExecuteRequest, collect bool, stdin io.Reader, terminal *os.File, in *interrupts) (api.Execution, error) {
	var stdout, stderr bytes.Buffer
	out := a.newScreen()
	defer out.restore()
	asker := a.newAsker(c, terminal, out)
	defer asker.stop()
	s := client.Stream{Stdin: stdin, Stdout: out.stdout, Stderr: out.stderr, Holds: asker.take}
	if collect {
		s.Stdout, s.Stderr = &stdout, &stderr
	}
	defer in.settle()
	s.Started = func(id string) {
		in.onSignal(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
			defer cancel()
			if _, err := c.Kill(ctx, id); err != nil && cove.ErrorCode(err) != cove.Conflict {
				in.giveUp()
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

// conclude says what there is to say after the program's output.
func (a *app) conclude(e api.Execution, req api.ExecuteRequest) {
	used := inForce(defaultsOf(req.Language), req.Limits, req.Timeout)
	for _, w := range warnings(e) {
		a.say.line("%s", w)
	}
	if t := truncation(e, used); t != "" {
		a.say.line("%s", t)
	}
	if m := modelsUsed(e.Models); m != "" {
		a.say.line("%s", m)
	}
	if v := verdict(e, used); v != "" {
		a.say.line("%s", v)
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
