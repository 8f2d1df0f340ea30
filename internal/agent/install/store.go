// Package install owns the installed programs of agents: each version is a read-only directory of the host, which
// sandboxes are shown, below one directory of Cove's.
//
//	claude/2.1.329/          what npm has made, with its lockfile
//	claude/2.1.329/bin/      the program, as a link
//	claude/2.1.329.lock.json that lockfile, which a later installation is held to
//	claude/current           the version that runs use
//
// Nothing of a package runs on the host: npm does its work in a sandbox, and what it has made is only ever looked into
// by what does not follow links.
package install

import (
	"cmp"
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Options make a Store. All are required.
type Options struct {
	Dir       string // of the layers; made when it is needed
	Beside    string // directory of Cove's own programs
	Agents    func() []agent.Agent
	Providers func() ([]model.Provider, error) // of models
	// Run runs something in a sandbox of its own, to its end.
	Run func(context.Context, Job) (Result, error)
	// Registry returns npm's settings for the registry of its packages, by the names of npm's own configuration.
	Registry func(context.Context) (map[string]string, error)
}

// Job describes a script to run in a sandbox.
type Job struct {
	Script string // of a shell
	Args   []string
	// Attachments are open for as long as Run runs.
	Attachments []engine.Attachment
	Network     *cove.Network // nil: none
	Limits      cove.Limits   // zero fields take the default; beyond what callers may ask for
}

// Result is how it ended.
type Result struct {
	ExitCode int
	Stdout   string
	Stderr   string
	Limit    cove.LimitKind // that ended it
	Killed   bool           // a caller ended it
}

// Store has the agents of a machine and their layers.
type Store struct{ o Options }

// Open makes a Store.
func Open(o Options) *Store { return &Store{o: o} }

// Agents returns the agents that this machine knows, in the order of display.
func (s *Store) Agents() []agent.Agent { return s.o.Agents() }

// Agent is the one of a name. Errors: NotFound.
func (s *Store) Agent(name string) (agent.Agent, error) { return agent.Find(s.o.Agents(), name) }

// Want holds the choices for an agent in a sandbox, by name.
type Want struct {
	agent.Choice
	ProviderName string // instead of the agent's own; empty: that
}

// Outfit returns what a sandbox needs for an agent of this machine, with its layer. Errors: NotFound for an agent or
// provider that is not there, InvalidArgument, Unsupported, and RuntimeMissing for an agent that is not installed: its
// outfit then lacks only the layer.
func (s *Store) Outfit(name string, w Want) (agent.Agent, agent.Layer, agent.Outfit, error) {
	a, err := s.Agent(name)
	if err != nil {
		return a, agent.Layer{}, agent.Outfit{}, err
	}
	l, missing := s.Layer(a)
	if missing != nil && cove.ErrorCode(missing) != cove.RuntimeMissing {
		return a, l, agent.Outfit{}, missing
	}
	if w.Tokens {
		a = a.WithTokens()
	}
	o, err := s.OutfitOf(a, l, w)
	if err == nil {
		err = missing
	}
	return a, l, o, err
}

// OutfitOf is Outfit for an agent and a layer that are known.
func (s *Store) OutfitOf(a agent.Agent, l agent.Layer, w Want) (agent.Outfit, error) {
	all, err := s.o.Providers()
	if err != nil {
		return agent.Outfit{}, err
	}
	name := cmp.Or(w.ProviderName, a.Provider)
	if i := slices.IndexFunc(all, func(p model.Provider) bool { return p.Name == name }); i >= 0 {
		w.Provider = &all[i]
	} else if name != a.Provider { // of its own, a preset of policies and a credential are enough
		_, err := model.Choose(all, name)
		return agent.Outfit{}, err
	}
	return a.Outfit(l, w.Choice)
}
