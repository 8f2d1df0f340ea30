//go:build linux

package agents

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestModelProvider: with --model-provider an agent asks the provider that it names and no other, at the gateway's
// address, whatever its own is; the key is set on the way out. Of several it asks the first that speaks as its own
// does.
func TestModelProvider(t *testing.T) {
	l := newLab(t, both)
	l.Site("models.lab.test", http.HandlerFunc(l.models.ServeHTTP))
	l.configure(t, `providers:
  - {name: house-messages, kind: anthropic, base_url: "https://models.lab.test/v1", credential: house-messages}
  - {name: house-responses, kind: openai, base_url: "https://models.lab.test/v1", credential: house-responses}
`, `credentials:
  - name: house-messages
    source: env:ANTHROPIC_API_KEY
    to: [{hosts: models.lab.test, form: header, header: x-api-key}]
  - name: house-responses
    source: env:OPENAI_API_KEY
    to: [{hosts: models.lab.test, form: bearer}]
`)
	for _, c := range []struct {
		agent string
		flags []string
	}{
		{"claude", []string{"--model-provider", "house-messages"}},
		{"claude", []string{"--model-provider", "house-responses,house-messages"}},
		{"worker", []string{"--model-provider", "house-messages"}},
		{"codex", []string{"--model-provider", "house-responses"}},
		{"codex", []string{"--model-provider", "house-messages", "--model-provider", "house-responses"}},
		{"opencode", []string{"--model-provider", "house-responses", "--model", "gpt-5"}},
	} {
		t.Run(c.agent+" "+c.flags[len(c.flags)-1], func(t *testing.T) {
			l.Forget()
			l.models.Forget()
			dir := l.project(t, "project-"+filepath.Base(t.Name()))
			got := l.cove(t, dir, append([]string{c.agent, "--quiet", "mend it"}, c.flags...)...)
			if got.code != 0 || got.stdout != "The test passes now.\n" {
				t.Errorf("%+v", got)
			}
			if len(l.models.Requests()) == 0 {
				t.Error("no model was asked")
			}
		})
	}
}

// configure adds descriptions of providers and of credentials to the configuration.
func (l *lab) configure(t *testing.T, providers, credentials string) {
	t.Helper()
	both := "  providers: " + l.write(t, "providers.yaml", providers) + "\n  credentials: " +
		l.write(t, "credentials.yaml", credentials) + "\n"
	config := filepath.Join(l.dir, "cove.yaml")
	text, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, []byte(string(text)+both), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
