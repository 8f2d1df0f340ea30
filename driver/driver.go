// Package driver runs coding agents from a Go program.
//
// A [Driver] gives tasks to one agent. [Sandboxed] runs the agent in Cove's sandboxes, through a server; [Local] runs
// it on this machine without any wall, for callers that choose so explicitly. [Open] chooses by a profile. Both have
// the same messages and the same errors.
//
//	c, err := client.New(client.Options{Address: "unix:/run/cove/cove.sock"})
//	d, err := driver.Open(ctx, c, driver.Config{Profile: "careful", Agent: "claude"})
//	defer d.Close()
//	for m, err := range d.Run(ctx, "Fix the failing test", driver.Options{Directory: "/srv/project"}) {
//		…
//	}
//
// # Errors
//
// Errors are *cove.Error with a code for their kind:
//
//	cove.InvalidArgument   a mistake of the caller: no prompt, an invalid schema
//	cove.AgentProtocol     the agent's output is malformed; the error has its first 200 bytes
//	cove.AgentFailed       it exited without a result; the error has the code and the end of its stderr
//	cove.SchemaMismatch    the answer does not match the schema; the error has the path
//	cove.ModelUnreachable  the model's endpoint does not answer, or refuses
//	cove.LimitReached      time, memory, turns or a budget ended it
//	cove.Canceled          the context, or another caller, ended it
//	cove.Unsupported, cove.Unavailable, cove.StorageFull, …   no sandbox was available
//
// A task that the model could not do is not an error: it is a result with IsError.
package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/internal/profile"
)

// Driver gives tasks to an agent. Methods may be called concurrently.
type Driver interface {
	// Run gives the agent a task and yields its messages as they come; the last one is its usage. An error is yielded
	// once, as the last; an answer that does not match the schema is yielded before its error. Breaking out of the loop
	// ends the task, and so does ctx.
	Run(ctx context.Context, prompt string, o Options) iter.Seq2[api.Message, error]
	// Generate gives the agent a task and returns its result. With a schema, Result.Data is valid.
	Generate(ctx context.Context, prompt string, o Options) (Result, error)
	// Ask asks a model alone for a single answer: there is no agent, tool or directory, and an answer costs a fraction of
	// a task. With a schema, Result.Data is valid. Result.Resume and Result.Run are empty.
	Ask(ctx context.Context, prompt string, o AskOptions) (Result, error)
	// Usage returns the usage of all tasks of this driver so far.
	Usage() api.AgentUsage
	// Close ends the running tasks, and waits for them.
	Close() error
}

// Config holds the common settings of a driver's tasks; zero fields take the profile's value, and then Cove's.
type Config struct {
	Profile string // name; empty: none
	Agent   string
	Model   string
	// New configures sandboxes; a local driver uses only the environment in it.
	New api.SandboxRequest

	// Declared are agents beside the built-in ones, for Cove's own commands: a local driver may use them.
	Declared []agent.Agent

	profile api.Profile // of a local driver: defaults of its tasks
}

// Options configure one task.
type Options struct {
	// Directory is the agent's working directory, absolute: a private copy of it, whose changes stay in the sandbox
	// (Result.Run names it), or with Bind the directory itself. A local driver always works in the directory itself,
	// and requires Bind.
	Directory    string
	Bind         bool
	Model        string
	Instructions string // in addition to the agent's own
	MaxTurns     int    // 0: the agent's own limit
	// AgentOptions are tools, MCP servers and the permission mode, in the agent's own words. Agents that lack an option
	// refuse it.
	api.AgentOptions
	Timeout time.Duration   // 0: 30 minutes
	Schema  json.RawMessage // nil: none
	// Resume is an earlier Result.Resume, whose conversation continues. A sandboxed driver continues in the same
	// sandbox and ignores Directory; a local one requires the same Directory again.
	Resume string
	// Interrupt is a channel; closing it asks the agent to stop and report what it has. Afterwards ctx ends it at once.
	// The task ends as Canceled, or normally if it was about to end. nil never interrupts.
	Interrupt <-chan struct{}
	// Log receives the program's standard error, never during a message. It may be nil.
	Log func([]byte)
	// Started receives the run on the server before its messages: its sandbox has the changes. A local driver has no
	// run. It may be nil.
	Started func(api.Run)
}

// Result is the result of a task.
type Result struct {
	Text    string          // the answer
	Data    json.RawMessage // the answer as JSON, with a schema
	IsError bool            // the agent could not do the task
	Usage   api.AgentUsage
	Resume  string // names the conversation, for a task that continues it
	Run     string // id of the run on the server; empty for a local driver
}

// Open returns the driver for a configuration's profile: a local one if its mode is none, otherwise a sandboxed one.
// Errors: NotFound, InvalidArgument.
func Open(ctx context.Context, c *client.Client, config Config) (Driver, error) {
	if config.Profile == "" {
		return Sandboxed(c, config), nil
	}
	p, err := c.Profile(ctx, config.Profile)
	if err != nil {
		return nil, err
	}
	if p.Mode != profile.ModeNone {
		return Sandboxed(c, config), nil
	}
	config.profile = p
	config.Agent = cmp.Or(config.Agent, p.Agent)
	return Local(config)
}

// check refuses options that no driver supports.
func check(prompt string, o Options) error {
	if strings.TrimSpace(prompt) == "" {
		return cove.Errorf(cove.InvalidArgument, "there is no prompt").WithHint("give the agent a task")
	}
	if o.MaxTurns < 0 || o.Timeout < 0 {
		return cove.Errorf(cove.InvalidArgument, "a bound of turns or time is more than nothing").WithHint(
			"leave it at zero for the default")
	}
	if err := extras(o.AgentOptions).Check(); err != nil {
		return err
	}
	if o.Schema != nil {
		if _, err := jsonschema.Compile(o.Schema); err != nil {
			return err
		}
	}
	return nil
}

// extras are options of an agent as a task has them.
func extras(o api.AgentOptions) agent.Extras {
	x := agent.Extras{AllowedTools: o.AllowedTools, DisallowedTools: o.DisallowedTools, PermissionMode: o.PermissionMode}
	if o.MCPConfig != nil {
		x.MCPConfig, _ = json.Marshal(o.MCPConfig) // Check refuses what is no JSON
	}
	return x
}

// generate implements Generate by Run.
func generate(ctx context.Context, d Driver, prompt string, o Options) (Result, error) {
	var r Result
	answered := false
	started := o.Started
	o.Started = func(run api.Run) {
		if r.Run = run.ID; started != nil {
			started(run)
		}
	}
	for m, err := range d.Run(ctx, prompt, o) {
		if err != nil {
			return r, err
		}
		switch m.Type {
		case api.MessageResult:
			answered = true
			r.Text, r.Data, r.IsError = m.Content, m.Data, m.IsError
		case api.MessageUsage:
			r.Usage = *m.Usage
		}
		if m.Session != "" {
			r.Resume = m.Session
		}
	}
	if r.Run != "" {
		r.Resume = r.Run
	}
	if !answered {
		return r, cove.Errorf(cove.AgentProtocol, "the agent ended without a result")
	}
	return r, nil
}
