package agent

import (
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestWithKey: of the agents with a key, one that is installed goes before one that can be, and that before Cove's own.
func TestWithKey(t *testing.T) {
	claude := api.Agent{Name: "claude", Package: "c", Provider: "anthropic"}
	codex := api.Agent{Name: "codex", Package: "o", Provider: "openai", Ready: true}
	worker := api.Agent{Name: "worker", Provider: "anthropic", Ready: true}
	own := api.Agent{Name: "own", Ready: true}
	key := func(name, state string) api.Credential { return api.Credential{Name: name, State: state} }
	for want, c := range map[string]struct {
		agents []api.Agent
		keys   []api.Credential
	}{
		"codex": {[]api.Agent{claude, codex, worker}, []api.Credential{key("anthropic", "ready"), key("openai", "ready")}},
		"claude": {[]api.Agent{worker, claude, codex}, []api.Credential{key("anthropic", "ready"),
			key("openai", "untried")}},
		"worker": {[]api.Agent{codex, worker}, []api.Credential{key("anthropic", "ready"), key("openai", "missing")}},
		"own":    {[]api.Agent{claude, own}, nil},
		"":       {[]api.Agent{claude, codex, worker}, []api.Credential{key("anthropic", "missing")}},
	} {
		if got, ok := withKey(c.agents, c.keys); got.Name != want || ok != (want != "") {
			t.Errorf("%q, want %q", got.Name, want)
		}
	}
}
