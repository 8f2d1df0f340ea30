package fit

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/userconfig"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/model"
)

// CheckProfile refuses a profile that says what no agent can be told: see profile.Parse. Errors: InvalidArgument,
// TooLarge.
func CheckProfile(p api.Profile) error {
	if _, err := userconfig.ParseChoice(p.AgentConfig); err != nil {
		return err
	}
	x := agent.Extras{AllowedTools: p.AllowedTools, DisallowedTools: p.DisallowedTools, PermissionMode: p.PermissionMode}
	if p.MCPConfig != nil {
		var err error
		if x.MCPConfig, err = json.Marshal(p.MCPConfig); err != nil {
			return cove.Errorf(cove.InvalidArgument, "mcp_config: %w", err).WithHint("write an object of JSON")
		}
	}
	return x.Check()
}

// JudgeProfile refuses a profile's budget in dollars that cannot be judged for its providers. Errors: InvalidArgument.
func JudgeProfile(p api.Profile, providers []model.Provider) (err error) {
	if p.Network == nil || p.Network.Budget == nil {
		return nil
	}
	b := apispec.Budget(p.Network.Budget)
	for i, one := range providers {
		if one.Name == p.Provider {
			err = cmp.Or(err, judge(&providers[i], b, p.Model))
		} else if slices.Contains(p.Network.Providers, one.Name) {
			err = cmp.Or(err, one.Judge(b, ""))
		}
	}
	return err
}

// judge is Judge of a provider for a model in an agent's words: one without a number, such as sonnet, is the agent's
// own, and is judged when the agent asks. Some agents name the provider before it.
func judge(p *model.Provider, b cove.Budget, word string) error {
	word, _, _ = strings.Cut(word, "[")
	if !strings.ContainsAny(word, "0123456789") {
		word = ""
	}
	if _, known := p.Price(path.Base(word), model.Usage{}); known {
		return nil
	}
	return p.Judge(b, word)
}
