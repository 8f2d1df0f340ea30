package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/internal/model"
	"github.com/cove-sandbox/cove/internal/version"
	"github.com/cove-sandbox/cove/internal/worker/tools"
)

// Exit codes, explained in docs/worker.md.
const (
	exitDone   = 0
	exitDefect = 6
	exitBudget = 7
)

var exitCodes = map[cove.Code]int{
	"": exitDone, cove.AgentFailed: 1, cove.InvalidArgument: 2, cove.NotFound: 2, cove.LimitReached: 3,
	cove.ModelUnreachable: 4, cove.TooLarge: 4, cove.SchemaMismatch: 5, cove.Canceled: 130,
}

func exitCode(err error) int {
	if errors.Is(err, model.ErrUsedUp) {
		return exitBudget
	}
	if code, ok := exitCodes[cove.ErrorCode(err)]; ok {
		return code
	}
	return exitDefect
}

// Process is the worker's view of its process.
type Process struct {
	Args   []string // without the program's name
	Stdin  io.Reader
	Stdout io.Writer // messages, and nothing else
	Stderr io.Writer
	Env    []string
}

func (p Process) getenv(name string) string {
	for _, variable := range slices.Backward(p.Env) {
		if key, value, _ := strings.Cut(variable, "="); key == name {
			return value
		}
	}
	return ""
}

const usage = `Cove's own agent. It runs inside a sandbox; "cove worker" starts it there.

  cove-worker agentic  --prompt-file FILE [--cwd DIR] [--model MODEL] [FLAG…]
  cove-worker generate --prompt-file FILE [--schema FILE] [--system TEXT] [FLAG…]
  cove-worker version

"agentic" works on a task in a directory, with tools. "generate" answers once,
without. Standard output is messages, one JSON object a line, of which the last
is of type "usage"; everything else is on standard error. The exit code is 0 when
it is done, 1 when the agent could not do it, 2 for wrong flags, 3 at --max-turns,
4 when the model is not available, 5 when the answer does not match the schema, 6 for
a fault of the worker, 7 when a budget is used up, 130 when it was interrupted.

Flags:
`

type flags struct {
	promptFile, cwd, model, kind, baseURL, keyEnv string
	instructions, schema, resume                  string
	tools                                         []string
	maxTurns, maxOutput, window                   int
}

const (
	lastSession  = "last"
	defaultTurns = 200
)

func (f *flags) set(agentic bool) *pflag.FlagSet {
	s := pflag.NewFlagSet("cove-worker", pflag.ContinueOnError)
	s.SetOutput(io.Discard)
	s.StringVar(&f.promptFile, "prompt-file", "", "`FILE` with what is to be done; - is standard input")
	s.StringVar(&f.model, "model", "",
		"which `MODEL` is asked (ANTHROPIC_MODEL, OPENAI_MODEL; else as the endpoint lists)")
	s.StringVar(&f.kind, "provider-kind", "",
		"the API: anthropic, openai-chat or openai-responses (by the model's name and the environment)")
	s.StringVar(&f.baseURL, "base-url", "",
		"`URL` that the API is below (ANTHROPIC_BASE_URL, OPENAI_BASE_URL; else the provider's)")
	s.StringVar(&f.keyEnv, "key-env", "", "`NAME` of the variable with the key (the provider's usual)")
	s.StringVar(&f.schema, "schema", "", "`FILE` with a JSON Schema that the answer is valid by")
	s.IntVar(&f.maxOutput, "max-output", 0, "`TOKENS` of one answer, at most (the endpoint's choice; 8192 for anthropic)")
	s.IntVar(&f.window, "context-window", 0, "`TOKENS` that the model takes at once (200000 for anthropic, else 128000)")
	if !agentic {
		s.StringVar(&f.instructions, "system", "", "`TEXT` that goes before the prompt, as the system's")
		return s
	}
	s.StringVar(&f.cwd, "cwd", ".", "`DIR` of the project")
	s.StringVar(&f.instructions, "instructions", "", "`TEXT` for the agent, beside the task")
	s.IntVar(&f.maxTurns, "max-turns", defaultTurns, "`N` answers of the model, at most")
	s.StringSliceVar(&f.tools, "tools", nil, "`NAMES` of the tools that it has, of "+model.Join(tools.Names)+" (all)")
	s.StringVar(&f.resume, "resume", "", "goes on with an earlier session: --resume=`ID`, or the last of the directory")
	s.Lookup("resume").NoOptDefVal = lastSession
	return s
}

// Main runs the program and returns the exit code. It ends early with the context, and then reports what it has.
func Main(ctx context.Context, p Process) int {
	mode := ""
	if len(p.Args) > 0 {
		mode = p.Args[0]
	}
	var f flags
	switch mode {
	case "agentic", "generate":
	case "version", "--version":
		fmt.Fprintln(p.Stdout, "cove-worker", version.Version)
		return exitDone
	case "help", "--help", "-h":
		fmt.Fprint(p.Stdout, usage, f.set(true).FlagUsages(),
			"\n\"generate\" has --system TEXT instead of --instructions, and none of cwd, max-turns, tools and resume.\n")
		return exitDone
	default:
		return p.fail(cove.Errorf(cove.InvalidArgument, "the first argument is agentic or generate, not %.40q",
			mode).WithHint("cove-worker --help"))
	}
	set := f.set(mode == "agentic")
	err := set.Parse(p.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(p.Stdout, usage, set.FlagUsages())
		return exitDone
	case err != nil:
		return p.fail(cove.Errorf(cove.InvalidArgument, "%w", err).WithHint("cove-worker --help"))
	case set.NArg() > 0:
		err = cove.Errorf(cove.InvalidArgument, "%.80q is too much", set.Arg(0)).WithHint("the task is in --prompt-file")
		return p.fail(err)
	}
	w, err := p.prepare(ctx, mode == "agentic", f)
	if err == nil {
		err = w.run(ctx)
	}
	if w != nil && w.tools != nil {
		w.tools.Close()
	}
	return p.fail(err)
}

func (p Process) fail(err error) int {
	if err != nil {
		fmt.Fprintln(p.Stderr, "cove-worker:", err)
	}
	return exitCode(err)
}

func (p Process) prepare(ctx context.Context, agentic bool, f flags) (*worker, error) {
	prompt, err := p.prompt(f.promptFile)
	if err != nil {
		return nil, err
	}
	w := &worker{maxTurns: f.maxTurns, window: f.window, density: usualDensity, session: newSession("", ""),
		log:     slog.New(slog.NewTextHandler(p.Stderr, nil)),
		request: model.Request{MaxOutput: f.maxOutput}}
	if f.maxOutput < 0 || f.window < 0 || f.maxTurns < 0 || agentic && f.maxTurns == 0 {
		return nil, cove.Errorf(cove.InvalidArgument, "--max-turns, --max-output and --context-window are above 0")
	}
	var schema []byte
	if f.schema != "" {
		if schema, err = readFile(f.schema, jsonschema.MaxSchema); err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "--schema: %w", err)
		}
		if w.schema, err = jsonschema.Compile(schema); err != nil {
			return nil, err
		}
	}
	e, err := model.Resolve(model.Wanted{Kind: f.kind, Base: f.baseURL, Model: f.model, KeyEnv: f.keyEnv}, p.getenv)
	if err != nil {
		return nil, err
	}
	if w.window == 0 {
		w.window = e.Window()
	}
	if agentic {
		err = w.settle(p, f, schema)
	} else {
		w.maxTurns = 2 + model.MaxContinued
		w.request.System = strings.Join(model.Instructions(f.instructions, schema), "\n\n")
	}
	if err != nil {
		return w, err
	}
	w.session.prompt(prompt)
	e.Header.Set("User-Agent", "cove-worker/"+version.Version)
	client := e.Client(nil, w.log)
	w.model = client
	w.out = &messages{w: p.Stdout, session: w.session.ID}
	if w.request.Model, err = e.Choose(ctx, client); err != nil {
		w.model = failing{err} // reported like every other outcome
	}
	w.out.model = w.request.Model
	return w, nil
}

type failing struct{ err error }

func (f failing) Ask(context.Context, model.Request) (model.Answer, error) {
	return model.Answer{}, f.err
}

// settle sets up what an agent needs beside a model: a directory, tools, a session.
func (w *worker) settle(p Process, f flags, schema []byte) error {
	dir, err := filepath.Abs(f.cwd)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return cove.Errorf(cove.InvalidArgument, "--cwd: %s is no directory", dir)
	}
	if w.tools, err = tools.New(dir, p.Env, f.tools); err != nil {
		return err
	}
	w.request.Tools = w.tools.Declared()
	w.request.System = system(dir, f.instructions, schema)
	sessions, err := sessionsDir(p.getenv)
	switch {
	case f.resume != "" && err != nil:
		return err
	case f.resume != "":
		if w.session, err = openSession(sessions, f.resume, dir); err != nil {
			return err
		}
		w.tools.SetTodo(w.session.Todo)
		return nil
	case err == nil:
		w.session = newSession(sessions, dir)
		err = w.session.save()
	}
	if err != nil {
		w.log.Warn("the session is not kept, so that --resume will not find it", "error", err)
		w.session = newSession("", dir)
	}
	return nil
}

// prompt reads the task. Errors: InvalidArgument, TooLarge.
func (p Process) prompt(file string) (string, error) {
	const most = 4 << 20 // bytes
	var data []byte
	var err error
	switch file {
	case "":
		return "", cove.Errorf(cove.InvalidArgument, "there is no prompt").WithHint("--prompt-file FILE")
	case "-":
		data, err = io.ReadAll(io.LimitReader(p.Stdin, most+1))
	default:
		data, err = readFile(file, most)
	}
	text := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", cove.Errorf(cove.InvalidArgument, "--prompt-file: %w", err)
	case len(data) > most:
		return "", cove.Errorf(cove.InvalidArgument, "the prompt has more than %d MiB", most>>20)
	case text == "":
		return "", cove.Errorf(cove.InvalidArgument, "the prompt is empty")
	case !utf8.ValidString(text):
		return "", cove.Errorf(cove.InvalidArgument, "the prompt is not UTF-8 text")
	}
	return text, nil
}

// readFile reads at most most+1 bytes of a file; the additional byte shows that there are more.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}
