package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// options are the flags of the commands that give an agent a task, as they were written.
type options struct {
	flags.NewSandbox // the flags that describe the sandbox
	dev              devcontainers.Options
	made             bool // the sandbox is made before the task is given

	prompt, promptFile string
	dir                string
	bind, apply, keep  bool
	sandbox            string // to work in
	resume             string // lastRun, or the id of a run
	model              string
	instructions       string
	schema             string // file
	turns              int
	tools              toolOptions

	quiet, verbose, detach bool
}

// lastRun is --resume without the id of a run.
const lastRun = "last"

func (o *options) addAgent(sess *session.Session, f *pflag.FlagSet) {
	f.StringVar(&o.promptFile, "prompt-file", "", "read the prompt from `FILE`")
	f.StringVar(&o.dir, "dir", "", "`DIR` to work on (default: this one)")
	flags.AddIgnored(f, &o.Ignored)
	f.BoolVar(&o.bind, "bind", false, "let it work in the directory itself, instead of on a copy")
	f.BoolVar(&o.apply, "apply", false, "take over what it has changed without asking, if it has succeeded")
	f.BoolVar(&o.keep, "keep", false, "keep the sandbox, whatever becomes of the work")
	f.StringVar(&o.sandbox, "sandbox", "", "work in the sandbox `NAME`, instead of a new one")
	f.StringVar(&o.resume, "resume", "",
		"go on with the conversation of `RUN`, in its sandbox; without RUN the last one here")
	f.Lookup("resume").NoOptDefVal = lastRun
	f.StringVar(&o.model, "model", "", "`MODEL` of the provider")
	f.IntVar(&o.turns, "max-turns", 0, "end it after `COUNT` answers of the model")
	f.StringVar(&o.instructions, "instructions", "", "`TEXT` that it is told beside its own instructions")
	o.tools.add(f)
	f.StringVar(&o.schema, "schema", "", "the answer is JSON, valid by the JSON Schema in `FILE`")
	f.StringVar(&o.Timeout, "timeout", "", "wall `TIME`, like 10m")
	o.AddSandbox(f)
	o.dev.Add(f)
	sess.AddJSON(f, "print each message as one JSON object on a line")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print the answer only")
	f.BoolVarP(&o.verbose, "verbose", "v", false,
		"show all that tools answer, and what the agent writes to its standard error")
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
		return cove.Errorf(cove.InvalidArgument, "%.80q is one argument too many", args[1]).
			WithHint("put the prompt in quotes")
	}
	if len(args) == 1 {
		o.prompt = args[0]
	}
	return o.check(cmd)
}

func (o *options) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, pair := range [][2]string{
		{"json", "quiet"}, {"json", "verbose"}, {"quiet", "verbose"},
		{"detach", "apply"}, {"detach", "quiet"}, {"detach", "verbose"},
		{"bind", "apply"}, {"sandbox", "resume"}, {"sandbox", "bind"}, {"resume", "bind"}, {"resume", "dir"},
		{"with-ignored", "bind"}, {"with-ignored", "sandbox"}, {"with-ignored", "resume"},
		{"devcontainer", "no-devcontainer"}, {"devcontainer", "sandbox"}, {"devcontainer", "resume"},
	} {
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

// readPrompt is the task in words; nothing when none was given.
func readPrompt(sess *session.Session, o *options) (string, error) {
	data, from := []byte(o.prompt), "the prompt"
	var err error
	switch {
	case o.promptFile == "-" || o.promptFile == "" && o.prompt == "-":
		from = "the prompt on standard input"
		data, err = flags.ReadLimited(sess.In, from, maxPrompt)
	case o.promptFile != "":
		from = o.promptFile
		data, _, err = flags.ReadFile(o.promptFile, maxPrompt)
	case o.prompt == "" && !o.Given("prompt-file"):
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text := string(data)
	if strings.TrimSpace(text) == "" {
		return "", cove.Errorf(cove.InvalidArgument, "%s is empty", from)
	}
	return text, flags.CheckText(from, text)
}

// readSchema is the schema of the answer; nil is none.
func (o *options) readSchema() (json.RawMessage, error) {
	if o.schema == "" {
		return nil, nil
	}
	schema, _, err := flags.ReadFile(o.schema, maxPrompt)
	if err == nil && !json.Valid(schema) {
		err = cove.Errorf(cove.InvalidArgument, "%s is not JSON", o.schema).
			WithHint("write a JSON Schema, such as {\"type\": \"object\"}")
	}
	return schema, err
}

// workDirectory returns the directory that an agent works on, and the directory below it in which the agent begins.
// A copy is made of the whole repository around the named directory. With --bind it is the named directory alone.
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

// askTerminal returns the terminal at which the user can be asked, or nil.
func (o *options) askTerminal(sess *session.Session) *os.File {
	if o.detach || o.prompt == "-" || o.promptFile == "-" {
		return nil
	}
	return interact.AskTerminal(sess)
}

// agentSandbox returns the request for a new sandbox, without a workspace. Commits are of whom git in dir names.
func agentSandbox(ctx context.Context, sess *session.Session, o *options, dir string) (api.SandboxRequest, error) {
	o.Empty = true
	req, err := o.NewSandbox.Request(sess.Getenv)
	if err != nil {
		return req, err
	}
	req.Agent, req.Git = "", flags.GitIdentity(sess.Getenv, dir)
	if req.Profile, err = sess.ResolveProfile(o.Profile); err != nil {
		return req, err
	}
	req.AgentConfig, err = interact.BringConfig(ctx, sess, interact.Config{Agent: o.Agent, Profile: req.Profile,
		Flag: o.AgentConfig, Ask: o.askTerminal(sess) != nil && !o.quiet && !sess.JSON, Quiet: o.quiet || sess.JSON})
	return req, err
}

func runRequest(ctx context.Context, sess *session.Session, o *options, prompt string) (api.RunRequest, error) {
	req := api.RunRequest{Agent: o.Agent, Prompt: prompt, Model: o.model, Instructions: o.instructions, MaxTurns: o.turns,
		Sandbox: o.sandbox, Bind: o.bind, Keep: o.keep, Detach: o.detach}
	var err error
	if req.Schema, err = o.readSchema(); err != nil {
		return req, err
	}
	if req.AgentOptions, err = o.tools.read(); err != nil {
		return req, err
	}
	o.tools.warn(sess, req.AgentOptions)
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
	made, err := agentSandbox(ctx, sess, o, req.Directory)
	if err != nil {
		return req, err
	}
	made.WorkDir = below
	req.New = &made
	if !o.bind {
		o.Ignored, err = interact.Ignored(ctx, sess, made.Profile, req.Directory, o.Ignored)
	}
	req.Ignored = o.Ignored
	return req, err
}

// checkScreen refuses to show an agent's screen where there is no terminal, or with flags that are about a task.
func checkScreen(sess *session.Session, cmd *cobra.Command, o *options, ofTask ...string) error {
	if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Out) {
		return cove.Errorf(cove.InvalidArgument, "PROMPT is missing").
			WithHint("write it in quotes, in a file for --prompt-file, or on standard input for \"-\"")
	}
	if i := slices.IndexFunc(ofTask, o.Given); i >= 0 {
		return ui.UsageError(cmd, "PROMPT is missing: --%s is about a task", ofTask[i])
	}
	return nil
}
