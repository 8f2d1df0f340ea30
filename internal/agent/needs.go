package agent

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Place of layers inside a sandbox.
const layersPlace = "/opt/cove/agents"

// Choice is what is decided of a sandbox in which an agent is to work, by a
// profile or whoever asks. Its zero value is what the declaration says.
type Choice struct {
	Provider    *model.Provider // nil: the agent's own, as Cove knows it
	Gateway     bool            // models are asked at the gateway's own address, also where they need not be
	Tokens      bool            // the agent has a real token, see WithTokens, and no key is set on the way out
	Model       string
	Hosts       []string // may be reached beside what the agent needs
	Credentials []string // are set on requests, beside the provider's
	WorkDir     string   // inside; cove.Workspace if empty
}

// Outfit is what a sandbox needs for an agent to work in it.
type Outfit struct {
	Network api.NetworkPermission
	Env     map[string]string
	Layers  []cove.Layer
	Path    string   // a directory inside, to be the first of PATH; empty: none
	Files   []File   // of the home, with their contents
	Screen  []string // what its terminal shows; nil: the agent has no screen
}

// Outfit says what a sandbox needs for the agent. Errors: InvalidArgument,
// Unsupported.
func (a Agent) Outfit(l Layer, c Choice) (Outfit, error) {
	o := Outfit{Env: maps.Clone(a.Env), Network: api.NetworkPermission{Enabled: true}}
	p := Place{WorkDir: c.WorkDir, Model: c.Model, Provider: a.Provider}
	if p.WorkDir == "" {
		p.WorkDir = cove.Workspace
	}
	n := &o.Network
	n.Mode = string(cove.NetworkLimited)
	n.Credentials = slices.Clone(c.Credentials)
	switch own := c.Provider == nil || c.Provider.Known && c.Provider.Name == a.Provider; {
	case own && !c.Gateway && a.Provider != "":
		n.Policies = []api.PolicyText{{Source: PolicySource + a.Name, Text: a.policy(a.Provider)}}
		if !c.Tokens {
			n.Credentials = appendMissing(n.Credentials, a.Provider)
		}
	case c.Tokens:
		return o, cove.Errorf(cove.Unsupported, "a token in the sandbox is for a provider of the agent's own, and %s has none", a.Title).WithHint("leave token_file out of the profile")
	case c.Provider != nil:
		p.Provider, p.Kind, p.BaseURL = c.Provider.Name, string(c.Provider.Kind), "http://"+policy.GatewayService+"/proxy/v1"
		n.Providers = []string{c.Provider.Name}
	case a.Provider != "":
		return o, cove.Errorf(cove.Unsupported, "the models of %s are not to be had at the gateway's address", a.Provider).WithHint("describe the provider in gateway.providers, or leave the choice out")
	}
	n.Allow = slices.Concat(a.Hosts, c.Hosts)
	if n.Policies == nil && n.Providers == nil && len(n.Allow) == 0 {
		*n = api.NetworkPermission{} // it needs none
	}
	var err error
	if o.Files, err = a.Home(p); err != nil {
		return o, err
	}
	if len(a.Interactive) > 0 {
		screen, err := a.InteractiveCommand(Task{Model: c.Model})
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

// PolicySource is what the names of rules begin with that come from an agent's
// declaration.
const PolicySource = "agent "

// policy is what the declaration says of the network, as a document.
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

// Permission is what was asked of a sandbox's network, and what the agent needs
// beside it. Who asks for none gets none.
func (o Outfit) Permission(asked *api.NetworkPermission) *api.NetworkPermission {
	needs := o.Network
	if !needs.Enabled || asked != nil && !asked.Enabled {
		return asked
	}
	if asked == nil {
		return &needs
	}
	n := *asked
	n.Mode = cmp.Or(n.Mode, needs.Mode)
	n.Policies = slices.Concat(needs.Policies, n.Policies)
	n.Allow = slices.Concat(needs.Allow, n.Allow)
	for _, c := range needs.Credentials {
		n.Credentials = appendMissing(slices.Clip(n.Credentials), c)
	}
	if len(n.Providers) == 0 {
		n.Providers = needs.Providers
	}
	return &n
}

func appendMissing(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
