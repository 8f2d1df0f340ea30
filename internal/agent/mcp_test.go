package agent

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/cove-sandbox/cove"
)

func TestExtras(t *testing.T) {
	for name, c := range map[string]struct {
		x    Extras
		code cove.Code
	}{
		"none":                 {},
		"tools":                {x: Extras{AllowedTools: []string{"Bash(git log:*)"}, PermissionMode: "plan"}},
		"servers":              {x: Extras{MCPConfig: []byte(`{"mcpServers": {"a": {"command": "x"}}}`)}},
		"an option instead":    {Extras{AllowedTools: []string{"--settings=x"}}, cove.InvalidArgument},
		"an option for a mode": {Extras{PermissionMode: "-p"}, cove.InvalidArgument},
		"an empty name":        {Extras{DisallowedTools: []string{""}}, cove.InvalidArgument},
		"two lines":            {Extras{DisallowedTools: []string{"a\nb"}}, cove.InvalidArgument},
		"too many": {Extras{AllowedTools: []string{string(make([]rune, maxTools)) + "x"}},
			cove.InvalidArgument},
		"no JSON": {Extras{MCPConfig: []byte(`{`)}, cove.InvalidArgument},
		"two documents": {Extras{MCPConfig: []byte(`{"mcpServers": {"a": {"url": "x"}}} {}`)},
			cove.InvalidArgument},
		"no servers": {Extras{MCPConfig: []byte(`{"servers": {}}`)}, cove.InvalidArgument},
		"a server without a command": {Extras{MCPConfig: []byte(`{"mcpServers": {"a": {"args": []}}}`)},
			cove.InvalidArgument},
		"a large configuration": {Extras{MCPConfig: make([]byte, maxMCPConfig+1)}, cove.TooLarge},
	} {
		if err := c.x.Check(); cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// largeNumber matches numbers beyond 64 bits, among others.
var largeNumber = regexp.MustCompile(`[0-9]{16}|[0-9][eE]`)

// FuzzServers: the table that Codex is told has the servers of the JSON document, whatever characters they have.
func FuzzServers(f *testing.F) {
	f.Add([]byte(`{"mcpServers": {"a b": {"command": "x\u007f\"", "args": ["\\", null, 1.5, true], "env": {"A": null}}}}`))
	f.Add([]byte(`{"mcpServers": {"d": {"url": "https://d.test/<&>", "headers": {"X": "\u2028\u0001"}, "type": "http"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		servers, err := CheckMCPConfig(data)
		if err != nil {
			return
		}
		var got struct{ V map[string]map[string]any }
		if err := toml.Unmarshal([]byte("v = "+serversTOML(servers)), &got); err != nil {
			if largeNumber.Match(data) {
				return // JSON has numbers that TOML cannot hold
			}
			t.Fatalf("Codex cannot read its table: %v", err)
		}
		if len(got.V) != len(servers) {
			t.Fatalf("%d servers of %d", len(got.V), len(servers))
		}
		for name, s := range servers {
			if c, _ := s["command"].(string); c != "" && !reflect.DeepEqual(got.V[name]["command"], c) {
				again, _ := json.Marshal(got.V[name])
				t.Fatalf("%q: %s", name, again)
			}
		}
	})
}
