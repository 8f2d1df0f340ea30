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

// Agent is the declaration of one. Its yaml form is how the configuration
// declares more of them.
//
// Commands are programs and arguments; {prompt}, {prompt_file}, {model},
// {session}, {turns}, {instructions} and {schema_file} stand for what the task
// says. An argument list of an option is left out where the task says nothing.
type Agent struct {
	Name    string   `yaml:"name"`
	Title   string   `yaml:"title"`
	Package Package  `yaml:"package"` // zero: it is in the image, or comes with Cove
	Program string   `yaml:"program"` // its file name; in bin of the package, or on the image's PATH
	Version []string `yaml:"version"` // prints its version
	Needs   []string `yaml:"needs"`   // programs of the image without which it does not run, such as node

	Headless    []string `yaml:"headless"`    // a task, to its end; what it prints is as Output says
	Interactive []string `yaml:"interactive"` // its own screen, in a terminal
	Prompt      Passing  `yaml:"prompt"`
	Options     Options  `yaml:"options"`
	Output      Format   `yaml:"output"`

	Env      map[string]string `yaml:"env"`
	Files    []File            `yaml:"files"`    // placed in the home before it first begins there
	Provider string            `yaml:"provider"` // of models, where a profile names no other
	Hosts    []string          `yaml:"hosts"`    // what it may reach beside the provider
}

// Package is where an agent's program comes from.
type Package struct {
	Npm     string `yaml:"npm"`     // name in the registry that npm is configured for
	Version string `yaml:"version"` // the pinned one
}

// Passing is how a task's prompt gets to the program.
type Passing string

const (
	ByStdin    Passing = "stdin"
	ByArgument Passing = "argument" // {prompt}
	ByFile     Passing = "file"     // {prompt_file}
)

// Options are arguments that a task's wishes become.
type Options struct {
	Model        []string `yaml:"model"`
	Resume       []string `yaml:"resume"`
	Turns        []string `yaml:"turns"`
	Instructions []string `yaml:"instructions"`
	Schema       []string `yaml:"schema"` // none: the answer is asked for in words, and validated outside
}

// Format is what a program's standard output is.
type Format string

const (
	FormatClaude   Format = "claude"   // Claude Code's stream-json
	FormatCodex    Format = "codex"    // "codex exec --json"
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

// Parser turns what a program prints into messages, line by line. A parser is
// for one run.
type Parser interface {
	// Line takes one line without its end. Errors: AgentProtocol, with the
	// beginning of the line.
	Line(line []byte) ([]api.Message, error)
	// End says that nothing follows, and how the program ended; what is missing of
	// result and usage it makes up of what it has. Errors: AgentProtocol,
	// AgentFailed, ModelUnreachable; stderr is the end of what it wrote there.
	End(exitCode int, stderr string) ([]api.Message, error)
}
