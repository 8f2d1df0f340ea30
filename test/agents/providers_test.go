//go:build linux

package agents

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// TestModelsAreDown: a run whose provider cannot be reached ends soon, with the reason; one that is out of time before
// names it, too; and a provider that comes back within some seconds is asked on.
func TestModelsAreDown(t *testing.T) {
	l := newLab(t, both)
	l.configure(t, `providers:
  - {name: nameless, kind: anthropic, base_url: "https://missing.lab.test/v1"}
  - {name: closed, kind: anthropic, base_url: "http://host.cove.internal:4998/v1"}
  - {name: restarted, kind: anthropic, base_url: "http://host.cove.internal:4999/v1", credential: own}
`, "credentials:\n  - {name: own, source: env:ANTHROPIC_API_KEY}\n")
	for _, c := range []struct {
		provider string
		flags    []string
		code     int
		says     []string
		within   time.Duration
	}{
		{"nameless", nil, 123, []string{"there is no host named missing.lab.test"}, 25 * time.Second},
		{"closed", nil, 123, []string{"nothing listens on port 4998 of host.cove.internal", "see that the provider"},
			25 * time.Second},
		{"closed", []string{"--timeout", "6s"}, 124, []string{"nothing listens on port 4998 of host.cove.internal",
			"stopped: out of time (limit 6 s"}, 20 * time.Second},
		{"restarted", nil, 0, nil, time.Minute},
	} {
		t.Run(c.provider+strings.Join(c.flags, ""), func(t *testing.T) {
			if c.provider == "restarted" {
				web := &http.Server{Handler: l.models}
				up := time.AfterFunc(8*time.Second, func() { // which the sandbox takes a part of to begin
					if at, err := net.Listen("tcp", "127.0.0.1:4999"); err == nil {
						web.Serve(at)
					}
				})
				defer web.Close()
				defer up.Stop()
			}
			dir := l.project(t, "project-"+filepath.Base(t.Name()))
			began := time.Now()
			got := l.cove(t, dir, append([]string{"worker", "--model-provider", c.provider, "mend it"}, c.flags...)...)
			took := time.Since(began)
			t.Logf("%s\n%+v", took, got)
			if got.code != c.code || took > c.within {
				t.Errorf("after %s: %+v", took, got)
			}
			for _, says := range c.says {
				if !strings.Contains(got.stderr, says) {
					t.Errorf("without %q: %+v", says, got)
				}
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
