//go:build linux

package agents

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
)

// answers are what the model says to single questions. The worker, asked the same, looks at the project first.
const answers = `prompts:
  - when: which colour
    turns: [{say: "Blue\nit is."}]
  - when: figures
    turns: [{say: '{"n": "x"}'}]
  - when: does not match its schema
    turns: [{say: '{"n": 3}'}]
  - when: is not one JSON document
    turns: [{say: 'none again'}]
  - when: never right
    turns: [{say: 'none'}]
  - when: slowly
    turns: [{say: "late", fail: [{after: 1, stall: 30s}]}]
`

const figures = `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`

// TestGenerate asks models for single answers over each of their APIs, at origins that speak TLS. There is no sandbox,
// the key is on the gateway's requests alone, and an answer costs a fraction of what a task costs.
func TestGenerate(t *testing.T) {
	l := newLab(t, answers)
	l.Site("models.lab.test", http.HandlerFunc(l.models.ServeHTTP))
	l.Site("away.lab.test", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	l.configure(t, `providers:
  - {name: messages, kind: anthropic, base_url: "https://models.lab.test/v1", credential: messages}
  - {name: chat, kind: openai, base_url: "https://models.lab.test/v1", credential: bearer,
     endpoints: [chat/completions, models]}
  - {name: responses, kind: openai, base_url: "https://models.lab.test/v1", credential: bearer,
     endpoints: [responses, models]}
  - {name: refused, kind: openai, base_url: "https://models.lab.test/v1", credential: wrong}
  - {name: keyless, kind: openai, base_url: "https://models.lab.test/v1", credential: missing}
  - {name: away, kind: openai, base_url: "https://away.lab.test/v1", credential: away}
`, `credentials:
  - {name: messages, source: "env:ANTHROPIC_API_KEY", to: [{hosts: models.lab.test, form: header, header: x-api-key}]}
  - {name: bearer, source: "env:OPENAI_API_KEY", to: [{hosts: models.lab.test, form: bearer}]}
  - {name: wrong, source: "env:HOME", to: [{hosts: models.lab.test, form: bearer}]}
  - {name: missing, source: "env:NOBODY_SETS_IT", to: [{hosts: models.lab.test, form: bearer}]}
  - {name: away, source: "env:OPENAI_API_KEY", to: [{hosts: away.lab.test, form: bearer}]}
`)
	schema := l.write(t, "schema.json", figures)
	note := l.write(t, "note.txt", "the sky is meant")
	ask := func(args ...string) result { return l.cove(t, l.dir, append([]string{"generate"}, args...)...) }

	for _, provider := range []string{"messages", "chat", "responses"} {
		l.models.Forget()
		got := ask("--model-provider", provider, "--file", note, "which colour?")
		if got.code != 0 || got.stdout != "Blue\nit is.\n" || !strings.Contains(got.stderr, "has answered (") ||
			!strings.Contains(got.stderr, "tokens in") {
			t.Errorf("%s: %+v", provider, got)
		}
		asked := l.models.Requests()
		last := asked[len(asked)-1]
		if !strings.Contains(last.Body, "the sky is meant") || strings.Contains(got.stdout+got.stderr, key) {
			t.Errorf("%s: %+v", provider, last)
		}
		if got = ask("--model-provider", provider, "--schema", schema, "-q", "the figures"); got.code != 0 ||
			got.stdout != "{\"n\": 3}\n" || got.stderr != "" {
			t.Errorf("%s: with a schema: %+v", provider, got)
		}
	}
	if got := ask("--model-provider", "messages", "--schema", schema, "never right"); got.code != 1 || got.stdout != "" ||
		!strings.Contains(got.stderr, "not one JSON document") {
		t.Errorf("an answer that never fits: %+v", got)
	}
	for _, c := range []struct {
		provider, says string
		more           []string
		code           int
	}{
		{"keyless", "there is no key for the models of keyless", nil, 123},
		{"refused", "has refused the credential of its models (401)", nil, 123},
		{"away", "away answers 503", nil, 123},
		{"messages", "out of time", []string{"--timeout", "1s", "slowly"}, 124},
		{"messages", "the budget for models is used up",
			[]string{"--budget", "tokens=1", "--schema", schema, "figures"}, 137},
	} {
		l.models.Forget()
		began := time.Now()
		if len(c.more) == 0 {
			c.more = []string{"which colour?"}
		}
		got := ask(append([]string{"--model-provider", c.provider, "--model", "m"}, c.more...)...)
		if got.code != c.code || got.stdout != "" || !strings.Contains(got.stderr, c.says) {
			t.Errorf("%s: %+v after %s", c.provider, got, time.Since(began))
		}
		if c.provider == "keyless" && len(l.models.Requests()) > 0 {
			t.Error("a model was asked without a key")
		}
	}

	l.models.Forget()
	got := ask("--model-provider", "messages", "--json", "which colour?")
	var single api.Generated
	if err := json.Unmarshal([]byte(got.stdout), &single); err != nil || single.Status != api.RunSucceeded {
		t.Fatalf("%+v, %v", got, err)
	}
	if log := l.cove(t, l.dir, "network", "log"); !strings.Contains(log.stdout, single.ID) {
		t.Errorf("the log of the network has nothing about %s: %s", single.ID, log.stdout)
	}
	if logs := l.cove(t, l.dir, "logs", single.ID); !strings.Contains(logs.stdout, "Blue\nit is.") {
		t.Errorf("the record has no answer: %+v", logs)
	}
	dir := l.project(t, "project")
	work := l.cove(t, dir, "worker", "--model-provider", "messages", "--json", "which colour?")
	var task api.AgentUsage
	for _, m := range messages(t, work.stdout) {
		if m.Usage != nil {
			task = *m.Usage
		}
	}
	tokens := func(u api.AgentUsage) int64 {
		return u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens + u.OutputTokens
	}
	t.Logf("tokens of the same prompt: %d of cove generate, %d of cove worker", tokens(single.Usage), tokens(task))
	if one := tokens(single.Usage); one == 0 || tokens(task) < 10*one {
		t.Errorf("a single answer takes %d tokens, a task %d: %+v", one, tokens(task), work)
	}
}
