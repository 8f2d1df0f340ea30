// Package agent declares coding agents: their package, their command line for a task, the files they expect, their
// provider of models, and the parser of their output. It is data and pure functions; it starts no program.
//
// An agent runs without its own sandbox and without permission questions: Cove's sandbox is the wall. Keys inside are
// placeholders.
package agent

import "github.com/cove-sandbox/cove/message"

// Agent is the declaration of one agent. Its YAML form is used for Cove's own agents and for those in the
// configuration.
//
// Commands are programs and arguments, in which {prompt}, {prompt_file}, {model}, {session}, {turns}, {instructions},
// {schema} and {schema_file} stand for values of the task. An option's arguments are omitted if its value is unset. The
// arguments of all options replace {options}, or follow the command without it.
type Agent struct {
	Name    string   `yaml:"name"`
	Title   string   `yaml:"title"`
	Package Package  `yaml:"package"` // zero: included in the image
	Program string   `yaml:"program"` // file name; in bin of the layer, or on the image's PATH
	Version []string `yaml:"version"` // prints its version
	Needs   []string `yaml:"needs"`   // required programs of the image, such as node

	Headless    []string `yaml:"headless"`    // runs a task to its end; the output has the form of Output
	Interactive []string `yaml:"interactive"` // its own screen, in a terminal; none: no screen
	Prompt      Passing  `yaml:"prompt"`
	Options     Options  `yaml:"options"`
	Output      Format   `yaml:"output"`

	Env      map[string]string `yaml:"env"`
	Files    []File            `yaml:"files"`    // written to the home before the first start
	Provider string            `yaml:"provider"` // of models, unless another is chosen
	Hosts    []string          `yaml:"hosts"`    // reachable hosts beside the provider
	// DoesWithout are requests that the agent can do without, as HOST/PATH in the notation of policies: their refusals are
	// not reported.
	DoesWithout []string `yaml:"does_without"`

	Builtin bool `yaml:"-"` // built-in
}

// Package is the source of an agent's program.
type Package struct {
	Npm     string `yaml:"npm"`     // name in npm's configured registry
	Version string `yaml:"version"` // the pinned one
	Program string `yaml:"program"` // a pattern of files in the package's directory; empty: npm's entry point
	Beside  string `yaml:"-"`       // a program next to cove itself, in place of a package
}

// Passing is the way of the prompt to the program.
type Passing string

const (
	ByStdin    Passing = "stdin"
	ByArgument Passing = "argument" // {prompt}
	ByFile     Passing = "file"     // {prompt_file}
)

// Options are arguments for optional values of a task, in this order.
type Options struct {
	Model        []string `yaml:"model"`
	Turns        []string `yaml:"turns"`
	Instructions []string `yaml:"instructions"`
	Schema       []string `yaml:"schema"` // none: the prompt asks for the schema, and the answer is validated outside
	Resume       []string `yaml:"resume"`
}

// Format is the format of a program's standard output.
type Format string

const (
	FormatClaude   Format = "claude"   // Claude Code's stream-json
	FormatCodex    Format = "codex"    // "codex exec --json"
	FormatGemini   Format = "gemini"   // Gemini CLI's stream-json
	FormatOpencode Format = "opencode" // "opencode run --format json"
	FormatMessages Format = "messages" // message.Message, as printed by Cove's own worker
	FormatText     Format = "text"     // the plain answer
)

// File is a file of an agent's home.
type File struct {
	Path    string `yaml:"path"`    // below the home
	Content string `yaml:"content"` // a text/template over Place
}

// Place describes the environment of an agent, for File templates.
type Place struct {
	WorkDir  string // inside
	Model    string // empty: the agent's own choice
	BaseURL  string // of the models, if they are behind the gateway's own address; empty: the provider's usual
	Kind     string // API of the models: anthropic or openai
	Provider string // its name
}

// Task is the task for one run.
type Task struct {
	Prompt       string
	Model        string
	Session      string // of an earlier conversation, to continue
	Turns        int    // 0: the agent's own limit
	Instructions string
	Schema       []byte // a JSON Schema; nil: none
	Dir          string // inside, for files of this task alone; removed afterwards
}

// Command is a command in the sandbox, run as the agent's user.
type Command struct {
	Args  []string
	Env   map[string]string
	Stdin string
	Files map[string]string // absolute path inside to content; removed afterwards
}

// Layer is an agent's program on this machine.
type Layer struct {
	Name    string // in the store of layers, as cove.Layer has it
	Version string
	Source  string // a directory or, for a single program, a file of the host; empty: included in the image
}

// Parser converts a program's output to messages, line by line. A parser serves one run.
type Parser interface {
	// Line parses one line without its end. Errors: AgentProtocol, with the beginning of the line; ModelUnreachable when
	// the program would retry for ever. After an error the caller must end the program, ignore further lines, and call End
	// for the usage.
	Line(line []byte) ([]message.Message, error)
	// End reports the end of output, and the program's exit. It completes missing results and usage from what is known. It
	// may return messages and an error. Errors: AgentProtocol, AgentFailed, ModelUnreachable, LimitReached with ErrTurns
	// or ErrBudget; stderr is the end of standard error. A task that the agent could not do is a result with IsError,
	// without an error.
	End(exitCode int, stderr string) ([]message.Message, error)
}
