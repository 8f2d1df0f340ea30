package fit

import (
	"encoding/json"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/userconfig"
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
