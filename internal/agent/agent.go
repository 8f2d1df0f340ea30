// Package agent declares coding agents: their package, their command line for a task, the files they expect, their
// provider of models, and the parser of their output. It is data and pure functions; it starts no program.
//
// An agent runs without its own sandbox and without permission questions: Cove's sandbox is the wall. Keys inside are
// placeholders.
package agent

import (
	"cmp"
	"path"
	"slices"

	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/message"
)

// Agent is the declaration of one agent. Its YAML form is used for Cove's own agents and for those in the
// configuration.
//
// Commands are programs and arguments, in which {prompt}, {prompt_file}, {model}, {session}, {turns}, {instructions},
// {schema}, {schema_file}, {allowed_tools}, {disallowed_tools}, {mcp_config}, {mcp_config_file}, {mcp_servers:toml} and
// {permission_mode} stand for values of the task. An option's arguments are omitted if its value is unset. The
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
	// Unasked are the arguments with which the agent asks for no permission: the first of the options, unless the task
	// has a permission mode. PermissionModes are the modes that the agent has. ToolsMode is the one of a task that lists
	// allowed tools and has no mode: the one in which the agent uses no others.
	Unasked         []string `yaml:"unasked"`
	PermissionModes []string `yaml:"permission_modes"`
	ToolsMode       string   `yaml:"tools_mode"`
	// Hooked are the arguments with which the agent runs hooks that its user has brought. It needs none if it asks for no
	// consent to hooks.
	Hooked []string `yaml:"hooked"`
	Output Format   `yaml:"output"`

	Env        map[string]string `yaml:"env"`
	SandboxEnv map[string]string `yaml:"sandbox_env"` // likewise, in a sandbox alone
	Files      []File            `yaml:"files"`       // written to the home before the first start
	// Config lists what of a user's own configuration may be brought into a sandbox; package agent/userconfig reads it.
	Config []Own `yaml:"config"`
	// ConfigPlaces are variables by which the agent's user has it look for its configuration elsewhere.
	ConfigPlaces []ConfigPlace    `yaml:"config_places"`
	Provider     string           `yaml:"provider"` // of models, unless another is chosen
	Hosts        []string         `yaml:"hosts"`    // reachable hosts beside the provider
	Speaks       []model.Endpoint `yaml:"speaks"`   // its program needs one of these of a provider; none: any
	// DoesWithout are requests that the agent can do without, as HOST/PATH in the notation of policies: their refusals are
	// not reported.
	DoesWithout []string `yaml:"does_without"`

	Builtin bool `yaml:"-"` // built-in
}

// Package is the source of an agent's program.
type Package struct {
	Npm     string `yaml:"npm"`     // name in npm's configured registry
	Version string `yaml:"version"` // the pinned one
	// Megabytes that this version takes, or about as many; 0 if unknown.
	Megabytes int64  `yaml:"megabytes"`
	Program   string `yaml:"program"` // a pattern of files in the package's directory; empty: npm's entry point
	Beside    string `yaml:"-"`       // a program next to cove itself, in place of a package
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

	AllowedTools    []string `yaml:"allowed_tools"`
	DisallowedTools []string `yaml:"disallowed_tools"`
	MCPConfig       []string `yaml:"mcp_config"`
	PermissionMode  []string `yaml:"permission_mode"`
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

// Own is a part of a user's own configuration of an agent: a file, or a directory with what is in it. Nothing that is
// not listed is brought. Of a JSON or TOML document with Keys or Servers those keys are brought, and no others.
type Own struct {
	Path      string   `yaml:"path"`      // below the home, here and there; * stands for any part of a name
	Kind      string   `yaml:"kind"`      // by which a user chooses, see userconfig.Kinds
	Keys      []string `yaml:"keys"`      // with dots between; * stands for any part of a name
	Servers   string   `yaml:"servers"`   // the key that has MCP servers
	Variables []string `yaml:"variables"` // keys that have variables: those that look like keys are left out
	Except    []string `yaml:"except"`    // keys below the brought ones, or names of files, that are left out
	Named     string   `yaml:"named"`     // what the entries of a directory are called; its name, if empty
	Each      int      `yaml:"each"`      // the depth at which the entries of a directory are counted; 1, if 0
}

// ConfigPlace is a variable of the agent's user, and what of the configuration is below the directory that it names.
type ConfigPlace struct {
	Variable string `yaml:"variable"`
	Path     string `yaml:"path"` // below the home, where it is in a sandbox, and where it is without the variable
	At       string `yaml:"at"`   // below the directory of the variable; empty: that directory
}

// Document reports whether only some keys of a file are brought.
func (o Own) Document() bool { return len(o.Keys) > 0 || o.Servers != "" }

// Noun returns the word for entries of a directory.
func (o Own) Noun() string { return cmp.Or(o.Named, path.Base(o.Path)) }

// Leaves reports whether a file below a directory is left out.
func (o Own) Leaves(name string) bool {
	return slices.ContainsFunc(o.Except, func(pattern string) bool {
		whole, _ := path.Match(pattern, name)
		base, _ := path.Match(pattern, path.Base(name))
		return whole || base
	})
}

// Place describes the environment of an agent, for File templates.
type Place struct {
	WorkDir  string // inside
	Model    string // empty: the agent's own choice
	BaseURL  string // of the models, if they are behind the gateway's own address; empty: the provider's usual
	Kind     string // API of the models: anthropic, openai, gemini, bedrock or vertex
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
	Hooks        bool   // the user has brought hooks into the sandbox
	Extras
}

// Extras are options of a task that some agents have, in their own words: names of tools and of modes are theirs.
type Extras struct {
	AllowedTools, DisallowedTools []string
	MCPConfig                     []byte // see CheckMCPConfig; nil: none
	PermissionMode                string
}

// Over returns x, with the fields of defaults where x has none.
func (x Extras) Over(defaults Extras) Extras {
	if x.AllowedTools == nil {
		x.AllowedTools = defaults.AllowedTools
	}
	if x.DisallowedTools == nil {
		x.DisallowedTools = defaults.DisallowedTools
	}
	if x.MCPConfig == nil {
		x.MCPConfig = defaults.MCPConfig
	}
	x.PermissionMode = cmp.Or(x.PermissionMode, defaults.PermissionMode)
	return x
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
