//go:build linux

package agents

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

const work = `
aside: A title
prompts:
  - when: make the test pass
    turns:
      - think: The tests will tell.
        say: I run the tests first.
        usage: {input: 1200, output: 60, cache_write: 9000}
        do:
          - shell: python3 -B -m unittest -q
      - say: One fails, so I look at the code.
        usage: {input: 300, output: 45, cache_read: 9000}
        do:
          - read: add.py
          - shell: cat draft.txt
      - usage: {input: 250, output: 90, cache_read: 9500}
        do:
          - edit: {path: add.py, old: "    return a - b\n", new: "    return a + b\n"}
      - usage: {input: 260, output: 80, cache_read: 9600}
        do:
          - write: {path: docs/NOTES.md, content: "# Notes\n\nadd() subtracted.\n"}
      - usage: {input: 260, output: 80, cache_read: 9600}
        do:
          - shell: python3 -B -m unittest -q && echo all passed
      - say: There may be more in the documents.
        usage: {input: 100, output: 30, cache_read: 9700}
        do:
          - shell: curl -sS --max-time 20 https://blocked.lab.test/documents
      - usage: {input: 100, output: 30, cache_read: 9700}
        do:
          - shell: |
              printf %s "$ANTHROPIC_API_KEY$OPENAI_API_KEY" >placeholder
              { env; cat /proc/*/environ /proc/*/cmdline; grep -D skip -ras 'canar[y]-7d1f' "$HOME" /tmp /run /etc/cove /var/tmp /dev/shm .; } 2>/dev/null | tr '\0' '\n' | grep -ac 'canar[y]-7d1f'
              echo "user $(id -u), home $(test -w "$HOME" && echo writable)"
      - say: The test passes now; add() subtracted.
        usage: {input: 280, output: 20, cache_read: 9800}
`

// TestWork: the real agents work on a project, see that a test fails, mend it, are kept from a host, and finish; what
// they did, said and used is known; the provider got the key, which is nowhere else.
func TestWork(t *testing.T) {
	l := newLab(t, work)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			l.Forget()
			l.models.Forget()
			dir := l.project(t, "project-"+a.name)
			var processes, asked atomic.Int64
			l.before = func(r *http.Request) {
				if r.Method == http.MethodPost && asked.Add(1) == 8 { // all it does is done, and it is still there
					processes.Store(int64(len(searchProcesses(t))))
				}
			}
			got := l.cove(t, dir, a.name, "--json", "make the test pass")
			l.before = nil
			if got.code != 0 {
				t.Fatalf("%+v", got)
			}
			said := messages(t, got.stdout)
			checkMessages(t, inOrder(t, said))
			run := l.last(t)
			l.checkRun(t, a.name, dir, run)
			if processes.Load() < 2 {
				t.Errorf("the key was looked for in %d processes", processes.Load())
			}

			placeholder := l.taken(t, dir, run)
			l.checkProvider(t, a.host, placeholder, 8)
			if n := searchFiles(t, filepath.Join(l.dir, "home"), filepath.Join(l.dir, "run"), dir); n < 10 {
				t.Errorf("the key was looked for in %d files", n)
			}
			if strings.Contains(got.stdout+got.stderr, key) {
				t.Error("the key was printed")
			}
			if t.Failed() {
				t.Logf("%+v\n%s\n%s", run, got.stdout, got.stderr)
			}
		})
	}
}

// checkMessages: what the model said and did is there, in its order.
func checkMessages(t *testing.T, all []api.Message) {
	t.Helper()
	at := 0
	find := func(what string, is func(api.Message) bool) {
		t.Helper()
		if i := slices.IndexFunc(all[at:], is); i >= 0 {
			at += i + 1
			return
		}
		t.Errorf("after message %d there is no %s", at, what)
	}
	thinking := func(text string) {
		t.Helper()
		find(text, func(m api.Message) bool { return m.Type == api.MessageThinking && strings.Contains(m.Content, text) })
	}
	tool := func(output string, failed bool) {
		t.Helper()
		call := ""
		find("call before "+output, func(m api.Message) bool {
			call = m.Call
			return m.Type == api.MessageToolCall && m.Tool != "" && call != ""
		})
		find("answer "+output, func(m api.Message) bool {
			return m.Type == api.MessageToolResult && strings.Contains(m.Output, output) && (!failed || m.IsError)
		})
	}
	thinking("The tests will tell.")
	thinking("I run the tests first.")
	tool("FAILED", true)
	thinking("One fails, so I look at the code.")
	tool("return a - b", false)
	find("answer of the second tool", func(m api.Message) bool {
		return m.Type == api.MessageToolResult && strings.Contains(m.Output, "not committed")
	})
	tool("", false)
	tool("", false)
	tool("all passed", false)
	thinking("There may be more in the documents.")
	tool("no rule allows blocked.lab.test", false)
	tool("user ", false)
	find("result", func(m api.Message) bool {
		return m.Type == api.MessageResult && m.Content == "The test passes now; add() subtracted." && !m.IsError
	})
	find("usage", func(m api.Message) bool { return m.Type == api.MessageUsage && m.Usage != nil })
	if at != len(all) {
		t.Errorf("%d messages after the last", len(all)-at)
	}
	for _, m := range all {
		if strings.Contains(m.Output, "user ") && (!strings.Contains(m.Output, "0\n") ||
			strings.Contains(m.Output, "user 0,") || !strings.Contains(m.Output, "home writable")) {
			t.Errorf("inside: %q", m.Output)
		}
	}
}

// checkRun: what is recorded of the run.
func (l *lab) checkRun(t *testing.T, agent, dir string, run api.Run) {
	t.Helper()
	if run.Agent != agent || run.Status != api.RunSucceeded || run.Prompt != "make the test pass" ||
		run.Result != "The test passes now; add() subtracted." ||
		run.ExitCode == nil || *run.ExitCode != 0 || run.Session == "" && agent != "worker" || run.Directory != dir ||
		run.EndedAt == nil || run.Version == "" && agent != "worker" {
		t.Errorf("%+v", run)
	}
	want := api.AgentUsage{InputTokens: 2750, OutputTokens: 435, CacheReadTokens: 66900, CacheWriteTokens: 9000}
	got := run.Usage
	got.Cost, got.Duration, got.Turns = 0, 0, 0
	if agent == "codex" { // OpenAI's answers say what was read from a cache, not what was written to one
		want.InputTokens, want.CacheWriteTokens = want.InputTokens+want.CacheWriteTokens, 0
	}
	if got != want {
		t.Errorf("used %+v, want %+v", got, want)
	}
	var changed []string
	for _, c := range run.Changes {
		changed = append(changed, fmt.Sprint(c.Path))
	}
	slices.Sort(changed)
	if want := []string{"add.py", "docs/NOTES.md", "placeholder"}; !slices.Equal(changed, want) {
		t.Errorf("changed %q, want %q", changed, want)
	}
	denied := l.cove(t, l.dir, "network", "log", "--denied", "--host", "blocked.lab.test", "--json")
	if !strings.Contains(denied.stdout, run.Sandbox) {
		t.Errorf("%+v", denied)
	}
	for _, r := range l.Requests() {
		if r.Host == "blocked.lab.test" {
			t.Errorf("%s", r)
		}
	}
}

// taken takes the work over, and returns the placeholder that was in the sandbox.
func (l *lab) taken(t *testing.T, dir string, run api.Run) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "placeholder")); err == nil {
		t.Error("the project was changed before anybody took the work over")
	}
	if got := l.cove(t, dir, "apply", run.SandboxName); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for name, want := range map[string]string{"add.py": "def add(a, b):\n    return a + b\n",
		"docs/NOTES.md": "# Notes\n\nadd() subtracted.\n", "draft.txt": "not committed\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
	placeholder, err := os.ReadFile(filepath.Join(dir, "placeholder"))
	if err != nil || len(placeholder) < 20 {
		t.Errorf("the placeholder is %q, %v", placeholder, err)
	}
	return string(placeholder)
}

// keyed are the header in which each provider has the key, and what it is there.
var keyed = map[string][2]string{
	"api.anthropic.com": {"X-Api-Key", key}, "api.openai.com": {"Authorization", "Bearer " + key},
	"generativelanguage.googleapis.com": {"X-Goog-Api-Key", key},
}

// checkProvider: every request had the key where it belongs, and nothing of the
// placeholder, and nobody else was asked anything.
func (l *lab) checkProvider(t *testing.T, host, placeholder string, want int) {
	t.Helper()
	turns := 0
	for _, r := range l.models.Requests() {
		if r.Turn > 0 {
			turns++
		}
		if r.Problem != "" {
			t.Error(r.Problem)
		}
		if at := keyed[host]; at[0] == "" || r.Header.Get(at[0]) != at[1] {
			t.Errorf("%s %s without the key", r.Method, r.Path)
		}
		if placeholder != "" && strings.Contains(fmt.Sprint(r.Body, r.Path, r.Header), placeholder) ||
			strings.Contains(r.Body+r.Path, key) {
			t.Errorf("%s %s has the placeholder, or the key where it does not belong", r.Method, r.Path)
		}
	}
	if turns != want {
		t.Errorf("the model was asked for %d turns, want %d", turns, want)
	}
	for _, r := range l.Requests() {
		if r.Host != host {
			t.Errorf("somebody else was asked: %s", r)
		}
	}
}
