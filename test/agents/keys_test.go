//go:build linux

package agents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/await"
)

const budgeted = `
aside: A title
prompts:
  - when: use it up
    turns:
      - do: [{shell: "echo kept >kept"}]
      - do: [{shell: "echo 2 >>kept"}]
      - do: [{shell: "echo 3 >>kept"}]
      - do: [{shell: "echo 4 >>kept"}]
      - do: [{shell: "echo 5 >>kept"}]
      - do: [{shell: "echo 6 >>kept"}]
      - say: There is always more.
  - when: wait for me
    turns:
      - do: [{shell: "echo kept >kept; until [ -e go ]; do sleep 0.1; done"}]
      - say: I waited, and am still here.
`

// served is a lab with a server whose callers need keys. The value of a key is its name.
type served struct {
	*lab
	address string
}

// serve starts the lab's server with keys of some budgets.
func (l *lab) serve(t *testing.T, budgets map[string]string) served {
	t.Helper()
	s := served{l, "http://127.0.0.1:8099"}
	entries := "api_keys:\n"
	for name, budget := range budgets {
		entries += fmt.Sprintf("  - {name: %s, hash: %x, model_budget: '%s'}\n", name, sha256.Sum256([]byte(name)),
			budget)
	}
	config := filepath.Join(l.dir, "cove.yaml")
	text, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, append([]byte(entries), text...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := l.command(context.Background(), l.dir, "serve", "--listen", strings.TrimPrefix(s.address, "http://"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the sandboxes go on, and the lab's end removes them
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	await.That(t, "the server listens", func() bool {
		r, err := http.Get(s.address + "/health")
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	return s
}

// begins begins a command as the holder of a key; the result comes with its end.
func (s served) begins(t *testing.T, key, dir string, args ...string) (end func() result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	cmd := s.command(ctx, dir, args...)
	cmd.Env = append(cmd.Env, "COVE_SERVER="+s.address, "COVE_API_KEY="+key)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() result {
		defer cancel()
		cmd.Wait()
		return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	}
}

// run returns the last run of a key; without an id if there is none.
func (s served) run(t *testing.T, key string) (last api.Run) {
	t.Helper()
	c, err := client.New(client.Options{Address: s.address, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.Runs(t.Context(), client.RunQuery{Limit: 1})
	if err == nil && len(list.Runs) > 0 {
		last, err = c.Run(t.Context(), list.Runs[0].ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// TestModelBudgetOfAKey: without a word about its network, the agent of a caller with a key works until the model
// budget of the key is used up, and then shows why it ends. The record of the run has the reason, and the agent of
// another key works on. What is used is for both keys to see.
func TestModelBudgetOfAKey(t *testing.T) {
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			s := newLab(t, budgeted).serve(t, map[string]string{"few": "requests=4", "many": "requests=100"})
			other := s.begins(t, "many", s.project(t, "other"), a.name, "--model-provider", a.provider, "--quiet",
				"wait for me")
			await.That(t, "the other agent works", func() bool {
				run := s.run(t, "many")
				return run.SandboxName != "" && strings.Contains(s.cove(t, s.dir, "diff", run.Sandbox).stdout, "+kept")
			})
			got := s.begins(t, "few", s.project(t, "project"), a.name, "use it up")()
			const reason = "the budget of the API key few (model_budget in the server's configuration) is used up: " +
				"4 of 4 requests"
			if got.code != 137 || !strings.Contains(got.stdout+got.stderr, reason) {
				t.Errorf("the agent ends with %+v", got)
			}
			run := s.run(t, "few")
			if run.Status != api.RunLimit || run.LimitHit != "budget" || run.Error == nil ||
				!strings.Contains(run.Error.Error, reason) {
				t.Errorf("recorded: %+v, %+v", run, run.Error)
			}
			s.kept(t, run)

			again := s.begins(t, "few", s.project(t, "again"), a.name, "use it up")()
			if again.code != 123 || !strings.Contains(again.stderr, "4 of 4 requests") {
				t.Errorf("with nothing left: %+v", again)
			}

			if got := s.cove(t, s.dir, "exec", s.run(t, "many").Sandbox, "--", "touch", "go"); got.code != 0 {
				t.Errorf("%+v", got)
			}
			if got := other(); got.code != 0 || got.stdout != "I waited, and am still here.\n" {
				t.Errorf("the other agent: %+v", got)
			}
			for key, want := range map[string]string{"few": "4 of 4 requests", "many": " of 100 requests"} {
				if got := s.begins(t, key, s.dir, "keys")(); got.code != 0 || strings.Count(got.stdout, "\n") != 2 ||
					!strings.Contains(got.stdout, want) {
					t.Errorf("%s sees %+v", key, got)
				}
			}
		})
	}
}
