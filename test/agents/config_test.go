//go:build linux

package agents

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/holdings"
)

// hidden is in what a user never shows a sandbox: logins, histories, keys of MCP servers.
const hidden = "hidden-4c81aa02e7"

// server is an MCP server over standard input and output, with one tool.
const server = `#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    q = json.loads(line)
    if "id" not in q:
        continue
    m, r = q["method"], {}
    if m == "initialize":
        r = {"protocolVersion": q["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "docs", "version": "1"}}
    elif m == "tools/list":
        r = {"tools": [{"name": "look_up_sums", "description": "Look up sums", ` +
	`"inputSchema": {"type": "object", "properties": {}}}]}
    if m == "tools/list":
        open(os.path.expanduser("~/listed"), "w").close()
    print(json.dumps({"jsonrpc": "2.0", "id": q["id"], "result": r}), flush=True)
`

// configured are agents with a configuration of a user's, by the files in their home: $H is the home, and $K the hidden
// text. wants are in a request to the model. Codex names tools of MCP servers only when a model searches for them.
var configured = []struct {
	name, host, model string
	files             map[string]string
	wants, brought    []string
}{
	{name: "claude", host: "api.anthropic.com", files: map[string]string{
		".claude/CLAUDE.md":            "Say INSTRUCTION-MARK.\n",
		".claude/skills/sums/SKILL.md": "---\nname: sums\ndescription: SKILL-MARK\n---\nAdd.\n",
		".claude/commands/tidy.md":     "---\ndescription: COMMAND-MARK\n---\nTidy up.\n",
		".claude/agents/checker.md":    "---\nname: checker\ndescription: AGENT-MARK\n---\nCheck.\n",
		".claude/hooks/server.py":      server,
		".claude/settings.json": `{"apiKeyHelper": "echo $K", "env": {"API_TOKEN": "$K", "FAVOURITE": "tea"}, ` +
			`"permissions": {"deny": ["Bash(rm:*)"], "defaultMode": "plan"}, ` +
			`"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "echo HOOK-MARK"}]}]}}`,
		".claude.json": `{"oauthAccount": {"token": "$K"}, "projects": {"/x": {"history": ["$K"]}}, ` +
			`"mcpServers": {"docs": {"command": "python3", "args": ["$H/.claude/hooks/server.py"], ` +
			`"env": {"DOCS_TOKEN": "$K", "LEVEL": "1"}}}}`,
		".claude/.credentials.json":       `{"token": "$K"}`,
		".claude/history.jsonl":           "$K\n",
		".claude/projects/x/memory.jsonl": "$K\n",
		".claude/skills/sums/.env":        "KEY=$K\n",
	}, wants: []string{"INSTRUCTION-MARK", "SKILL-MARK", "COMMAND-MARK", "AGENT-MARK", "HOOK-MARK", "look_up_sums"},
		brought: []string{"CLAUDE.md", "settings.json", "1 skill", "1 command", "1 agent", "MCP server docs",
			"left out of it:", "env.API_TOKEN, which looks like a key", "mcpServers.docs.env.DOCS_TOKEN"}},
	{name: "codex", host: "api.openai.com", files: map[string]string{
		".codex/AGENTS.md":            "Say INSTRUCTION-MARK.\n",
		".codex/skills/sums/SKILL.md": "---\nname: sums\ndescription: SKILL-MARK\n---\nAdd.\n",
		".codex/hooks/server.py":      server,
		".codex/config.toml": "model_reasoning_effort = \"high\"\nmodel_provider = \"mine\"\n" +
			"approval_policy = \"untrusted\"\n" +
			"[mcp_servers.docs]\ncommand = \"python3\"\nargs = [\"$H/.codex/hooks/server.py\"]\n" +
			"[mcp_servers.docs.env]\nDOCS_TOKEN = \"$K\"\n",
		".codex/hooks.json": `{"hooks": {"SessionStart": [{"hooks": [{"type": "command", ` +
			`"command": "echo HOOK-MARK"}]}]}}`,
		".codex/auth.json":          `{"OPENAI_API_KEY": "$K"}`,
		".codex/history.jsonl":      "$K\n",
		".codex/sessions/a/b.jsonl": "$K\n",
	}, wants: []string{"INSTRUCTION-MARK", "SKILL-MARK", "HOOK-MARK", `"effort":"high"`},
		brought: []string{"AGENTS.md", "config.toml", "1 skill", "MCP server docs", "mcp_servers.docs.env.DOCS_TOKEN"}},
	{name: "gemini", host: "generativelanguage.googleapis.com", model: "gemini-2.5-pro", files: map[string]string{
		".gemini/GEMINI.md":            "Say INSTRUCTION-MARK.\n",
		".gemini/skills/sums/SKILL.md": "---\nname: sums\ndescription: SKILL-MARK\n---\nAdd.\n",
		".gemini/hooks/server.py":      server,
		".gemini/settings.json": `{"security": {"auth": {"selectedType": "oauth-personal"}}, // mine` + "\n" +
			`"mcpServers": {"docs": {"command": "python3", "args": ["$H/.gemini/hooks/server.py"], ` +
			`"env": {"DOCS_TOKEN": "$K"}}},}`,
		".gemini/oauth_creds.json": `{"access_token": "$K"}`,
		".gemini/tmp/x/logs.json":  "$K",
	}, wants: []string{"INSTRUCTION-MARK", "SKILL-MARK", "look_up_sums"},
		brought: []string{"GEMINI.md", "settings.json", "1 skill", "MCP server docs", "mcpServers.docs.env.DOCS_TOKEN"}},
	{name: "opencode", host: "api.anthropic.com", model: "claude-haiku-4-5", files: map[string]string{
		".config/opencode/AGENTS.md":            "Say INSTRUCTION-MARK.\n",
		".config/opencode/skills/sums/SKILL.md": "---\nname: sums\ndescription: SKILL-MARK\n---\nAdd.\n",
		".config/opencode/agents/checker.md":    "---\ndescription: AGENT-MARK\nmode: subagent\n---\nCheck.\n",
		".config/opencode/plugins/server.py":    server,
		".config/opencode/opencode.json": `{"provider": {"anthropic": {"options": {"apiKey": "$K"}}}, ` +
			`"permission": {"bash": "ask"}, ` +
			`"mcp": {"docs": {"type": "local", "command": ["python3", "$H/.config/opencode/plugins/server.py"], ` +
			`"environment": {"DOCS_TOKEN": "$K"}}}}`,
		".local/share/opencode/auth.json": `{"key": "$K"}`,
	}, wants: []string{"INSTRUCTION-MARK", "SKILL-MARK", "AGENT-MARK", "look_up_sums"},
		brought: []string{"AGENTS.md", "opencode.json", "1 skill", "1 agent", "MCP server docs",
			"mcp.docs.environment.DOCS_TOKEN"}},
}

// waits has an agent wait for its MCP server, whose tool the next request offers.
const waits = `
aside: A title
prompts:
  - turns:
      - say: I wait.
        do:
          - shell: timeout 60 sh -c 'until test -e "$HOME/listed"; do sleep 0.1; done'
      - say: It is done.
`

// TestConfig: agents see their user's own instructions, skills and MCP servers in a sandbox, and no login, history or
// key of the user's is in it.
func TestConfig(t *testing.T) {
	l := newLab(t, waits)
	for _, a := range configured {
		t.Run(a.name, func(t *testing.T) {
			if a.name == "opencode" && os.Getenv("COVE_TEST_LONG") == "" {
				t.Skip("claude has the protocol, and TestDocuments of internal/agent/userconfig the files: set COVE_TEST_LONG=1")
			}
			l.models.Forget()
			l.Site(a.host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.models.ServeHTTP(w, r) }))
			for name, content := range a.files {
				l.write(t, name, strings.NewReplacer("$H", l.dir, "$K", hidden).Replace(content))
			}
			dir := l.project(t, "project-"+a.name)
			args := []string{a.name, "--keep", "--agent-config"}
			if a.model != "" {
				args = append(args, "--model", a.model)
			}
			got := l.cove(t, dir, append(args, "say so")...)
			if got.code != 0 || !strings.Contains(got.stdout, "It is done.") {
				t.Fatalf("%+v", got)
			}
			var bodies strings.Builder
			for _, r := range l.models.Requests() {
				bodies.WriteString(r.Body)
			}
			for _, want := range a.wants {
				if !strings.Contains(bodies.String(), want) {
					t.Errorf("%s is in no request", want)
				}
			}
			for _, want := range a.brought {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("%q was not said", want)
				}
			}
			run := l.last(t)
			if info := l.cove(t, dir, "info", run.SandboxName); !strings.Contains(info.stdout+info.stderr, "MCP server docs") {
				t.Errorf("%+v", info)
			}
			if strings.Contains(bodies.String()+got.stdout+got.stderr, hidden) {
				t.Error("the hidden text was told")
			}
			found, n, err := holdings.Search(hidden, filepath.Join(l.dir, "home"), filepath.Join(l.dir, "run"))
			if len(found) != 0 || err != nil || n < 10 {
				t.Errorf("the hidden text is in %q of %d files, %v", found, n, err)
			}
			homes := globbed(t, filepath.Join(l.dir, "home", "workspaces", run.Sandbox, "disk", "home"))
			if len(homes) != 1 {
				t.Fatalf("homes: %q", homes)
			}
			if _, err := os.Stat(filepath.Join(homes[0], "listed")); err != nil {
				t.Errorf("the MCP server was not asked for its tools: %v", err)
			}
			if found, _, err := holdings.Search("INSTRUCTION-MARK", homes[0]); len(found) == 0 || err != nil {
				t.Errorf("nothing was brought to %s: %v", homes[0], err)
			}
			if t.Failed() {
				t.Logf("%s\n%s\n%.3000s", got.stdout, got.stderr, bodies.String())
			}
		})
	}
}
