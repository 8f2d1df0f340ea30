//go:build linux

package agents

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

const later = `
  - when: what is left
    turns:
      - usage: {input: 50, output: 5, cache_read: 900}
        do:
          - shell: cat docs/NOTES.md
      - say: Nothing is left.
        usage: {input: 60, output: 6, cache_read: 950}
`

// others are agents with less to them than those of TestWork: what their
// programs say of a failed command, of thinking and of tokens differs.
var others = []struct {
	name, host, model string
	failures          bool // it says that a command has failed
	onTheWay          bool // it says after each answer what was used
	used, usedLater   api.AgentUsage
}{
	// Its API has no word for what is written to a cache.
	{name: "gemini", host: "generativelanguage.googleapis.com", model: "gemini-2.5-pro",
		used:      api.AgentUsage{InputTokens: 11750, OutputTokens: 435, CacheReadTokens: 66900, Turns: 8},
		usedLater: api.AgentUsage{InputTokens: 110, OutputTokens: 11, CacheReadTokens: 1850, Turns: 2}},
	{name: "opencode", host: "api.anthropic.com", model: "claude-haiku-4-5", failures: true, onTheWay: true,
		used: api.AgentUsage{InputTokens: 2750, OutputTokens: 435, CacheReadTokens: 66900,
			CacheWriteTokens: 9000, Turns: 8},
		usedLater: api.AgentUsage{InputTokens: 110, OutputTokens: 11, CacheReadTokens: 1850, Turns: 2}},
}

// TestOthers: Gemini CLI and OpenCode as they are do the same work, keyless, and go on with it.
func TestOthers(t *testing.T) {
	script := strings.NewReplacer("$OPENAI_API_KEY", "$GEMINI_API_KEY",
		// Gemini CLI runs no command that has another one in it.
		`"user $(id -u), home $(test -w "$HOME" && echo writable)"`,
		`"user $USER, in $HOME"; id -u; touch "$HOME/writable" && echo "home writable"`).Replace(work)
	l := newLab(t, script+later)
	for _, a := range others {
		t.Run(a.name, func(t *testing.T) {
			l.Forget()
			l.models.Forget()
			var processes, asked atomic.Int64
			l.Site(a.host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) == 8 { // it is at the end of its work, and still there
					processes.Store(int64(len(searchProcesses(t))))
				}
				l.models.ServeHTTP(w, r)
			}))
			dir := l.project(t, "project-"+a.name)
			got := l.cove(t, dir, a.name, "--json", "--keep", "--model", a.model, "make the test pass")
			if got.code != 0 {
				t.Fatalf("%+v\n%+v", l.last(t), got)
			}
			run := l.last(t)
			said := messages(t, got.stdout)
			checkOther(t, said, a.failures)
			checkUsage(t, said, a.used, a.onTheWay)
			if run.Status != api.RunSucceeded || run.Session == "" || run.Version == "" ||
				run.Result != "The test passes now; add() subtracted." {
				t.Errorf("%+v", run)
			}
			if processes.Load() == 0 {
				t.Error("the key was looked for in no process")
			}

			got = l.cove(t, dir, a.name, "--json", "--keep", "--model", a.model, "--resume="+run.ID, "what is left?")
			if got.code != 0 {
				t.Fatalf("%+v", got)
			}
			said = messages(t, got.stdout)
			checkUsage(t, said, a.usedLater, a.onTheWay)
			if again := l.last(t); again.Session != run.Session || again.Sandbox != run.Sandbox ||
				again.Result != "Nothing is left." {
				t.Errorf("%+v", again)
			}
			if !slices.ContainsFunc(said, func(m api.Message) bool {
				return m.Type == api.MessageToolResult && strings.Contains(m.Output, "add() subtracted.")
			}) {
				t.Errorf("it has not seen its own work: %s", got.stdout)
			}

			placeholder := l.taken(t, dir, run)
			l.checkProvider(t, a.host, placeholder, 10)
			if n := searchFiles(t, filepath.Join(l.dir, "home"), filepath.Join(l.dir, "run"), dir); n < 10 {
				t.Errorf("the key was looked for in %d files", n)
			}
			if t.Failed() {
				t.Logf("%+v\n%s\n%s", run, got.stdout, got.stderr)
			}
		})
	}
}

// checkOther: each of the model's calls has an answer, which says what the tool did, and the answer to it all is there.
func checkOther(t *testing.T, all []api.Message, failures bool) {
	t.Helper()
	calls := map[string]bool{}
	outputs, failed := "", 0
	for _, m := range all {
		switch m.Type {
		case api.MessageToolCall:
			calls[m.Call] = m.Tool != "" && len(m.Input) > 0
		case api.MessageToolResult:
			if !calls[m.Call] {
				t.Errorf("an answer without a call: %+v", m)
			}
			delete(calls, m.Call)
			if outputs += m.Output + "\n"; m.IsError {
				failed++
			}
		case api.MessageResult:
			if m.Content != "The test passes now; add() subtracted." || m.IsError {
				t.Errorf("%+v", m)
			}
		}
	}
	if len(calls) > 0 {
		t.Errorf("calls without an answer: %v", calls)
	}
	for _, want := range []string{"FAILED (failures=1)", "not committed", "all passed", "no rule allows blocked.lab.test",
		"home writable"} {
		if !strings.Contains(outputs, want) {
			t.Errorf("no tool said %q", want)
		}
	}
	if strings.Contains(outputs, "\n0\nhome") || failures != (failed > 0) {
		t.Errorf("%d failed:\n%s", failed, outputs)
	}
	for _, text := range []string{"I run the tests first.", "One fails, so I look at the code.",
		"There may be more in the documents."} {
		if !slices.ContainsFunc(all, func(m api.Message) bool { return m.Type == api.MessageThinking && m.Content == text }) {
			t.Errorf("it did not say %q", text)
		}
	}
}

// checkUsage: the last message says what was used, and those on the way what was used until then.
func checkUsage(t *testing.T, all []api.Message, want api.AgentUsage, onTheWay bool) {
	t.Helper()
	var turns []int
	for _, m := range all {
		if m.Type == api.MessageUsage {
			turns = append(turns, m.Usage.Turns)
		}
	}
	last := all[len(all)-1]
	if last.Usage == nil {
		t.Fatalf("the last message is %+v", last)
	}
	got := *last.Usage
	if got.Cost, got.Duration = 0, 0; got != want {
		t.Errorf("used %+v, want %+v", got, want)
	}
	if onTheWay != (len(turns) == want.Turns+1) || !slices.IsSorted(turns) {
		t.Errorf("what was used was said after the answers %d", turns)
	}
}
