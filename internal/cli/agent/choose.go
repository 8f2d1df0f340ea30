package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/profile"
)

// chooseAgent names the agent of a task for which none is named: the profile's, else the first that has a key for
// its models. Errors: InvalidArgument where there is none.
func chooseAgent(ctx context.Context, sess *session.Session, named string) (string, error) {
	name, err := sess.ResolveProfile(named)
	if err != nil {
		return "", err
	}
	b, err := sess.Server(ctx)
	if err != nil {
		return "", err
	}
	defer b.Close()
	if name != "" {
		all, err := b.Client.Profiles(ctx)
		if err != nil {
			return "", err
		}
		p, err := profile.Find(all, name)
		if err != nil || p.Agent != "" {
			return p.Agent, err
		}
		if p.Provider != "" {
			return "", cove.Errorf(cove.InvalidArgument, "the profile %s has a provider of models, and no agent", name).
				WithHint("name one with --agent NAME, or in the profile")
		}
	}
	all, err := b.Client.Agents(ctx)
	if err != nil {
		return "", err
	}
	keys, err := client.AsOwner(b.Client).Credentials(ctx, false)
	if err != nil {
		return "", err
	}
	one, ok := withKey(all, keys.Credentials)
	if !ok {
		return "", cove.Errorf(cove.InvalidArgument, "no agent is named, and there is no key for the models of any").
			WithHint("name one with --agent NAME; \"cove credentials check\" lists where keys are looked for")
	}
	sess.Say.Line("the agent is %s: --agent names another", one.Name)
	return one.Name, nil
}

// withKey returns the first agent that has a key for its models: of those that are installed, then of those that can
// be, then of those that come with Cove or an image. A key that only a program can tell counts after those that are
// there. It is pure.
func withKey(all []api.Agent, keys []api.Credential) (api.Agent, bool) {
	state := map[string]string{"": "ready"} // of an agent without models of a provider
	for _, k := range keys {
		state[k.Name] = k.State
	}
	rank := func(a api.Agent) int {
		group := 2
		switch {
		case a.Package != "" && a.Ready:
			group = 0
		case a.Package != "":
			group = 1
		}
		if state[a.Provider] == "untried" {
			group += 3
		}
		return group
	}
	usable := slices.DeleteFunc(slices.Clone(all), func(a api.Agent) bool {
		return state[a.Provider] != "ready" && state[a.Provider] != "untried" || a.Package == "" && !a.Ready
	})
	if len(usable) == 0 {
		return api.Agent{}, false
	}
	return slices.MinFunc(usable, func(a, b api.Agent) int { return cmp.Compare(rank(a), rank(b)) }), true
}

// completeModes offers the permission modes of an agent, or of each where none is named.
func completeModes(sess *session.Session, name func() string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) (modes []string, _ cobra.ShellCompDirective) {
		all := agent.Builtin()
		if cfg, err := sess.Config(); err == nil { // a completion has no place for an error
			all = agent.Merge(cfg.Agents)
		}
		for _, a := range all {
			if named := name(); named != "" && named != a.Name {
				continue
			}
			for _, m := range a.PermissionModes {
				if !slices.ContainsFunc(modes, func(has string) bool { return strings.HasPrefix(has, m+"\t") }) {
					modes = append(modes, m+"\t"+a.Title)
				}
			}
		}
		return modes, cobra.ShellCompDirectiveNoFileComp
	}
}
