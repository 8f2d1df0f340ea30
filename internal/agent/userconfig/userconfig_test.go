package userconfig

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
)

const token = "q7Zk29LmVx81TtRw4b6YnP3s"

func declared(t testing.TB, name string) agent.Agent {
	t.Helper()
	a, err := agent.Find(agent.Builtin(), name)
	if err != nil || len(a.Config) == 0 {
		t.Fatal(name, err)
	}
	return a
}

func builtin(t testing.TB, name string) []agent.Own {
	t.Helper()
	return declared(t, name).Config
}

func unset(string) string { return "" }

func choice(t testing.TB, text string) Choice {
	t.Helper()
	c, err := ParseChoice(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChoice(t *testing.T) {
	for text, want := range map[string]string{"": "", "true": strings.Join(Kinds, " "), "all": strings.Join(Kinds, " "),
		"false": "", "none": "", "skills, mcp": "skills mcp"} {
		c := choice(t, text)
		if got := strings.Join(c.kinds, " "); got != want || c.Said != (text != "") || c.Any() != (want != "") {
			t.Errorf("%q: %+v", text, c)
		}
	}
	for _, text := range []string{"everything", "skills,,mcp", "Skills", " "} {
		if _, err := ParseChoice(text); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestKinds: every part of a built-in declaration can be chosen, and none is a place of credentials.
func TestKinds(t *testing.T) {
	for _, a := range agent.Builtin() {
		for _, o := range a.Config {
			if !slices.Contains(Kinds, o.Kind) {
				t.Errorf("%s: %s has the kind %q", a.Name, o.Path, o.Kind)
			}
			for _, never := range []string{".claude/.credentials.json", ".claude/history.jsonl", ".codex/auth.json",
				".codex/history.jsonl", ".gemini/oauth_creds.json", ".gemini/google_accounts.json",
				".local/share/opencode/auth.json", ".claude/projects", ".codex/sessions", ".gemini/tmp"} {
				if ok, _ := filepath.Match(o.Path, never); ok {
					t.Errorf("%s: %s names %s", a.Name, o.Path, never)
				}
			}
		}
	}
}

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{"API_KEY": true, "apiKey": true, "GITHUB_TOKEN": true, "Authorization": true,
		"X-Auth": true, "githubPat": true, "DB_PASSWORD": true, "accessToken": true, "OPENAIAPIKEY": true,
		"SecretAccess": true, "PATH": false, "LEVEL": false, "command": false, "bearer_token_env_var": false,
		"monkey": false, "keybinds": false, "author": false, "pattern": false, "passive": false} {
		if secretName(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

func TestSecretValues(t *testing.T) {
	for value, want := range map[string]bool{token: true, "Bearer abc": true, "https://a:b@x.test/": true,
		"https://x.test/?api_key=1": true, "ghp_" + strings.Repeat("aB3dE6gH9", 4): true,
		"${DOCS_TOKEN}": false, "Bearer $DOCS_TOKEN": false, "{env:TOKEN}": false, "/usr/share/some/long/path/of1": false,
		"https://docs.test/v1/long/address/2026": false, "1": false, "a sentence with a number 1 in it": false,
		"https://a:${P}@x.test/": false} {
		if secretValue(value) != want {
			t.Errorf("%s: %v", value, !want)
		}
	}
	for args, want := range map[string]bool{"--token abc": true, "--api-key=abc": true, "-H Authorization:abc": true,
		"--token $T": false, "--api-key=${K}": false, "-y @scope/server": false, "--token --verbose": false,
		"KEY=abc": true, "https://docs.test/": false} {
		var all []any
		for _, a := range strings.Fields(args) {
			all = append(all, a)
		}
		if secretArgs(all) != want {
			t.Errorf("%s: %v", args, !want)
		}
	}
}

// TestDocuments: of a document the named keys are brought, and of those nothing that looks like a key.
func TestDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		agent, path, choice, in string
		want                    string // in what was made; empty: nothing was
		notes                   []string
	}{
		"settings": {agent: "claude", path: ".claude/settings.json", in: `{"model": "opus", "apiKeyHelper": "x",
			"awsAuthRefresh": "y", "permissions": {"allow": ["Read"], "ask": ["Bash"], "defaultMode": "plan"},
			"env": {"TEA": "green", "MY_TOKEN": "abc", "ANTHROPIC_BASE_URL": "http://x.test", "ODD": "` + token + `"},
			"statusLine": {"type": "command", "command": "/home/ada/.claude/hooks/line.sh"}}`,
			want: `{"env":{"TEA":"green"},"model":"opus","permissions":{"allow":["Read"]},` +
				`"statusLine":{"command":"/home/cove/.claude/hooks/line.sh","type":"command"}}`,
			notes: []string{"env.MY_TOKEN, which looks like a key", "env.ODD, which looks like a key"}},
		"servers of Claude Code": {agent: "claude", path: ".claude.json",
			in: `{"oauthAccount": {"a": "b"}, "projects": {"/x": {}},
			"mcpServers": {"a": {"command": "a", "env": {"TOKEN": "abc", "LEVEL": "2", "REF": "${TOKEN}"}},
			"b": {"command": "b", "args": ["--token", "abc"]}, "c": {"url": "https://u:p@c.test/"},
			"d": {"url": "https://d.test/", "headers": {"Authorization": "Bearer abc", "X-Team": "red"}}}}`,
			want: `{"mcpServers":{"a":{"command":"a","env":{"LEVEL":"2","REF":"${TOKEN}"}},` +
				`"d":{"headers":{"X-Team":"red"},"url":"https://d.test/"}}}`,
			notes: []string{"MCP server b, in which there is what looks like a key",
				"MCP server c, in which there is what looks like a key",
				"mcpServers.a.env.TOKEN, which looks like a key", "mcpServers.d.headers.Authorization, which looks like a key"}},
		"no servers were chosen": {agent: "gemini", path: ".gemini/settings.json", choice: "settings",
			in: `{"mcpServers": {"a": {"command": "a"}}, "ui": {"x": 1}} // mine`, want: `{"ui":{"x":1}}`},
		"servers alone": {agent: "gemini", path: ".gemini/settings.json", choice: "mcp",
			in:   `{"mcpServers": {"a": {"command": "a"},}, "security": {"auth": {}}}`,
			want: `{"mcpServers":{"a":{"command":"a"}}}`},
		"nothing": {agent: "gemini", path: ".gemini/settings.json", in: `{"security": {"auth": {"selectedType": "x"}}}`},
		"Codex": {agent: "codex", path: ".codex/config.toml",
			in: "model = \"m\"\nmodel_provider = \"x\"\napproval_policy = \"never\"\n" +
				"[mcp_servers.d]\nurl = \"https://d.test\"\nbearer_token_env_var = \"D\"\n" +
				"[mcp_servers.d.env_http_headers]\nAuthorization = \"D\"\n" +
				"[mcp_servers.d.http_headers]\nCookie = \"abc\"\n[profiles.p]\nmodel = \"n\"\nmodel_provider = \"x\"\n" +
				"[projects.\"/x\"]\ntrust_level = \"trusted\"\n",
			want: "model = 'm'\n[mcp_servers]\n[mcp_servers.d]\nbearer_token_env_var = 'D'\nurl = 'https://d.test'\n" +
				"[mcp_servers.d.env_http_headers]\nAuthorization = 'D'\n[mcp_servers.d.http_headers]\n" +
				"[profiles]\n[profiles.p]\nmodel = 'n'\n",
			notes: []string{"mcp_servers.d.http_headers.Cookie, which looks like a key"}},
		"OpenCode": {agent: "opencode", path: ".config/opencode/opencode.json",
			in: `{"provider": {"a": {"options": {"apiKey": "abc"}}}, "permission": {"bash": "ask"}, ` +
				`"agent": {"r": {"model": "x/y", "prompt": "p"}}}`,
			want: `{"agent":{"r":{"prompt":"p"}}}`},
	} {
		i := slices.IndexFunc(builtin(t, c.agent), func(o agent.Own) bool {
			ok, _ := filepath.Match(o.Path, c.path)
			return ok && o.Document()
		})
		if i < 0 {
			t.Fatal(name)
		}
		of := builtin(t, c.agent)[i]
		of.Path = c.path
		chosen := c.choice
		if chosen == "" {
			chosen = "all"
		}
		made, _, notes, err := Document(of, choice(t, chosen), Source{Home: "/home/ada"},
			[]string{".claude/hooks"}, []byte(c.in))
		got := string(made)
		if isJSON(c.path) {
			got = strings.Join(strings.Fields(strings.ReplaceAll(got, `": `, `":`)), "")
		} else {
			got = strings.ReplaceAll(got, "\n\n", "\n")
		}
		if err != nil || got != c.want || !slices.Equal(notes, c.notes) {
			t.Errorf("%s: %v\n%s\n%s\n%q", name, err, got, c.want, notes)
		}
	}
}

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct{ path, brought, own, want string }{
		"JSON": {"a.json", `{"a": {"b": 1, "c": 2}, "d": [1]}`, `{"a": {"b": 3}, "e": true}`,
			"{\n  \"a\": {\n    \"b\": 3,\n    \"c\": 2\n  },\n  \"d\": [\n    1\n  ],\n  \"e\": true\n}\n"},
		"TOML": {"a.toml", "a = 1\nb = 2\n", "b = 3\n", "a = 1\nb = 3\n"},
		"text": {"a.md", "mine", "Cove's", "Cove's"},
	} {
		if got, err := Merge(c.path, []byte(c.brought), []byte(c.own)); err != nil || string(got) != c.want {
			t.Errorf("%s: %v %s", name, err, got)
		}
	}
	if _, err := Merge("a.json", []byte(`{`), []byte(`{}`)); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Error(err)
	}
}

// TestRead: what is declared is read; links are followed within the home, and never to a place of credentials.
func TestRead(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string, mode os.FileMode) { write(t, filepath.Join(home, name), text, mode) }
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("dotfiles/claude/CLAUDE.md", "mine", 0o644)
	write("dotfiles/skills/far/SKILL.md", "far", 0o644)
	write(".claude/.credentials.json", "login", 0o600)
	write(".ssh/config", "Host x", 0o600)
	write(".codex/auth.json", "login", 0o600)
	write(".claude/hooks/check.sh", "#!/bin/sh\n", 0o755)
	write(".claude/skills/near/SKILL.md", "near", 0o644)
	write(".claude/skills/near/.env", "K=1", 0o644)
	write(".claude/skills/near/key.md", "ghp_q7Zk29LmVx81TtRw4b6YnP3sJd5HfC0gAeUi", 0o644)
	write(".claude/skills/near/.git/config", "x", 0o644)
	write(".claude/projects/x/a.jsonl", "history", 0o644)
	write(".claude/settings.json", `{"model": `, 0o644)
	outside := filepath.Join(t.TempDir(), "outside.md")
	if err := os.WriteFile(outside, []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	link(filepath.Join(home, "dotfiles/claude/CLAUDE.md"), ".claude/CLAUDE.md")
	link("../../dotfiles/skills/far", ".claude/skills/far")
	link("../../.ssh", ".claude/skills/ssh")
	link("../../.codex", ".claude/skills/codex")
	link("..", ".claude/skills/all")
	link(".credentials.json", ".claude/login.md")
	link(outside, ".claude/outside.md")
	link("nowhere", ".claude/nowhere.md")

	b, err := Read(home, unset, declared(t, "claude"), choice(t, "all"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range b.Files {
		got[f.Path] = fmt.Sprintf("%o %s", f.Mode, f.Data)
	}
	want := map[string]string{".claude/CLAUDE.md": "600 mine", ".claude/skills/far/SKILL.md": "600 far",
		".claude/skills/near/SKILL.md": "600 near", ".claude/hooks/check.sh": "700 #!/bin/sh\n"}
	if !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if words := strings.Join(b.Brought, ", "); words != "CLAUDE.md, 2 skills, 1 hook" || b.From != "~/.claude" {
		t.Errorf("%q from %s", words, b.From)
	}
	for _, want := range []string{"skills/ssh: .ssh holds credentials", "skills/codex: it leads into .codex",
		"skills/all: .claude holds credentials", "login.md: .claude holds credentials",
		"outside.md: it leads out of your home", "nowhere.md: it leads nowhere", "near/.env, which may hold keys",
		"near/key.md, in which there is what looks like a key", "settings.json: it is not JSON"} {
		if !slices.ContainsFunc(b.LeftOut, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%q was not said: %q", want, b.LeftOut)
		}
	}

	for i := range MaxFiles {
		write(fmt.Sprintf(".claude/commands/%d.md", i), "x", 0o644)
	}
	if _, err := Read(home, unset, declared(t, "claude"), choice(t, "all")); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("too many: %v", err)
	}
	if b, err := Read(home, unset, declared(t, "claude"), choice(t, "hooks")); err != nil || len(b.Files) != 1 {
		t.Errorf("hooks alone: %+v %v", b, err)
	}
}

// TestPlaces: an agent's variables say where its configuration is, and what is elsewhere then is not read.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		variable, from string
		files          []string // below the directory of the variable
		brought        string   // the paths that they have in a sandbox
		text, want     string   // of the last file
	}{
		"claude": {variable: "CLAUDE_CONFIG_DIR", from: "$D",
			files: []string{"CLAUDE.md", "skills/sums/SKILL.md", ".claude.json"}, brought: ".claude.json .claude/CLAUDE.md " +
				".claude/skills/sums/SKILL.md", text: `{"mcpServers":{"a":{"command":"$D/hooks/a"}}}`,
			want: cove.Home + "/.claude/hooks/a"},
		"codex": {variable: "CODEX_HOME", from: "$D", files: []string{"AGENTS.md", "hooks/a.sh", "config.toml"},
			brought: ".codex/AGENTS.md .codex/config.toml .codex/hooks/a.sh",
			text:    "[mcp_servers.a]\ncommand = \"$D/hooks/a.sh\"\n", want: cove.Home + "/.codex/hooks/a.sh"},
		"gemini": {variable: "GEMINI_CLI_HOME", from: "$D/.gemini",
			files:   []string{".gemini/GEMINI.md", ".agents/skills/a/SKILL.md"},
			brought: ".agents/skills/a/SKILL.md .gemini/GEMINI.md", text: "mine", want: "mine"},
		"opencode": {variable: "XDG_CONFIG_HOME", from: "$D/opencode",
			files:   []string{"opencode/AGENTS.md", "opencode/agents/a.md"},
			brought: ".config/opencode/AGENTS.md .config/opencode/agents/a.md", text: "mine", want: "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			home, elsewhere := t.TempDir(), t.TempDir()
			of := declared(t, name)
			write(t, filepath.Join(home, strings.ReplaceAll(of.Config[0].Path, "*", "")), "not this", 0o644)
			for _, f := range c.files {
				text := "mine"
				if f == c.files[len(c.files)-1] {
					text = strings.ReplaceAll(c.text, "$D", elsewhere)
				}
				write(t, filepath.Join(elsewhere, f), text, 0o644)
			}
			write(t, filepath.Join(elsewhere, "secret/id_rsa"), "key", 0o600)
			out := filepath.Join(elsewhere, filepath.Dir(c.files[1]), "out")
			if err := os.Symlink(filepath.Join(elsewhere, "secret"), out); err != nil {
				t.Fatal(err)
			}
			getenv := func(variable string) string { return map[string]string{c.variable: elsewhere}[variable] }
			b, err := Read(home, getenv, of, choice(t, "all"))
			var paths, texts []string
			for _, f := range b.Files {
				paths, texts = append(paths, f.Path), append(texts, string(f.Data))
			}
			slices.Sort(paths)
			if err != nil || strings.Join(paths, " ") != c.brought || !strings.Contains(strings.Join(texts, ""), c.want) {
				t.Errorf("%v %q %q %q", err, paths, texts, b.LeftOut)
			}
			if b.From != strings.ReplaceAll(c.from, "$D", elsewhere) {
				t.Errorf("from %s", b.From)
			}
			if len(b.LeftOut) != 1 || !strings.HasPrefix(b.LeftOut[0], elsewhere) ||
				strings.Contains(b.LeftOut[0], "nowhere") {
				t.Errorf("the link that leads elsewhere: %q", b.LeftOut)
			}
			b, err = Read(home, func(string) string { return "here" }, of, choice(t, "all"))
			if err != nil || len(b.LeftOut) == 0 || b.LeftOut[0] != c.variable+", which names no directory" {
				t.Errorf("a relative directory: %v %q", err, b.LeftOut)
			}
		})
	}
}

// TestPlugins: installed plug-ins are brought where they are chosen, with their paths as they are in a sandbox.
func TestPlugins(t *testing.T) {
	home := t.TempDir()
	at := ".claude/plugins/cache/market/sums/1.0"
	write(t, filepath.Join(home, at, "skills/add/SKILL.md"), "mine", 0o644)
	write(t, filepath.Join(home, at, "run.sh"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(home, at, ".env"), "K=1", 0o644)
	write(t, filepath.Join(home, ".claude/plugins/installed_plugins.json"), `{"version": 2, "other": 1, "plugins": `+
		`{"sums@market": [{"installPath": "`+home+"/"+at+`"}]}}`, 0o644)
	b, err := Read(home, unset, declared(t, "claude"), choice(t, "plugins"))
	got := map[string]string{}
	for _, f := range b.Files {
		got[f.Path] = fmt.Sprintf("%o %s", f.Mode, strings.Join(strings.Fields(string(f.Data)), ""))
	}
	want := map[string]string{at + "/skills/add/SKILL.md": "600 mine", at + "/run.sh": "700 #!/bin/sh",
		".claude/plugins/installed_plugins.json": `600 {"plugins":{"sums@market":[{"installPath":"` + cove.Home + "/" + at +
			`"}]},"version":2}`}
	if err != nil || !maps.Equal(got, want) || !slices.Equal(b.Brought, []string{"1 plugin"}) {
		t.Errorf("%v %q %q", err, got, b.Brought)
	}
	if b, err := Read(home, unset, declared(t, "claude"), choice(t, "skills")); err != nil || len(b.Files) > 0 {
		t.Errorf("not chosen: %+v %v", b, err)
	}
}

// TestHasHooks: a file of hooks is one, and a document that has the key.
func TestHasHooks(t *testing.T) {
	of := declared(t, "codex").Config
	for name, c := range map[string]struct {
		path, text string
		want       bool
	}{
		"its file":      {".codex/hooks.json", `{"hooks": {}}`, true},
		"a program":     {".codex/hooks/a.sh", "", true},
		"a document":    {".codex/config.toml", "[[hooks.Stop]]\nmatcher = 'x'\n", true},
		"none":          {".codex/config.toml", "model = 'x'\n", false},
		"no document":   {".codex/config.toml", "hooks", false},
		"another file":  {".codex/AGENTS.md", "hooks", false},
		"another place": {"hooks.json", `{"hooks": {}}`, false},
	} {
		if HasHooks(of, c.path, []byte(c.text)) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// write makes a file and its directory.
func write(t *testing.T, at, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// FuzzJSON and FuzzTOML: nothing makes a document's filter fail, its result is a document again, and a second time
// nothing more is taken out.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"mcpServers": {"a": {"command": "x", "args": ["--token", "t"], "env": {"K": "v"}}}, ` +
		`"ui": null, /* c */}`))
	f.Add([]byte(`{"mcpServers": [1], "context": {"key": "x"}, "hooks": {"a": [{"token": "x"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) { again(t, "gemini", ".gemini/settings.json", data) })
}

func FuzzTOML(f *testing.F) {
	f.Add([]byte("model = \"m\"\n[mcp_servers.a]\ncommand = \"x\"\nargs = [\"--token\", \"t\"]\n" +
		"[[hooks.a]]\nkey = 2026-01-01\n"))
	f.Fuzz(func(t *testing.T, data []byte) { again(t, "codex", ".codex/config.toml", data) })
}

func again(t *testing.T, name, path string, data []byte) {
	all := builtin(t, name)
	of := all[slices.IndexFunc(all, func(o agent.Own) bool { return o.Path == path })]
	once, _, _, err := Document(of, choice(t, "all"), Source{Home: "/home/ada"}, []string{".gemini", ".codex"}, data)
	if err != nil || once == nil {
		return
	}
	twice, _, notes, err := Document(of, choice(t, "all"), Source{Home: "/home/ada"}, []string{".gemini", ".codex"}, once)
	if err != nil || len(notes) > 0 || string(twice) != string(once) {
		t.Errorf("%v %q\n%s\n%s", err, notes, once, twice)
	}
}

// TestKeysIn: a caller's own file of MCP servers is not filtered, and keys in it are named.
func TestKeysIn(t *testing.T) {
	header := "Bearer sk-ant-api03-0123456789012345678901234567890123456789"
	described := map[string]any{"mcpServers": map[string]any{
		"docs": map[string]any{"url": "https://docs.example.com", "headers": map[string]any{"Authorization": header}},
		"own":  map[string]any{"command": "node", "args": []any{"server.js"}, "env": map[string]any{"MODE": "test"}},
	}}
	if got, want := KeysIn(described), []string{"mcpServers.docs.headers.Authorization"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	servers := described["mcpServers"].(map[string]any)["docs"].(map[string]any)["headers"].(map[string]any)
	if servers["Authorization"] != header {
		t.Error("the description was changed")
	}
	if got := KeysIn(nil); got != nil {
		t.Errorf("nothing described: %q", got)
	}
}
