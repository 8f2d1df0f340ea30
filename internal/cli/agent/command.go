package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// options are the flags of the commands that give an agent a task, as they
// were written.
type options struct {
	flags.NewSandbox // those that say what the sandbox is made of

	prompt, promptFile string
	dir                string
	bind, apply, keep  bool
	sandbox            string // to work in
	resume             string // lastRun, or the id of a run
	model              string
	instructions       string
	schema             string // file
	turns              int

	quiet, verbose, detach bool
}

// lastRun is --resume without the id of a run.
const lastRun = "last"

// taskCommands are "cove claude" and its like.
func taskCommands(sess *session.Session) []*cobra.Command {
	var all []*cobra.Command
	for _, k := range []struct{ name, title string }{
		{"claude", "Claude Code"}, {"codex", "Codex"}, {"gemini", "Gemini CLI"}, {"opencode", "opencode"}, {"worker", "Cove's own agent"},
	} {
		o := &options{}
		o.Agent = k.name
		all = append(all, agentCommand(sess, o, k.name, k.title))
	}
	return append(all, agentCommand(sess, &options{}, "", "an agent"))
}

// agentCommand is the command of one agent, or without a name of any.
func agentCommand(sess *session.Session, o *options, name, title string) *cobra.Command {
	use, example := name+" [PROMPT]", name
	if name == "" {
		use, example = "agent NAME [PROMPT]", "agent reviewer"
	}
	more := "Without one, at a terminal, its own screen is shown there."
	if name == "worker" {
		more = "It has no screen of its own."
	}
	c := &cobra.Command{
		Use:   use,
		Short: "Give " + title + " a task",
		Long: "Give " + title + ` a task: PROMPT, a file of it (--prompt-file), or standard input ("-").
` + more + `

It works in a sandbox that is made for it, on a private copy of this directory
(--dir), with what is not committed there; of a directory within a repository all
of that is copied. It reaches the provider of its models,
what --allow and the like say, and nothing else. It never sees a key: the gateway
sets those of this machine on its requests. It has 2 GiB of memory, 2 CPUs, 512
processes and 30 minutes, unless flags or a profile say otherwise.

What it says and does is shown as it comes, on standard error; its answer is on
standard output, or with --json each message as one line. At the end you see what
it has changed, and at a terminal are asked whether to take that over. --apply
does so without asking if the agent has succeeded. Work that was neither taken
over nor declined stays in the sandbox, which is named then. With --bind it works
in the directory itself instead, and there is nothing to ask. Only a --profile of
the mode none has it work on this machine without a sandbox, and this says so.

ctrl-c asks the agent to stop, a second one ends it at once, and a third leaves.
When this command dies the agent is interrupted, and its work stays; with --detach
it goes on by itself. "cove runs show" has what became of it.

Exit codes: 0 the agent has done it; 1 it says that it has not, or failed; 124 out
of time; 137 ended by another limit; 130 interrupted; 125 Cove failed, or the
models cannot be reached; 126 refused; 127 the agent or its image is missing.`,
		Example: `  cove ` + example + ` "make the failing test pass"
  cove ` + example + ` --apply "update the copyright years"
  git diff main | cove ` + example + ` --prompt-file review.md --allow docs.example.com
  cove ` + example + ` --resume "now add a test"
  cove ` + example + ` --json --detach - <task.txt`,
		Args: func(cmd *cobra.Command, args []string) error { return o.arguments(cmd, name, args) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Given = cmd.Flags().Changed
			return start(sess, cmd, o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addAgent(c.Flags())
	sess.AddProfile(c, &o.Profile)
	return c
}

func (o *options) addAgent(f *pflag.FlagSet) {
	f.StringVar(&o.promptFile, "prompt-file", "", "read the prompt from `FILE`")
	f.StringVar(&o.dir, "dir", "", "`DIR` to work on (default: this one)")
	f.BoolVar(&o.bind, "bind", false, "let it work in the directory itself, instead of on a copy")
	f.BoolVar(&o.apply, "apply", false, "take over what it has changed without asking, if it has succeeded")
	f.BoolVar(&o.keep, "keep", false, "keep the sandbox, whatever becomes of the work")
	f.StringVar(&o.sandbox, "sandbox", "", "work in the sandbox `NAME`, instead of a new one")
	f.StringVar(&o.resume, "resume", "", "go on with the conversation of `RUN`, in its sandbox; without RUN the last one here")
	f.Lookup("resume").NoOptDefVal = lastRun
	f.StringVar(&o.model, "model", "", "`MODEL` of the provider")
	f.IntVar(&o.turns, "max-turns", 0, "end it after `COUNT` answers of the model")
	f.StringVar(&o.instructions, "instructions", "", "`TEXT` that it is told beside its own instructions")
	f.StringVar(&o.schema, "schema", "", "the answer is JSON, valid by the JSON Schema in `FILE`")
	f.StringVar(&o.Timeout, "timeout", "", "wall `TIME`, like 10m")
	o.AddSandbox(f)
	f.BoolVar(&o.JSON, "json", false, "print each message as one JSON object on a line")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print the answer only")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show all that tools answer, and what the agent writes to its standard error")
	f.BoolVarP(&o.detach, "detach", "d", false, "print the id of the run, and let it go on")
	f.SortFlags = false
}

// arguments takes [NAME] [RUN] [PROMPT].
func (o *options) arguments(cmd *cobra.Command, name string, args []string) error {
	if name == "" {
		if len(args) == 0 {
			return cove.Errorf(cove.InvalidArgument, "NAME is missing: which agent").WithHint("\"cove agents list\" shows them")
		}
		o.Agent, args = args[0], args[1:]
	}
	if o.resume == lastRun && len(args) > 0 {
		if _, err := cove.ParseRunID(args[0]); err == nil {
			o.resume, args = args[0], args[1:]
		}
	}
	if len(args) > 1 {
		return cove.Errorf(cove.InvalidArgument, "%.80q is one argument too many", args[1]).WithHint("put the prompt in quotes")
	}
	if len(args) == 1 {
		o.prompt = args[0]
	}
	return o.check(cmd)
}

// check refuses what does not go together.
func (o *options) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, pair := range [][2]string{{"json", "quiet"}, {"json", "verbose"}, {"quiet", "verbose"}, {"detach", "apply"}, {"detach", "quiet"}, {"detach", "verbose"},
		{"bind", "apply"}, {"sandbox", "resume"}, {"sandbox", "bind"}, {"resume", "bind"}, {"resume", "dir"}} {
		if given(pair[0]) && given(pair[1]) {
			return ui.UsageError(cmd, "--%s and --%s exclude each other", pair[0], pair[1])
		}
	}
	if o.promptFile != "" && o.prompt != "" {
		return ui.UsageError(cmd, "both PROMPT and --prompt-file were given")
	}
	if given("max-turns") && o.turns < 1 {
		return ui.UsageError(cmd, "--max-turns %d: it must be at least 1", o.turns)
	}
	return nil
}

// ofSandbox is a flag that was given and says what a new sandbox is made of; empty
// is none.
func (o *options) ofSandbox() (name string) {
	made := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(flags.NewSandbox).AddSandbox(made)
	made.VisitAll(func(f *pflag.Flag) {
		if o.Given(f.Name) {
			name = f.Name
		}
	})
	return name
}

// start gives the agent its task, or shows its screen.
func start(sess *session.Session, cmd *cobra.Command, o *options) error {
	bare, err := bareProfile(cmd.Context(), sess, o)
	if err != nil {
		return err
	}
	if bare == nil && (o.sandbox != "" || o.resume != "") {
		name := o.ofSandbox()
		if o.Given("profile") {
			name = "profile"
		}
		if name != "" {
			return ui.UsageError(cmd, "--%s says what a new sandbox is made of, and this one is there", name)
		}
	}
	prompt, err := readPrompt(sess, o)
	if err != nil {
		return err
	}
	switch {
	case bare != nil:
		return agentHere(sess, cmd, o, *bare, prompt)
	case prompt == "":
		return agentTerminal(sess, cmd, o)
	}
	req, err := runRequest(sess, o, prompt)
	if err != nil {
		return err
	}
	return giveTask(cmd.Context(), sess, o, req, (*task).settle)
}

// maxPrompt is the most a prompt may have, in bytes.
const maxPrompt = 1 << 20

// readPrompt is the task in words; nothing when none was given.
func readPrompt(sess *session.Session, o *options) (string, error) {
	text, from := o.prompt, "the prompt"
	switch {
	case o.promptFile == "-" || o.promptFile == "" && o.prompt == "-":
		from = "the prompt on standard input"
		data, err := flags.ReadLimited(sess.In, from, maxPrompt)
		if err != nil {
			return "", err
		}
		text = string(data)
	case o.promptFile != "":
		from = o.promptFile
		data, _, err := flags.ReadFile(o.promptFile, maxPrompt)
		if err != nil {
			return "", err
		}
		text = string(data)
	case o.prompt == "" && !o.Given("prompt-file"):
		return "", nil
	}
	if strings.TrimSpace(text) == "" {
		return "", cove.Errorf(cove.InvalidArgument, "%s is empty", from)
	}
	return text, flags.CheckText(from, text)
}

// runRequest builds what is sent.
func runRequest(sess *session.Session, o *options, prompt string) (api.RunRequest, error) {
	req := api.RunRequest{Agent: o.Agent, Prompt: prompt, Model: o.model, Instructions: o.instructions, MaxTurns: o.turns,
		Sandbox: o.sandbox, Bind: o.bind, Keep: o.keep, Detach: o.detach}
	var err error
	if req.Schema, err = o.readSchema(); err != nil {
		return req, err
	}
	if _, req.Timeout, err = o.Limits(); err != nil {
		return req, err
	}
	if o.sandbox != "" || o.resume != "" {
		return req, nil
	}
	below := ""
	if req.Directory, below, err = o.workDirectory(); err != nil {
		return req, err
	}
	made, err := agentSandbox(sess, o)
	made.WorkDir = below
	req.New = &made
	return req, err
}

// readSchema is the schema of the answer; nil is none.
func (o *options) readSchema() (json.RawMessage, error) {
	if o.schema == "" {
		return nil, nil
	}
	schema, _, err := flags.ReadFile(o.schema, maxPrompt)
	if err == nil && !json.Valid(schema) {
		err = cove.Errorf(cove.InvalidArgument, "%s is not JSON", o.schema).WithHint("write a JSON Schema, such as {\"type\": \"object\"}")
	}
	return schema, err
}

// agentSandbox is what a new sandbox must be, without what it works on.
func agentSandbox(sess *session.Session, o *options) (api.SandboxRequest, error) {
	o.Empty = true
	req, err := flags.SandboxRequest(sess, &o.NewSandbox)
	if err != nil {
		return req, err
	}
	req.Agent, req.Git = "", flags.GitIdentity(sess)
	req.Profile, err = sess.ResolveProfile(o.Profile)
	return req, err
}

// workDirectory is what an agent works on, and where below that it begins: of a
// copy all of the repository that the directory is in; of one that is bound what
// was named, and nothing above it.
func (o *options) workDirectory() (dir, below string, err error) {
	named, err := flags.RealDirectory(o.dir)
	if err != nil || o.bind {
		return named, "", err
	}
	dir = cmp.Or(flags.RepositoryTop(named), named)
	if named != dir {
		below, err = filepath.Rel(dir, named)
	}
	return dir, below, err
}

// lastRunOf is the run of an agent that was the last to begin in a directory, or
// to go on with what was begun there.
func lastRunOf(ctx context.Context, c *client.Client, agent, dir string) (api.Run, error) {
	of := func(q client.RunQuery, wanted func(api.Run) bool) (api.Run, error) {
		for {
			l, err := c.Runs(ctx, q)
			if err != nil {
				return api.Run{}, err
			}
			if i := slices.IndexFunc(l.Runs, func(r api.Run) bool { return !r.Interactive && wanted(r) }); i >= 0 {
				return l.Runs[i], nil
			}
			if q.Before = l.Next; q.Before == "" {
				return api.Run{}, cove.Errorf(cove.NotFound, "%s has done nothing in %s yet", agent, dir).WithHint("\"cove runs list\" shows the runs; name one with --resume=RUN")
			}
		}
	}
	begun, err := of(client.RunQuery{Agent: agent}, func(r api.Run) bool { return r.Directory == dir })
	if err != nil {
		return begun, err
	}
	last, err := of(client.RunQuery{Agent: agent, Sandbox: begun.Sandbox}, func(api.Run) bool { return true })
	last.Directory = begun.Directory
	return last, err
}
