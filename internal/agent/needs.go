package agent

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// layersPlace is the directory of layers inside a sandbox.
const layersPlace = "/opt/cove/agents"

// Choice holds decisions on an agent's sandbox by a profile or the caller. The zero value follows the declaration.
type Choice struct {
	Provider    *model.Provider // nil: the agent's own, built-in
	Gateway     bool            // models are reached through the gateway's own address, even if not necessary
	Tokens      bool            // the agent has a real token, see WithTokens, and the gateway sets no key
	Model       string
	Hosts       []string // reachable beside the agent's needs
	Credentials []string // set on requests, beside the provider's
	WorkDir     string   // inside; empty: cove.Workspace
	Hooks       bool     // the user has brought hooks of the agent
}

// Outfit holds what a sandbox needs for an agent.
type Outfit struct {
	Network cove.Network
	Env     map[string]string
	Layers  []cove.Layer
	Path    string   // a directory inside, first in PATH; empty: none
	Files   []File   // of the home, with their contents
	Screen  []string // command of its terminal; nil: the agent has no screen
}

// Outfit returns what a sandbox needs for the agent. Errors: InvalidArgument, Unsupported.
func (a Agent) Outfit(l Layer, c Choice) (Outfit, error) {
	o := Outfit{Env: map[string]string{}, Network: cove.Network{Enabled: true}}
	maps.Copy(o.Env, a.Env)
	maps.Copy(o.Env, a.SandboxEnv)
	p := Place{WorkDir: c.WorkDir, Model: c.Model, Provider: a.Provider}
	p.WorkDir = cmp.Or(p.WorkDir, cove.Workspace)
	n := &o.Network
	n.Mode = cove.NetworkLimited
	n.Credentials = slices.Clone(c.Credentials)
	switch own := c.Provider == nil || c.Provider.Known && c.Provider.Name == a.Provider; {
	case own && !c.Gateway && a.Provider != "":
		n.Policies = []cove.PolicyText{{Source: PolicySource + a.Name, Text: a.policy(a.Provider)}}
		if !c.Tokens {
			n.Credentials = appendMissing(n.Credentials, a.Provider)
		}
	case c.Tokens:
		return o,
			cove.Errorf(cove.Unsupported, "a token in the sandbox is for a provider of the agent's own, and %s has none",
				a.Title).WithHint("leave token_file out of the profile")
	case c.Provider != nil && !a.CanAsk(c.Provider):
		return o, cove.Errorf(cove.Unsupported, "%s cannot ask the model provider %s, which is of the kind %s", a.Title,
			c.Provider.Name, c.Provider.Kind).
			WithHint("it needs one that has %s", or(a.Speaks))
	case c.Provider != nil:
		p.Provider, p.Kind, p.BaseURL = c.Provider.Name, string(c.Provider.Kind), "http://"+policy.GatewayService+"/proxy/v1"
		n.Providers = []string{c.Provider.Name}
	case a.Provider != "":
		return o, cove.Errorf(cove.Unsupported, "the gateway's address does not serve the models of %s",
			a.Provider).WithHint("describe the provider in gateway.providers, or leave the choice out")
	}
	n.Allow = slices.Concat(a.Hosts, c.Hosts)
	if n.Policies == nil && n.Providers == nil && len(n.Allow) == 0 {
		*n = cove.Network{} // it needs none
	}
	var err error
	if o.Files, err = a.Home(p); err != nil {
		return o, err
	}
	if len(a.Interactive) > 0 {
		screen, err := a.InteractiveCommand(Task{Model: c.Model, Hooks: c.Hooks})
		if err != nil {
			return o, err
		}
		o.Screen = screen.Args
	}
	if l.Source != "" {
		target := path.Join(layersPlace, a.Name)
		o.Path = path.Join(target, "bin")
		if a.Package.Beside != "" {
			target = path.Join(o.Path, a.Program)
		}
		o.Layers = []cove.Layer{{Name: l.Name, Target: target}}
	}
	return o, nil
}

// CanAsk reports whether the agent's program speaks to a provider.
func (a Agent) CanAsk(p *model.Provider) bool {
	return len(a.Speaks) == 0 || slices.ContainsFunc(a.Speaks, p.Has)
}

func or(all []model.Endpoint) string {
	var words []string
	for _, e := range all {
		words = append(words, string(e))
	}
	return strings.Join(words, " or ")
}

// PolicySource is the prefix of rule names from an agent's declaration.
const PolicySource = "agent "

// policy returns the declaration's network needs as a document.
func (a Agent) policy(preset string) string {
	var b strings.Builder
	if preset != "" {
		fmt.Fprintf(&b, "presets: [%s]\n", preset)
	}
	if len(a.DoesWithout) > 0 {
		b.WriteString("rules:\n")
	}
	for _, one := range a.DoesWithout {
		host, path, _ := strings.Cut(one, "/")
		fmt.Fprintf(&b, "  - {hosts: %q, paths: %q, action: deny, note: %q}\n", host, "/"+path, a.Title+" does without")
	}
	return b.String()
}

// Equip returns the requested spec over what the agent needs; layers, path and screen are the agent's. A spec without a
// network stays without one.
func (o Outfit) Equip(asked cove.Spec) cove.Spec {
	needs := cove.Spec{Env: o.Env}
	if o.Network.Enabled {
		needs.Network = &o.Network
	}
	spec := asked.Over(needs)
	spec.Layers, spec.Path, spec.Screen = o.Layers, o.Path, o.Screen
	return spec
}

func appendMissing(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
