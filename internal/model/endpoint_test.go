package model

import (
	"strings"
	"testing"
)

// TestResolve covers the choice of the endpoint.
func TestResolve(t *testing.T) {
	for _, c := range []struct {
		name    string
		w       Wanted
		env     string
		dialect Dialect
		base    string
		key     string
	}{
		{"nothing", Wanted{}, "", Anthropic, "https://api.anthropic.com", ""},
		{"anthropic by key", Wanted{}, "ANTHROPIC_API_KEY=a", Anthropic, "https://api.anthropic.com", "X-Api-Key: a"},
		{"anthropic by token", Wanted{}, "ANTHROPIC_AUTH_TOKEN=a ANTHROPIC_API_KEY=b", Anthropic,
			"https://api.anthropic.com", "Authorization: Bearer a"},
		{"a subscription", Wanted{}, "CLAUDE_CODE_OAUTH_TOKEN=a", Anthropic, "https://api.anthropic.com",
			"Authorization: Bearer a"},
		{"openai by key", Wanted{}, "OPENAI_API_KEY=a", Responses, "https://api.openai.com/v1",
			"Authorization: Bearer a"},
		{"openai elsewhere", Wanted{}, "OPENAI_API_KEY=a OPENAI_BASE_URL=http://gateway.cove.internal/proxy/v1", Chat,
			"http://gateway.cove.internal/proxy/v1", "Authorization: Bearer a"},
		{"both, by the model", Wanted{Model: "gpt-9"}, "OPENAI_API_KEY=a ANTHROPIC_API_KEY=b", Responses,
			"https://api.openai.com/v1", "Authorization: Bearer a"},
		{"both, claude", Wanted{Model: "claude-9"},
			"OPENAI_API_KEY=a ANTHROPIC_API_KEY=b ANTHROPIC_BASE_URL=http://gateway.cove.internal/proxy", Anthropic,
			"http://gateway.cove.internal/proxy", "X-Api-Key: b"},
		{"both, nothing said", Wanted{}, "OPENAI_API_KEY=a ANTHROPIC_API_KEY=b", Anthropic, "https://api.anthropic.com",
			"X-Api-Key: b"},
		{"said", Wanted{Kind: "openai-chat", Base: "https://x/v1", KeyEnv: "K"}, "K=k ANTHROPIC_API_KEY=b", Chat,
			"https://x/v1", "Authorization: Bearer k"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := map[string]string{}
			for _, variable := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(variable, "=")
				env[name] = value
			}
			e, err := Resolve(c.w, func(name string) string { return env[name] })
			if err != nil || e.Dialect != c.dialect || e.Base.String() != c.base {
				t.Fatalf("%+v, %v", e, err)
			}
			name, value, _ := strings.Cut(c.key, ": ")
			if got := e.Header.Get(name); got != value {
				t.Errorf("%s: %q", name, got)
			}
			if c.key == "" && e.Header.Get("Authorization")+e.Header.Get("X-Api-Key") != "" {
				t.Errorf("%v", e.Header)
			}
		})
	}
}
