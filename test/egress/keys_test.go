//go:build linux

package egress

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove/api"
)

const apiAddress = "127.0.0.1:8099"

// serve starts the server of the API with some keys, whose value is their name, and returns how to end it.
func (l *lab) serve(t *testing.T, keys string) (stop func()) {
	t.Helper()
	l.config = "api_keys:\n" + keys
	cmd := l.command(t, t.Context(), "serve", "--listen", apiAddress)
	said, err := os.Create(filepath.Join(l.dir, "serve.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}
	t.Cleanup(stop)
	await.That(t, "the server listens", func() bool {
		r, err := http.Get("http://" + apiAddress + "/health")
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	return stop
}

// entry is a key of the configuration, whose value is its name.
func entry(name, more string) string {
	return fmt.Sprintf("  - {name: %s, hash: %x%s}\n", name, sha256.Sum256([]byte(name)), more)
}

// ask sends a request to the API with a key.
func (l *lab) ask(t *testing.T, key, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+apiAddress+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestModelBudgetsOfKeys: a key uses the models of the machine's owner only with a budget of its own, within which all
// its sandboxes are, through restarts and also when their records have gone. Requests beyond it reach no provider.
func TestModelBudgetsOfKeys(t *testing.T) {
	l := newLab(t)
	l.serveModels()
	rich := entry("rich", ", model_budget: 'requests=5'")
	stop := l.serve(t, rich+entry("poor", ""))
	asks := func(times int) string {
		script, _ := json.Marshal(asking + strings.Repeat("ask messages \"$hello\" -o /dev/null\n", times) +
			"ask messages \"$hello\"\n")
		return `{"language":"bash","code":` + string(script) +
			`,"permissions":{"network":{"enabled":true,"providers":["anthropic"]}}}`
	}
	reached := func(want int) {
		t.Helper()
		n := 0
		for _, r := range l.Requests() {
			if r.Host == "api.anthropic.com" {
				n++
			}
		}
		if n != want {
			t.Errorf("%d requests reached the provider, want %d", n, want)
		}
	}
	run := func(key string, times int) (out api.Execution) {
		t.Helper()
		code, text := l.ask(t, key, "POST", "/execute", asks(times))
		if err := json.Unmarshal([]byte(text), &out); code != 200 || err != nil {
			t.Fatalf("%d %s", code, text)
		}
		return out
	}

	if code, text := l.ask(t, "poor", "POST", "/execute", asks(0)); code != 403 ||
		!strings.Contains(text, "model_budget: cost=5") {
		t.Errorf("a key without a budget: %d %s", code, text)
	}
	if code, text := l.ask(t, "rich", "POST", "/execute", `{"language":"bash","code":"true","permissions":{"network":
		{"enabled":true,"credentials":["anthropic"]}}}`); code != 403 {
		t.Errorf("a credential itself: %d %s", code, text)
	}
	reached(0)
	first := run("rich", 1)
	if strings.Count(first.Output, "200") != 2 || !strings.Contains(first.Output, "usage") {
		t.Errorf("within the budget: %s %s", first.Output, first.Stderr)
	}
	reached(2)
	if code, text := l.ask(t, "rich", "DELETE", "/executions/"+first.ID, ""); code != 200 {
		t.Errorf("%d %s", code, text)
	}

	stop()
	stop = l.serve(t, rich+entry("poor", ""))
	second := run("rich", 4)
	if strings.Count(second.Output, "200\n") != 3 || strings.Count(second.Output, "429\n") != 2 ||
		!strings.Contains(second.Output, "model_budget in the server's configuration) is used up: 5 of 5 requests") {
		t.Errorf("beyond it, while it runs: %s %s", second.Output, second.Stderr)
	}
	reached(5)
	if code, text := l.ask(t, "rich", "POST", "/execute", asks(0)); code != 429 ||
		!strings.Contains(text, "5 of 5 requests") || !strings.Contains(text, "raise model_budget") {
		t.Errorf("with nothing left: %d %s", code, text)
	}
	if code, text := l.ask(t, "rich", "GET", "/audit?action=models", ""); code != 200 ||
		!strings.Contains(text, `"verdict":"deny"`) || !strings.Contains(text, "5 of 5 requests") {
		t.Errorf("the audit log: %d %s", code, text)
	}

	stop()
	l.serve(t, entry("rich", ", model_budget: 'cost=1'")+entry("poor", ""))
	if third := run("rich", 0); !strings.Contains(third.Output, "200\n") {
		t.Errorf("with another budget, in dollars: %s", third.Output)
	}
	reached(6)
}
