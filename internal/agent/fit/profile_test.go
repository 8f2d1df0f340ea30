package fit

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/profile"
)

// TestCheckProfile: a profile that says what no agent can be told has a problem when it is read.
func TestCheckProfile(t *testing.T) {
	for text, want := range map[string]string{
		"agent_config: 'skills, mcp', allowed_tools: [Read], permission_mode: plan": "",
		"mcp_config: {mcpServers: {a: {command: x}}}":                               "",
		"agent_config: everything":                                                  "no kind of an agent's configuration",
		"allowed_tools: [--settings=x]":                                             "names no tool",
		"disallowed_tools: ['']":                                                    "an empty name",
		"permission_mode: -p":                                                       "no permission mode",
		"mcp_config: {mcpServers: {}}":                                              "no mcpServers",
		"mcp_config: {mcpServers: {a: {env: {B: .nan}}}}":                           "write an object of JSON",
	} {
		all, err := profile.Parse("profiles.yaml", []byte("profiles: [{name: a, "+text+"}]"), CheckProfile)
		if err != nil || !strings.Contains(all[0].Problem, want) || (all[0].Problem == "") != (want == "") {
			t.Errorf("%s: %+v, %v", text, all, err)
		}
	}
}
