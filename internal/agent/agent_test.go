package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func builtinAgent(t testing.TB, name string) Agent {
	t.Helper()
	a, err := Find(Builtin(), name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func decode(text string) ([]Agent, error) {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		return nil, err
	}
	return Decode(n.Content[0])
}

// TestBuiltin: every built-in agent has a package or comes with Cove, and a provider with known rules.
func TestBuiltin(t *testing.T) {
	presets, err := policy.Presets()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range Builtin() {
		names = append(names, a.Name)
		if a.Package.Npm == "" && a.Package.Beside == "" {
			t.Errorf("%s comes from nowhere", a.Name)
		}
		if !a.Builtin || !slices.ContainsFunc(presets, func(p policy.Preset) bool { return p.Name == a.Provider }) {
			t.Errorf("%s: no rules for %q", a.Name, a.Provider)
		}
		o, err := a.Outfit(Layer{Version: "1.2.3", Source: "/layers/x"}, Choice{})
		if err != nil || o.Path != "/opt/cove/agents/"+a.Name+"/bin" {
			t.Errorf("%s: %+v, %v", a.Name, o, err)
		}
		for _, f := range o.Files {
			if strings.HasSuffix(f.Path, ".json") && !json.Valid([]byte(f.Content)) {
				t.Errorf("%s of %s is no JSON:\n%s", f.Path, a.Name, f.Content)
			}
		}
	}
	if fmt.Sprint(names) != "[claude codex gemini opencode worker]" {
		t.Error(names)
	}
}

func TestCommands(t *testing.T) {
	schema := []byte(`{"type":"object"}`)
	servers := []byte(`{"mcpServers": {"notes": {"command": "python3", "args": ["n.py"]},
		"docs": {"type": "http", "url": "https://docs.test/mcp", "headers": {"X-Team": "a"}}}}`)
	for _, c := range []struct {
		agent string
		task  Task
		args  string // joined by |
		stdin string
		files map[string]string
		code  cove.Code
	}{
		{agent: "claude", task: Task{Prompt: "fix it"},
			args: "claude|-p|--output-format|stream-json|--verbose|--dangerously-skip-permissions", stdin: "fix it"},
		{agent: "claude", task: Task{Prompt: "go {model} on", Model: "m", Session: "s-1", Turns: 7,
			Instructions: "be {brief}", Schema: schema}, stdin: "go {model} on",
			args: `claude|-p|--output-format|stream-json|--verbose|--dangerously-skip-permissions|--model|m|--max-turns|7|` +
				`--append-system-prompt|be {brief}|--json-schema|{"type":"object"}|--resume|s-1`},
		{agent: "codex", task: Task{Prompt: "fix", Model: "m", Session: "s-1", Instructions: "say \"hi\"\n", Schema: schema,
			Dir: "/run/t"}, stdin: "fix", files: map[string]string{"/run/t/schema.json": string(schema)},
			args: `codex|exec|--json|--skip-git-repo-check|--dangerously-bypass-approvals-and-sandbox|-m|m|-c|` +
				`developer_instructions="say \"hi\"\n"|--output-schema|/run/t/schema.json|resume|s-1|-`},
		{agent: "codex", task: Task{Prompt: "fix", Turns: 3}, code: cove.Unsupported},
		{agent: "gemini", task: Task{Prompt: "fix", Model: "m", Session: "s-1"},
			args: "gemini|--output-format|stream-json|--yolo|--model|m|--resume|s-1", stdin: "fix"},
		{agent: "gemini", task: Task{Prompt: "fix", Instructions: "be brief"}, code: cove.Unsupported},
		{agent: "opencode", task: Task{Prompt: "fix {options}", Model: "m", Session: "s-1"},
			args: "opencode|run|--format|json|--thinking|--model|anthropic/m|--session|s-1", stdin: "fix {options}"},
		{agent: "opencode", task: Task{Prompt: "fix", Schema: schema}, args: "opencode|run|--format|json|--thinking",
			stdin: "fix\n\nAnswer with one JSON document and nothing else, valid by this JSON Schema:\n" + string(schema)},
		{agent: "worker", task: Task{Prompt: "fix", Model: "m", Session: "s1", Turns: 7, Schema: schema, Dir: "/run/t"},
			files: map[string]string{"/run/t/prompt": "fix", "/run/t/schema.json": string(schema)},
			args: "cove-worker|agentic|--prompt-file|/run/t/prompt|--model|m|--max-turns|7|--schema|/run/t/schema.json|" +
				"--resume=s1"},
		{agent: "worker", task: Task{Prompt: "fix", Dir: "/run/t"}, args: "cove-worker|agentic|--prompt-file|/run/t/prompt",
			files: map[string]string{"/run/t/prompt": "fix"}},
		{agent: "claude", task: Task{Prompt: " \n"}, code: cove.InvalidArgument},
		{agent: "claude", task: Task{Prompt: "fix", Dir: "/run/t", Extras: Extras{
			AllowedTools: []string{"Read", "Bash(ls:*)"}, DisallowedTools: []string{"WebFetch"}, MCPConfig: servers}},
			stdin: "fix", files: map[string]string{"/run/t/mcp.json": string(servers)},
			args: "claude|-p|--output-format|stream-json|--verbose|--allowedTools|Read,Bash(ls:*)|--disallowedTools|WebFetch|" +
				"--mcp-config|/run/t/mcp.json|--permission-mode|dontAsk"},
		{agent: "claude", task: Task{Prompt: "fix", Extras: Extras{PermissionMode: "plan"}}, stdin: "fix",
			args: "claude|-p|--output-format|stream-json|--verbose|--permission-mode|plan"},
		{agent: "claude", task: Task{Prompt: "fix", Extras: Extras{PermissionMode: "yolo"}}, code: cove.InvalidArgument},
		{agent: "codex", task: Task{Prompt: "fix", Extras: Extras{MCPConfig: servers}}, stdin: "fix",
			args: `codex|exec|--json|--skip-git-repo-check|--dangerously-bypass-approvals-and-sandbox|-c|` +
				`mcp_servers={"docs"={"http_headers"={"X-Team"="a"},"url"="https://docs.test/mcp"},` +
				`"notes"={"args"=["n.py"],"command"="python3"}}|-`},
		{agent: "codex", task: Task{Prompt: "fix", Hooks: true, Session: "s1"}, stdin: "fix",
			args: "codex|exec|--json|--skip-git-repo-check|--dangerously-bypass-approvals-and-sandbox|" +
				"--dangerously-bypass-hook-trust|resume|s1|-"},
		{agent: "gemini", task: Task{Prompt: "fix", Hooks: true}, stdin: "fix",
			args: "gemini|--output-format|stream-json|--yolo"},
		{agent: "codex", task: Task{Prompt: "fix", Extras: Extras{PermissionMode: "plan"}}, code: cove.Unsupported},
		{agent: "codex", task: Task{Prompt: "fix", Extras: Extras{AllowedTools: []string{"x"}}}, code: cove.Unsupported},
		{agent: "gemini", task: Task{Prompt: "fix", Extras: Extras{AllowedTools: []string{"read_file", "glob"}}},
			args:  "gemini|--output-format|stream-json|--allowed-tools|read_file,glob|--approval-mode|default",
			stdin: "fix"},
		{agent: "gemini", task: Task{Prompt: "fix", Extras: Extras{MCPConfig: servers}}, code: cove.Unsupported},
		{agent: "opencode", task: Task{Prompt: "fix", Extras: Extras{PermissionMode: "plan"}}, code: cove.Unsupported},
		{agent: "worker", task: Task{Prompt: "fix", Extras: Extras{DisallowedTools: []string{"x"}}}, code: cove.Unsupported},
	} {
		got, err := builtinAgent(t, c.agent).HeadlessCommand(c.task)
		if cove.ErrorCode(err) != c.code {
			t.Errorf("%s %+v: %v", c.agent, c.task, err)
		}
		if c.code == "" && (strings.Join(got.Args, "|") != c.args || got.Stdin != c.stdin ||
			fmt.Sprint(got.Files) != fmt.Sprint(c.files)) {
			t.Errorf("%s %+v:\n%s\n%q %v", c.agent, c.task, strings.Join(got.Args, "|"), got.Stdin, got.Files)
		}
	}
	o, err := builtinAgent(t, "codex").Outfit(Layer{}, Choice{Hooks: true})
	if err != nil || !slices.Contains(o.Screen, "--dangerously-bypass-hook-trust") {
		t.Errorf("a screen with hooks: %q %v", o.Screen, err)
	}
	c, err := builtinAgent(t, "claude").InteractiveCommand(Task{Model: "m", Prompt: "not this"})
	if err != nil || strings.Join(c.Args, "|") != "claude|--dangerously-skip-permissions|--model|m" || c.Stdin != "" {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := builtinAgent(t, "worker").InteractiveCommand(Task{}); cove.ErrorCode(err) != cove.Unsupported {
		t.Error(err)
	}
}

// TestOutfit: the agent's own provider is reached by its own address, with a placeholder; any other through the
// gateway.
func TestOutfit(t *testing.T) {
	providers, err := model.Parse("p.yaml",
		[]byte("providers:\n- {name: local, kind: openai, base_url: 'http://localhost:11434/v1'}\n- {name: anthropic, "+
			"base_url: 'https://models.example.com/v1'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	known, err := model.Known()
	if err != nil {
		t.Fatal(err)
	}
	provider := func(all []model.Provider, name string) *model.Provider {
		p, err := model.Choose(all, name)
		if err != nil {
			t.Fatal(err)
		}
		return p[0]
	}
	for _, c := range []struct {
		name, agent string
		choice      Choice
		network     string // as JSON
		in          string // of a file
	}{
		{"own", "claude", Choice{},
			`{"enabled":true,"policies":[{"source":"agent claude","text":"presets: [anthropic]\nrules:\n  - {hosts: ` +
				`\"api.anthropic.com\", paths: \"/api/claude_code/**\", action: deny, note: \"Claude Code does ` +
				`without\"}\n"}],"mode":"limited","credentials":["anthropic"]}`, `"/workspace"`},
		{"own, named", "claude", Choice{Provider: provider(known, "anthropic"), Hosts: []string{"docs.example.com"},
			Credentials: []string{"github"}, WorkDir: "/src"},
			`{"enabled":true,"policies":[{"source":"agent claude","text":"presets: [anthropic]\nrules:\n  - {hosts: ` +
				`\"api.anthropic.com\", paths: \"/api/claude_code/**\", action: deny, note: \"Claude Code does ` +
				`without\"}\n"}],"mode":"limited","allow":["docs.example.com"],"credentials":["github","anthropic"]}`, `"/src"`},
		{"own, at the gateway", "codex", Choice{Provider: provider(known, "openai"), Gateway: true},
			`{"enabled":true,"mode":"limited","providers":["openai"]}`, `base_url = "http://gateway.cove.internal/proxy/v1"`},
		{"own, with a token inside", "codex", Choice{Provider: provider(known, "openai"), Tokens: true},
			`{"enabled":true,"policies":[{"source":"agent codex","text":"presets: [openai]\n"}],"mode":"limited"}`,
			`base_url = "https://api.openai.com/v1"`},
		{"own name, another's address", "claude", Choice{Provider: provider(providers, "anthropic")},
			`{"enabled":true,"mode":"limited","providers":["anthropic"]}`, ""},
		{"another", "codex", Choice{Provider: provider(providers, "local"), Model: "small"},
			`{"enabled":true,"mode":"limited","providers":["local"]}`, "model = \"small\"\n"},
		{"another of OpenAI's kind", "opencode", Choice{Provider: provider(providers, "local"), Model: "small"},
			`{"enabled":true,"mode":"limited","providers":["local"]}`,
			`"small": {}}, "name": "local", "npm": "@ai-sdk/openai-compatible",
  "options": {"baseURL": "http://gateway.cove.internal/proxy/v1", "apiKey": "{env:OPENAI_API_KEY}"}}}}`},
		{"codex", "codex", Choice{},
			`{"enabled":true,"policies":[{"source":"agent codex","text":"presets: ` +
				`[openai]\n"}],"mode":"limited","credentials":["openai"]}`, `base_url = "https://api.openai.com/v1"`},
	} {
		o, err := builtinAgent(t, c.agent).Outfit(Layer{}, c.choice)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if n, _ := json.Marshal(o.Network); string(n) != c.network {
			t.Errorf("%s: %s", c.name, n)
		}
		if !slices.ContainsFunc(o.Files, func(f File) bool { return strings.Contains(f.Content, c.in) }) {
			t.Errorf("%s: %v", c.name, o.Files)
		}
		if o.Path != "" || o.Layers != nil {
			t.Errorf("%s: a layer that is not there is shown: %+v", c.name, o)
		}
		for _, f := range o.Files {
			if strings.HasSuffix(f.Path, ".json") && !json.Valid([]byte(f.Content)) {
				t.Errorf("%s: %s is no JSON:\n%s", c.name, f.Path, f.Content)
			}
		}
	}
	if _, err := builtinAgent(t, "gemini").Outfit(Layer{},
		Choice{Gateway: true}); cove.ErrorCode(err) != cove.Unsupported {
		t.Error(err)
	}
	if _, err := builtinAgent(t, "codex").Outfit(Layer{}, Choice{Provider: provider(known, "gemini")}); cove.ErrorCode(
		err) != cove.Unsupported || !strings.Contains(cove.ErrorHint(err), "needs one that has responses") {
		t.Error(err)
	}
	if _, err := builtinAgent(t, "claude").Outfit(Layer{},
		Choice{Provider: provider(providers, "local"), Tokens: true}); cove.ErrorCode(err) != cove.Unsupported {
		t.Error(err)
	}
	plain, err := decode("[{name: plain, headless: [plain, '{prompt}'], prompt: argument}]")
	if err != nil {
		t.Fatal(err)
	}
	if o, err := plain[0].Outfit(Layer{}, Choice{}); err != nil || o.Network.Enabled {
		t.Errorf("%+v %v", o, err)
	}
	if c, err := plain[0].HeadlessCommand(Task{Prompt: "fix {options}"}); err != nil ||
		!slices.Equal(c.Args, []string{"plain", "fix {options}"}) || c.Stdin != "" {
		t.Errorf("%+v %v", c, err)
	}
}

// TestWithTokens: the program finds tokens in its variables, and its arguments are unchanged; it does not start if a
// token is unreadable.
func TestWithTokens(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"A_TOKEN": "one's two\n", "B": "$(id)"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func() (string, error) {
		all, err := decode(
			`[{name: plain, headless: [sh, -c, 'printf "%s|" "$A_TOKEN" "$B" "$@"', x, "{options}", "{prompt}"], prompt: ` +
				`argument, interactive: [plain], options: {model: [-m, "{model}"]}}]`)
		if err != nil {
			t.Fatal(err)
		}
		a := all[0].WithTokens()
		c, err := a.HeadlessCommand(Task{Prompt: "fix 'it'", Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if screen, err := a.InteractiveCommand(Task{}); err != nil || len(screen.Args) != 5 || screen.Args[4] != "plain" {
			t.Errorf("%+v, %v", screen, err)
		}
		for i := range c.Args {
			c.Args[i] = strings.ReplaceAll(c.Args[i], cove.Tokens, dir)
		}
		out, err := exec.CommandContext(t.Context(), c.Args[0], c.Args[1:]...).Output()
		return string(out), err
	}
	if out, err := run(); err != nil || out != "one's two|$(id)|-m|m|fix 'it'|" {
		t.Errorf("%q, %v", out, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "C"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err == nil || out != "" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestDecode(t *testing.T) {
	all, err := decode(`
- name: mine
  headless: [mine, run]
  package: {npm: "@me/mine", version: 1.2.3-rc.1}
  env: {MINE: "1"}
  files: [{path: .mine/config, content: "{{quote .WorkDir}}"}]
  hosts: [docs.example.com]
`)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if a := all[0]; a.Title != "mine" || a.Program != "mine" || a.Prompt != ByStdin ||
		a.Output != FormatText || a.Builtin {
		t.Errorf("%+v", a)
	}
	for text, want := range map[string]string{
		"{}":                               "list of agents",
		"[{name: a, headless: a}]":         "line 1: here belongs a list",
		"[{name: a, headless: [a], x: 1}]": `line 1: there is no key "x" here`,
		"- name: a\n  headless: [a]\n  package:\n    npn: x": `line 4: there is no key "npn" ` +
			`here; there are npm, version, megabytes, program`,
		"[{name: a, headless: [a], package: {npm: a, version: 1.0.0, megabytes: -1}}]": "package.megabytes is",
		"[{name: a, headless: [a], package: {megabytes: 1}}]":                          "package.megabytes is",
		"- name: A\n  headless: [a]":                                                   "line 1: the agent \"A\": a name has",
		"- name: a":                                                                    "needs headless, interactive or both",
		"[{name: a, headless: [a], program: x/y}]":                                     "file name",
		"[{name: a, headless: [a], package: {npm: a}}]":                                "npm, its name, and version",
		"[{name: a, headless: [a], package: {npm: a, version: ^1.0.0}}]":               "no version",
		"[{name: a, headless: [a], package: {npm: '-g a', version: 1.0.0}}]":           "no name of a package",
		"[{name: a, headless: [a], package: {npm: a, version: 1.0.0, program: ../x}}]": "below the package",
		"[{name: a, headless: [a], prompt: mail}]":                                     "prompt is",
		"[{name: a, headless: [a], output: xml}]":                                      "output is",
		"[{name: a, headless: [a], prompt: argument}]":                                 "{prompt}",
		"[{name: a, headless: [a], prompt: file}]":                                     "{prompt_file}",
		"[{name: a, headless: [a], files: [{path: ../x}]}]":                            "below the home",
		"[{name: a, headless: [a], files: [{path: x, content: '{{'}]}]":                "content of the file x",
		"[{name: a, headless: [a], env: {A-B: c}}]":                                    "no name of a variable",
		"[{name: a, headless: [a], hosts: ['a b']}]":                                   "hosts",
		"[{name: a, headless: [a], does_without: ['a b/c']}]":                          "does_without",
		"[{name: a, headless: [a], provider: 'A B'}]":                                  "provider",
		"[{name: a, headless: [a]}, {name: a, headless: [b]}]":                         "two agents",
		"[&x {name: a, headless: [a]}, *x]":                                            "anchors",
		"[{name: a, headless: [{x: y}]}]":                                              "one value",
		"[{name: [a], headless: [a]}]":                                                 "one value",
	} {
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	merged := Merge([]Agent{{Name: "claude", Title: "mine"}, {Name: "new"}})
	if a, _ := Find(merged, "claude"); a.Title != "mine" || len(merged) != len(Builtin())+1 {
		t.Errorf("%d agents, %+v", len(merged), a)
	}
	if _, err := Find(merged, "nobody"); cove.ErrorCode(err) != cove.NotFound {
		t.Error(err)
	}
}

// FuzzDecode: every accepted declaration is usable.
func FuzzDecode(f *testing.F) {
	f.Add(string(builtin))
	f.Add("[{name: mine, headless: [mine, '{prompt}'], prompt: argument, files: [{path: a, content: '{{.Model}}'}]}]")
	f.Fuzz(func(t *testing.T, text string) {
		var n yaml.Node
		if yaml.Unmarshal([]byte(text), &n) != nil || len(n.Content) == 0 {
			return
		}
		all, err := Decode(n.Content[0])
		if err != nil {
			return
		}
		for _, a := range all {
			if len(a.Headless) > 0 {
				if c, err := a.HeadlessCommand(Task{Prompt: "p"}); err != nil || len(c.Args) == 0 {
					t.Errorf("%+v: %v", a, err)
				}
			}
			a.Outfit(Layer{Source: "/x"}, Choice{})
		}
	})
}

// TestPermission: what an agent needs is added to what is asked of a network, and to none where none is wanted.
func TestEquip(t *testing.T) {
	o := Outfit{
		Network: cove.Network{
			Enabled: true, Mode: cove.NetworkLimited, Allow: []string{"needed.example"}, Credentials: []string{"anthropic"},
			Providers: []string{"own"},
		},
		Env: map[string]string{"A": "agent", "B": "agent"}, Layers: []cove.Layer{{Name: "x/1", Target: "/opt/x"}},
		Path: "/opt/x/bin", Screen: []string{"x"},
	}
	if got := o.Equip(cove.Spec{}).Network; got == nil || got.Allow[0] != "needed.example" {
		t.Errorf("nothing asked: %+v", got)
	}
	if got := o.Equip(cove.Spec{Network: &cove.Network{}}).Network; got.Enabled {
		t.Errorf("a network for who wants none: %+v", got)
	}
	asked := cove.Spec{
		Network: &cove.Network{
			Enabled: true, Mode: cove.NetworkOpen, Allow: []string{"asked.example"}, Credentials: []string{"github"},
			Providers: []string{"team"},
		},
		Env: map[string]string{"A": "asked"}, Layers: []cove.Layer{{Name: "other/1", Target: "/opt/other"}},
	}
	got := o.Equip(asked)
	if n := got.Network; n.Mode != "open" || len(n.Allow) != 2 || len(n.Credentials) != 2 || n.Providers[0] != "team" ||
		len(asked.Network.Allow) != 1 {
		t.Errorf("both: %+v", n)
	}
	if got.Env["A"] != "asked" || got.Env["B"] != "agent" || got.Path != o.Path || !slices.Equal(got.Screen, o.Screen) {
		t.Errorf("both: %+v", got)
	}
	if !slices.Equal(got.Layers, o.Layers) {
		t.Errorf("the agent's program is not shown: %+v", got.Layers)
	}
	if got := (Outfit{}).Equip(asked).Network; got != asked.Network {
		t.Errorf("an agent that needs nothing: %+v", got)
	}
	if got := (Outfit{}).Equip(cove.Spec{}).Network; got != nil {
		t.Errorf("an agent that needs nothing, where nothing is asked: %+v", got)
	}
}
