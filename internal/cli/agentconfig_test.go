package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// requested returns what of a configuration was sent for the sandboxes of a list.
func requested(t *testing.T, listed string) (paths string) {
	t.Helper()
	var all api.SandboxList
	if err := json.Unmarshal([]byte(listed), &all); err != nil {
		t.Fatalf("%v: %s", err, listed)
	}
	for _, s := range all.Sandboxes {
		var req api.SandboxRequest
		if json.Unmarshal([]byte(s.Labels["request"]), &req) != nil || req.AgentConfig == nil {
			continue
		}
		for _, f := range req.AgentConfig.Files {
			paths += f.Path + " "
		}
	}
	return paths
}

// withConfig makes a configuration of Claude Code and of Codex in the home.
func withConfig(t *testing.T, home string) {
	t.Helper()
	for name, text := range map[string]string{".claude/CLAUDE.md": "mine", ".claude/skills/sums/SKILL.md": "mine",
		".codex/AGENTS.md": "mine", ".codex/config.toml": "personality = 'x'\n"} {
		at := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	claudeFiles = ".claude/CLAUDE.md .claude/skills/sums/SKILL.md "
	ofConfig    = "[y]es, [n]o, [a]lways: "
)

// TestConfigIsAskedFor: at a terminal there is a question; "yes" is for once, and "no" and "always" are remembered.
func TestConfigIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		name, typed string
		code        int
		sent, kept  string // what was sent, and what the file of answers says
	}{
		{"yes", "what?\nY\n", 0, claudeFiles, ""},
		{"no", "no\n", 0, "", "claude never\n"},
		{"always", "a\n", 0, claudeFiles, "claude always\n"},
		{"leave", "\x04", 125, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := ""
			make := []string{"new", "--empty", "--agent", "claude", "--no-attach"}
			s := preparedAtTerminal(t, 100, func(dir string) []string {
				home = dir
				withConfig(t, dir)
				return nil
			}, make...)
			shown := ""
			for line := range strings.Lines(c.typed) {
				shown += s.expect(ofConfig)
				s.typed(line)
			}
			s.ends(c.code)
			if want := "of Claude Code of your own in ~/.claude: CLAUDE.md, 1 skill"; !strings.Contains(shown, want) {
				t.Errorf("%q, want %q", shown, want)
			}
			if c.name == "yes" && !strings.Contains(shown, `"what?" is none of y, n and a`) {
				t.Errorf("%q", shown)
			}
			if sent := requested(t, commandOn(s, "list", "--json")); sent != c.sent {
				t.Errorf("sent %q, want %q", sent, c.sent)
			}
			kept, _ := os.ReadFile(filepath.Join(home, "home", "agent-config"))
			if string(kept) != c.kept {
				t.Errorf("kept %q, want %q", kept, c.kept)
			}
			if c.kept == "" {
				return
			}
			// A second time nothing is asked: it would wait for an answer.
			onSameServer(s, append(make, "--name", "again")...).ends(0)
			if sent := requested(t, commandOn(s, "list", "--json")); sent != c.sent+c.sent {
				t.Errorf("again: sent %q", sent)
			}
		})
	}
}

// TestConfigOfFlagAndProfile: what the flag says goes before the profile, and neither asks.
func TestConfigOfFlagAndProfile(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"the flag", []string{"--agent", "claude", "--agent-config"}, claudeFiles},
		{"some kinds", []string{"--agent", "claude", "--agent-config=skills"}, ".claude/skills/sums/SKILL.md "},
		{"none", []string{"--agent", "claude", "--agent-config=none"}, ""},
		{"of the profile's agent", []string{"--profile", "mine", "--agent-config"}, ".codex/AGENTS.md .codex/config.toml "},
		{"the profile alone", []string{"--profile", "mine"}, ".codex/AGENTS.md "},
		{"the profile", []string{"--profile", "mine", "--agent", "codex"}, ".codex/AGENTS.md "},
		{"the profile, of another agent", []string{"--profile", "mine", "--agent", "claude"}, ".claude/CLAUDE.md "},
		{"none of the profile's", []string{"--profile", "quiet", "--agent", "codex"}, ""},
		{"the flag over the profile", []string{"--profile", "mine", "--agent", "codex", "--agent-config=none"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := preparedAtTerminal(t, 100, func(dir string) []string {
				withConfig(t, dir)
				return nil
			}, append([]string{"new", "--empty", "--no-attach"}, c.args...)...)
			s.ends(0)
			if sent := requested(t, commandOn(s, "list", "--json")); sent != c.want {
				t.Errorf("sent %q, want %q", sent, c.want)
			}
		})
	}
}
