// Package agent declares coding agents: where each comes from, how it is given
// a task, which files it expects, whose models it uses, and how what it prints
// becomes messages. It is data and pure functions; nothing runs here.
//
// An agent runs without its own sandbox and without asking: the sandbox that it
// is in is the wall. What it finds of keys is placeholders.
package agent

import (
	"github.com/cove-sandbox/cove/api"
)

// Agent is the declaration of one. Its yaml form is how Cove's own are written,
// and how the configuration declares more of them.
//
// Commands are programs and arguments, in which {prompt}, {prompt_file},
// {model}, {session}, {turns}, {instructions}, {schema} and {schema_file} stand
// for what a task says. An option's arguments are left out where it says
// nothing; those of all options stand where a command has {options}, else at
// its end.
type Agent struct {
	Name    string   `yaml:"name"`
	Title   string   `yaml:"title"`
	Package Package  `yaml:"package"` // zero: it is in the image
	Program string   `yaml:"program"` // its file name; in bin of the layer, or on the image's PATH
	Version []string `yaml:"version"` // prints its version
	Needs   []string `yaml:"needs"`   // programs of the image without which it does not run, such as node

	Headless    []string `yaml:"headless"`    // a task, to its end; what it prints is as Output says
	Interactive []string `yaml:"interactive"` // its own screen, in a terminal; none: it has no screen
	Prompt      Passing  `yaml:"prompt"`
	Options     Options  `yaml:"options"`
	Output      Format   `yaml:"output"`

	Env      map[string]string `yaml:"env"`
	Files    []File            `yaml:"files"`    // placed in the home before it first begins there
	Provider string            `yaml:"provider"` // of models, where nothing names another
	Hosts    []string          `yaml:"hosts"`    // what it may reach beside the provider
	// DoesWithout are requests that it makes in vain, HOST/PATH as policies write
	// both: nobody needs to hear that they are refused.
	DoesWithout []string `yaml:"does_without"`

	Builtin bool `yaml:"-"` // Cove knows it by itself
}

// Package is where an agent's program comes from.
type Package struct {
	Npm     string `yaml:"npm"`     // name in the registry that npm is configured for
	Version string `yaml:"version"` // the pinned one
	Program string `yaml:"program"` // a pattern of files in the package's directory; empty: what npm makes of it
	Beside  string `yaml:"-"`       // a program beside cove itself, in place of a package
}

// Passing is how a task's prompt gets to the program.
type Passing string

const (
	ByStdin    Passing = "stdin"
	ByArgument Passing = "argument" // {prompt}
	ByFile     Passing = "file"     // {prompt_file}
)

// Options are arguments that a task's wishes become, in this order.
type Options struct {
	Model        []string `yaml:"model"`
	Turns        []string `yaml:"turns"`
	Instructions []string `yaml:"instructions"`
	Schema       []string `yaml:"schema"` // none: the answer is asked for in words, and validated outside
	Resume       []string `yaml:"resume"`
}

// Format is what a program's standard output is.
type Format string

const (
	FormatClaude   Format = "claude"   // Claude Code's stream-json
	FormatCodex    Format = "codex"    // "codex exec --json"
	FormatGemini   Format = "gemini"   // Gemini CLI's stream-json
	FormatOpencode Format = "opencode" // "opencode run --format json"
	FormatMessages Format = "messages" // api.Message, as Cove's own worker prints them
	FormatText     Format = "text"     // the answer, as it is
)

// File is a file of an agent's home.
type File struct {
	Path    string `yaml:"path"`    // below the home
	Content string `yaml:"content"` // a text/template over Place
}

// Place is what an agent needs to know of where it is.
type Place struct {
	WorkDir  string // inside
	Model    string // empty is its own choice
	BaseURL  string // of the models, when they are behind the gateway's own address; empty: the provider's usual
	Kind     string // anthropic or openai: whose API the models speak
	Provider string // its name
}

// Task is what an agent is to do.
type Task struct {
	Prompt       string
	Model        string
	Session      string // of an earlier conversation that goes on
	Turns        int    // 0 is its own bound
	Instructions string
	Schema       []byte // a JSON Schema; nil is none
	Dir          string // inside, for files of this task alone; removed afterwards
}

// Command is what runs in the sandbox, as the agent's user.
type Command struct {
	Args  []string
	Env   map[string]string
	Stdin string
	Files map[string]string // absolute path inside to content; removed afterwards
}

// Layer is an agent's program as this machine has it.
type Layer struct {
	Name    string // in the store of layers, as cove.Layer has it
	Version string
	Source  string // a directory or, of one program alone, a file of the host; empty: it is in the image
}

// Parser turns what a program prints into messages, line by line. A parser is
// for one run.
type Parser interface {
	// Line takes one line without its end. Errors: AgentProtocol, with the
	// beginning of the line; ModelUnreachable when the program would try for ever.
	// Nothing that follows an error means anything: the program is to be ended,
	// and End called for what it used.
	Line(line []byte) ([]api.Message, error)
	// End says that nothing follows, and how the program ended; what is missing of
	// result and usage it makes up of what it has. Errors, beside which there are
	// messages: AgentProtocol, AgentFailed, ModelUnreachable, LimitReached with
	// ErrTurns or ErrBudget; stderr is the end of what it wrote there. What the
	// agent could not do is a result with IsError, and no error.
	End(exitCode int, stderr string) ([]api.Message, error)
}
