package agent

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
)

// CheckMCPConfig returns the servers of a file of MCP servers, in the form that agents share: a JSON object whose
// mcpServers has each server by its name, with a command or an address. Errors: InvalidArgument.
func CheckMCPConfig(data []byte) (map[string]map[string]any, error) {
	var doc struct {
		Servers map[string]map[string]any `json:"mcpServers"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	const hint = `write {"mcpServers": {"NAME": {"command": "PROGRAM", "args": []}}}, or "url" for a server of HTTP`
	switch err := d.Decode(&doc); {
	case err != nil || d.More():
		return nil, cove.Errorf(cove.InvalidArgument, "the MCP configuration is no JSON object of servers").WithHint(hint)
	case len(doc.Servers) == 0:
		return nil, cove.Errorf(cove.InvalidArgument, "the MCP configuration has no mcpServers").WithHint(hint)
	}
	for name, server := range doc.Servers {
		if name == "" || !said(server["command"]) && !said(server["url"]) && !said(server["httpUrl"]) {
			return nil, cove.Errorf(cove.InvalidArgument, "the MCP server %.80q has neither command nor url", name).
				WithHint(hint)
		}
	}
	return doc.Servers, nil
}

// Check refuses options that no agent can be told. Errors: InvalidArgument, TooLarge.
func (x Extras) Check() error {
	total := 0
	for _, tool := range slices.Concat(x.AllowedTools, x.DisallowedTools, []string{x.PermissionMode}) {
		total += len(tool)
		if strings.HasPrefix(tool, "-") || strings.ContainsFunc(tool, unicode.IsControl) || !utf8.ValidString(tool) {
			return cove.Errorf(cove.InvalidArgument, "%.80q names no tool and no permission mode", tool).
				WithHint("write them as the agent does, such as Read or Bash(git log:*)")
		}
	}
	if slices.Contains(x.AllowedTools, "") || slices.Contains(x.DisallowedTools, "") {
		return cove.Errorf(cove.InvalidArgument, "a list of tools has an empty name").WithHint("leave it out")
	}
	if total > maxTools || len(x.MCPConfig) > maxMCPConfig {
		return cove.Errorf(cove.TooLarge, "lists of tools may have %d KiB, and the MCP configuration %d KiB", maxTools>>10,
			maxMCPConfig>>10).WithHint("name fewer")
	}
	if x.MCPConfig == nil {
		return nil
	}
	_, err := CheckMCPConfig(x.MCPConfig)
	return err
}

// Bounds of extras, in bytes: they stand in arguments of a program.
const (
	maxTools     = 32 << 10
	maxMCPConfig = 64 << 10
)

func said(v any) bool {
	s, ok := v.(string)
	return ok && s != ""
}

// serversTOML returns MCP servers as an inline table of TOML with the keys of Codex, which tells the kind of a server
// by its other keys.
func serversTOML(servers map[string]map[string]any) string {
	all := map[string]any{}
	for name, server := range servers {
		server = maps.Clone(server)
		delete(server, "type")
		if headers, ok := server["headers"]; ok {
			delete(server, "headers")
			server["http_headers"] = headers
		}
		all[name] = server
	}
	var b strings.Builder
	writeTOML(&b, all)
	return b.String()
}

// writeTOML writes a value of JSON as an inline value of TOML, which lacks null.
func writeTOML(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		first := true
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if v[name] == nil {
				continue
			}
			if !first {
				b.WriteByte(',')
			}
			first = false
			writeTOML(b, name)
			b.WriteByte('=')
			writeTOML(b, v[name])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		first := true
		for _, item := range v {
			if item == nil {
				continue
			}
			if !first {
				b.WriteByte(',')
			}
			first = false
			writeTOML(b, item)
		}
		b.WriteByte(']')
	case string:
		quoted, _ := json.Marshal(v) // a string always encodes
		b.Write(bytes.ReplaceAll(quoted, []byte{0x7f}, []byte(`\u007f`)))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case json.Number:
		b.WriteString(v.String())
	}
}
