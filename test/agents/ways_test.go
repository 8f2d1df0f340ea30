//go:build linux

package agents

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// lastOf is the last message of a type.
func lastOf(all []api.Message, kind string) api.Message {
	for _, m := range slices.Backward(all) {
		if m.Type == kind {
			return m
		}
	}
	return api.Message{}
}

// TestExecute: an agent stands for a language, and works in a directory of the machine itself.
func TestExecute(t *testing.T) {
	l := newLab(t, both)
	if got := l.cove(t, l.dir, "list"); got.code != 0 { // which starts a server
		t.Fatalf("%+v", got)
	}
	c := l.client(t)
	defer c.Close()
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, a.name)
			whole, err := c.Execute(t.Context(), api.ExecuteRequest{Language: a.name, Code: "mend it", WorkDir: dir})
			if said := messages(t, whole.Output); err != nil || whole.Status != api.StatusCompleted || whole.ExitCode != 0 ||
				lastOf(said, api.MessageResult).Content != "The test passes now." {
				t.Errorf("%+v, %v", whole, err)
			}
			for name, want := range map[string]string{"add.py": "def add(a, b):\n    return a + b\n",
				"docs/NOTES.md": "# Notes\n\nadd() subtracted.\n"} {
				if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
					t.Errorf("%s: %q %v", name, text, err)
				}
			}

			var out bytes.Buffer
			streamed, err := c.ExecuteStream(t.Context(), api.ExecuteRequest{Language: a.name, Code: "go on", WorkDir: dir},
				client.Stream{Stdout: &out})
			said := messages(t, out.String())
			if err != nil || streamed.Status != api.StatusCompleted ||
				!strings.Contains(lastOf(said, api.MessageToolResult).Output, "add() subtracted.") ||
				lastOf(said, api.MessageUsage).Usage == nil {
				t.Errorf("%+v, %v: %s", streamed, err, &out)
			}
			id := string(cove.ExecutionID(streamed.ID).Run())
			if run := l.last(t); run.ID != id || run.Agent != a.name || run.Directory != dir || !run.Bind ||
				run.Result != "I went on." {
				t.Errorf("%+v", run)
			}
		})
	}
}

// TestTokenFile: where a profile asks for it, an agent has a real token of its own, in a file that can be read; that is
// said each time, and nothing is set on the way out. Elsewhere there is no such file.
func TestTokenFile(t *testing.T) {
	t.Run("native", func(t *testing.T) { tokenFile(t, newLab(t, both)) })
	t.Run("docker", func(t *testing.T) {
		l := newLab(t, both)
		l.inContainers(t)
		tokenFile(t, l)
	})
}

func tokenFile(t *testing.T, l *lab) {
	file := l.write(t, "keys/token", token+"\n")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	text := "profiles:\n"
	for _, a := range agents {
		variable := map[string]string{"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}[a.provider]
		text += fmt.Sprintf("  - {name: own-%s, agent: %s, access: token-file, token_file: {path: %s, variable: %s}}\n",
			a.name, a.name, file, variable)
	}
	l.write(t, "home/profiles.yaml", text)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, a.name)
			l.models.Forget()
			got := l.cove(t, dir, a.name, "--profile", "own-"+a.name, "--quiet", "mend it")
			if got.code != 0 || got.stdout != "The test passes now.\n" || !strings.Contains(got.stderr, "the real token of ") {
				t.Fatalf("%+v", got)
			}
			run := l.last(t)
			if len(run.Exposes) != 1 {
				t.Errorf("%+v", run)
			}
			got = l.cove(t, dir, a.name, "--resume", "go on") // in the same sandbox: with the same token
			if got.code != 0 || got.stdout != "I went on.\n" ||
				!strings.Contains(got.stderr, "the real token of "+run.Exposes[0]) {
				t.Errorf("%+v", got)
			}
			for _, r := range l.models.Requests() {
				if head := fmt.Sprint(r.Header); !strings.Contains(head, token) || strings.Contains(head, key) {
					t.Errorf("%s %s: %s", r.Method, r.Path, head)
				}
			}
			if a.name != "worker" { // which has no screen
				if got := l.cove(t, dir, "new", ".", "--name", "own-"+a.name, "--profile", "own-"+a.name,
					"--json"); got.code != 0 || !strings.Contains(got.stderr, "the real token of "+run.Exposes[0]) {
					t.Errorf("%+v", got)
				}
			}
			if got := l.cove(t, dir, "new", ".", "--no-attach", "--mount", file+":"+cove.Tokens+"/OWN:ro"); got.code == 0 ||
				!strings.Contains(got.stderr, "which a profile alone puts") {
				t.Errorf("%+v", got)
			}
			for sandbox, want := range map[string]string{run.SandboxName: token + "\n", "": ""} {
				if sandbox == "" {
					sandbox = "without-" + a.name
					if got := l.cove(t, dir, "new", ".", "--name", sandbox, "--no-attach"); got.code != 0 {
						t.Fatalf("%+v", got)
					}
				}
				if got := l.cove(t, dir, "exec", sandbox, "--", "sh", "-c",
					"cat "+cove.Tokens+"/* 2>/dev/null || true"); got.stdout != want {
					t.Errorf("%s: %+v", sandbox, got)
				}
			}
		})
	}
}

// TestResume: the last conversation in a directory goes on, where it was.
func TestResume(t *testing.T) {
	l := newLab(t, both)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, a.name)
			if got := l.cove(t, dir, a.name, "--quiet", "mend it"); got.code != 0 || got.stdout != "The test passes now.\n" {
				t.Fatalf("%+v", got)
			}
			first := l.last(t)
			l.models.Forget()
			got := l.cove(t, dir, a.name, "--resume", "go on")
			if got.code != 0 || got.stdout != "I went on.\n" {
				t.Fatalf("%+v", got)
			}
			if strings.Contains(got.stderr, "not let out") {
				t.Errorf("what it does without is worth a word:\n%s", got.stderr)
			}
			l.remembered(t, "mend it", "The test passes now.")
			run := l.last(t)
			if run.Sandbox != first.Sandbox || run.Session != first.Session || run.Usage.InputTokens != 210 ||
				run.Usage.CacheReadTokens != 19850 {
				t.Errorf("after %+v came %+v", first, run)
			}
		})
	}
}

// TestSeveral: many work on one project at once, each on its own copy of it, and nobody sees anything of the others.
func TestSeveral(t *testing.T) {
	const each = 2
	script := "aside: A title\nprompts:\n"
	type task struct{ agent, name string }
	var tasks []task
	for _, a := range agents {
		for i := range each {
			name := fmt.Sprintf("%s-%d", a.name, i)
			tasks = append(tasks, task{a.name, name})
			script += fmt.Sprintf(`
  - when: do %s
    turns:
      - do: [{shell: "echo %[1]s >>mine; echo %[1]s >made-%[1]s"}]
      - do: [{shell: "cat mine; ls"}]
        pace: 20ms
      - say: This was %[1]s.
`, name)
		}
	}
	l := newLab(t, script)
	dir := l.project(t, "project")
	results := make([]result, len(tasks))
	var all sync.WaitGroup
	for i, task := range tasks {
		all.Go(func() { results[i] = l.cove(t, dir, task.agent, "--json", "do "+task.name) })
	}
	all.Wait()
	c := l.client(t)
	defer c.Close()
	runs, err := c.Runs(t.Context(), client.RunQuery{})
	if err != nil || len(runs.Runs) != len(tasks) {
		t.Fatalf("%d runs, %v", len(runs.Runs), err)
	}
	sandboxes := map[string]bool{}
	for i, task := range tasks {
		said := messages(t, results[i].stdout)
		seen := lastOf(said, api.MessageToolResult).Output
		if results[i].code != 0 || lastOf(said, api.MessageResult).Content != "This was "+task.name+"." ||
			!strings.HasPrefix(seen, task.name+"\n") || strings.Count(seen, "made-") != 1 {
			t.Errorf("%s: %+v", task.name, results[i])
		}
		at := slices.IndexFunc(runs.Runs, func(r api.Run) bool { return r.Prompt == "do "+task.name })
		run := runs.Runs[at]
		if run.Agent != task.agent || run.Status != api.RunSucceeded || run.Session != said[0].Session ||
			sandboxes[run.Sandbox] {
			t.Errorf("%s: %+v", task.name, run)
		}
		sandboxes[run.Sandbox] = true
		got := l.cove(t, dir, "diff", "--name-only", run.SandboxName)
		if files := strings.Fields(got.stdout); !slices.Equal(files, []string{"made-" + task.name, "mine"}) {
			t.Errorf("%s has changed %q: %+v", task.name, files, got)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "m*")); err != nil || len(files) > 0 {
		t.Errorf("there are %q, %v", files, err)
	}
}
