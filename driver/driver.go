// Package driver is how a Go program has coding agents work for it.
//
// A [Driver] gives one agent tasks. [Sandboxed] has it work in Cove's sandboxes,
// through a server; [Local] runs it on this machine as it is, without any wall,
// for whoever says so. [Open] takes the one that a profile says. For who calls
// them they are the same: the same messages, the same errors.
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
// Errors are *cove.Error, and their code says what kind they are:
//
//	cove.InvalidArgument   the caller's fault: no prompt, a schema that is none
//	cove.AgentProtocol     the agent wrote what its output cannot be; the error has the first 200 bytes
//	cove.AgentFailed       it ended with an exit code, and without a result; the error has the end of its stderr
//	cove.SchemaMismatch    the answer is not valid by the schema; the error has the path
//	cove.ModelUnreachable  the model's endpoint does not answer, or refuses
//	cove.LimitReached      time, memory, turns or a budget ended it
//	cove.Canceled          the context, or somebody else, ended it
//	cove.Unsupported, cove.Unavailable, cove.StorageFull, …   the sandbox could not be had
//
// A task that the model could not do is no error: it is a result with IsError.
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

// Driver gives an agent tasks. Methods may be called concurrently.
type Driver interface {
	// Run gives the agent a task and yields its messages as they come; the last
	// is its usage. An error is yielded once, as the last: so is that an answer is
	// not valid by a schema, after the answer. Breaking off ends the task, and so
	// does ctx.
	Run(ctx context.Context, prompt string, o Options) iter.Seq2[api.Message, error]
	// Generate gives the agent a task and returns its result. With a schema,
	// Result.Data is valid by it.
	Generate(ctx context.Context, prompt string, o Options) (Result, error)
	// Usage is what all tasks of this driver have used so far.
	Usage() api.AgentUsage
	// Close ends the tasks that are under way, and waits for them.
	Close() error
}

// Config says what a driver's tasks have in common; zero fields are as the
// profile says, and then as Cove does.
type Config struct {
	Profile string // name; empty is none
	Agent   string
	Model   string
	// New is what sandboxes are to be; a local driver has none, and takes the
	// environment alone.
	New api.SandboxRequest

	// Declared are agents beside those that Cove knows, for Cove's own commands:
	// a local driver may be of one of them.
	Declared []agent.Agent

	profile api.Profile // of a local driver: what its tasks are where they say nothing
}

// Options are one task's.
type Options struct {
	// Directory is what the agent works on, absolute: a private copy of it, whose
	// changes stay in the sandbox (Result.Run says which), or with Bind the
	// directory itself. A local driver always works on the directory itself, and
	// wants Bind to say so.
	Directory    string
	Bind         bool
	Model        string
	Instructions string          // beside the agent's own
	MaxTurns     int             // 0 is the agent's own bound
	Timeout      time.Duration   // 0 is 30 minutes
	Schema       json.RawMessage // nil is none
	// Resume is an earlier Result.Resume: its conversation goes on, on what it was
	// about. A sandboxed driver does so in the same sandbox, whatever Directory
	// says; a local one wants the same Directory again.
	Resume string
	// Interrupt is closed to have the agent stop and say what it has; ctx ends it
	// at once then. The task ends as one that somebody has ended, or as what it was
	// if it was about to end. nil is never.
	Interrupt <-chan struct{}
	// Log is given what the agent's program writes to its standard error, not while
	// a message is being handed out. It may be nil.
	Log func([]byte)
	// Started is told of the run on the server, before its messages: its sandbox
	// has the changes. A local driver has none. It may be nil.
	Started func(api.Run)
}

// Result is what came of a task.
type Result struct {
	Text    string          // the answer
	Data    json.RawMessage // the same as JSON, where a schema was given
	IsError bool            // the agent could not do it
	Usage   api.AgentUsage
	Resume  string // names the conversation, for a task that goes on with it
	Run     string // id of the run on the server; empty of a local driver
}

// Open makes the driver that the profile of a configuration says: a local one
// where its mode is none, and otherwise a sandboxed one. Errors: NotFound,
// InvalidArgument.
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

// check refuses what no driver can do.
func check(prompt string, o Options) error {
	if strings.TrimSpace(prompt) == "" {
		return cove.Errorf(cove.InvalidArgument, "there is no prompt").WithHint("say what the agent is to do")
	}
	if o.MaxTurns < 0 || o.Timeout < 0 {
		return cove.Errorf(cove.InvalidArgument, "a bound of turns or time is more than nothing").WithHint("leave it at zero for the default")
	}
	if o.Schema != nil {
		if _, err := jsonschema.Compile(o.Schema); err != nil {
			return err
		}
	}
	return nil
}

// generate is Generate on top of Run.
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
