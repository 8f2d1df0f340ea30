package agent

import (
	"encoding/json"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/userconfig"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// toolOptions are flags about tools and permissions, which some agents have, in the agent's own words.
type toolOptions struct {
	allowed, disallowed []string
	servers             string // file
	mode                string
}

// maxPrompt bounds a prompt, and each file beside it.
const maxPrompt = 1 << 20 // bytes

func (o *toolOptions) add(f *pflag.FlagSet) {
	f.StringArrayVar(&o.allowed, "allowed-tools", nil,
		"let it use `TOOL` and no other, in its own words, like Read or Bash(git log:*) (repeatable)")
	f.StringArrayVar(&o.disallowed, "disallowed-tools", nil, "do not let it use `TOOL` (repeatable)")
	f.StringVar(&o.servers, "mcp-config", "", "MCP servers of the task, as the JSON in `FILE` has them in mcpServers")
	f.StringVar(&o.mode, "permission-mode", "", "the agent's own `MODE` of permissions, like plan (default: no questions)")
}

// read returns the options that the flags describe.
func (o *toolOptions) read() (api.AgentOptions, error) {
	made := api.AgentOptions{AllowedTools: o.allowed, DisallowedTools: o.disallowed, PermissionMode: o.mode}
	x := agent.Extras{AllowedTools: o.allowed, DisallowedTools: o.disallowed, PermissionMode: o.mode}
	if o.servers != "" {
		data, _, err := flags.ReadFile(o.servers, maxPrompt)
		if err != nil {
			return made, err
		}
		if x.MCPConfig = data; x.Check() == nil {
			if err := json.Unmarshal(data, &made.MCPConfig); err != nil {
				return made, err
			}
		}
	}
	return made, x.Check()
}

// warn names what looks like a key in the file of MCP servers: the sandbox receives the file as it is.
func (o *toolOptions) warn(sess *session.Session, made api.AgentOptions) {
	keys := userconfig.KeysIn(made.MCPConfig)
	for _, k := range keys {
		sess.Say.Line("%s is in the sandbox: %s, which looks like a key", o.servers, k)
	}
	if keys != nil {
		sess.Say.Line("have the gateway set it in its place: --credential (docs/credentials.md)")
	}
}
