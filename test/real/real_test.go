// Package real proves Cove as people have it: installed programs, default
// directories, and not one variable that a user would not have set.
package real

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDefaults: with the state where it is by default, everything that shows a
// sandbox something of it works, for root and for others.
func TestDefaults(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("this is not root")
		}
		defaults(t, asRoot(t))
	})
	t.Run("user", func(t *testing.T) { defaults(t, asUser(t)) })
}

func defaults(t *testing.T, m *machine) {
	for _, step := range []struct {
		name string
		run  func(*testing.T, *machine)
	}{
		{"doctor", doctor}, {"new", newAndExec}, {"stopped", stopped}, {"worktree", worktree}, {"bind", bind},
		{"mounts", mounts}, {"refused", refused}, {"worker", worker}, {"agent", agent}, {"in the home", inHome},
		{"install", install}, {"left", left},
	} {
		t.Run(step.name, func(t *testing.T) {
			of := *m
			of.t = t
			step.run(t, &of)
		})
	}
}

// doctor says beforehand what works.
func doctor(t *testing.T, m *machine) {
	var report struct {
		Findings []struct{ ID, Status, Found string }
	}
	r := m.try("/", "cove", "doctor", "--json")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v: %s", err, r.errs)
	}
	for _, f := range report.Findings {
		if f.ID == "workspace.native" && f.Status == "ok" && strings.Contains(f.Found, "made in "+m.state+",") {
			return
		}
	}
	t.Errorf("no long-lived sandbox in %s: %+v", m.state, report.Findings)
}

func newAndExec(t *testing.T, m *machine) {
	m.cove("new", ".", "--name", "otter", "--no-attach")
	got := m.cove("exec", "otter", "--", "sh", "-c", "echo two >>a.txt; echo mine >~/file; cat a.txt ~/file")
	if got != "one\ntwo\nmine\n" {
		t.Errorf("inside: %q", got)
	}
	if got := m.cove("diff", "otter"); !strings.Contains(got, "+two\n") {
		t.Errorf("diff: %q", got)
	}
	if got := m.sh("/", "cat $(find "+m.state+"/workspaces -path '*/checkout/a.txt')"); got != "one\ntwo\n" {
		t.Errorf("in the state: %q", got)
	}
}

func stopped(t *testing.T, m *machine) {
	m.cove("pause", "otter")
	m.cove("resume", "otter")
	m.cove("stop", "otter")
	if got := m.cove("diff", "otter"); !strings.Contains(got, "+two\n") {
		t.Errorf("diff: %q", got)
	}
	m.cove("start", "otter")
	if got := m.cove("exec", "otter", "--", "sh", "-c", "cat ~/file"); got != "mine\n" {
		t.Errorf("started again: %q", got)
	}
}

// worktree: git beside the sandbox has the repository, and the sandbox has git.
func worktree(t *testing.T, m *machine) {
	m.cove("new", ".", "--worktree", "--name", "tree", "--no-attach")
	got := m.cove("exec", "tree", "--", "sh", "-c", "echo three >>a.txt; git commit -q -am three; git log --format=%s")
	if got != "three\none\n" {
		t.Errorf("git: %q", got)
	}
}

// bind: a directory of the user's is the user's wish, beside Cove's home.
func bind(t *testing.T, m *machine) {
	m.cove("new", "--bind", ".", "--name", "bound", "--no-attach")
	m.cove("exec", "bound", "--", "sh", "-c", "echo bound >new.txt; echo mine >~/file")
	if got := m.sh(m.project, "cat new.txt; rm new.txt"); got != "bound\n" {
		t.Errorf("in the project: %q", got)
	}
}

// mounts: a user's directories and files are attached below the home and the workspace, again at each start.
func mounts(t *testing.T, m *machine) {
	of := m.project + "-tools"
	m.sh("/", "mkdir -p "+of+"/skills && cd "+of+" && echo a skill >skills/one && echo a rule >rule")
	m.cove("new", "--empty", "--name", "fitted", "--no-attach", "--mount", of+"/skills:/home/cove/.tool/skills:ro",
		"--mount", of+"/rule:/home/cove/.config/tool/rule:ro", "--mount", of+"/skills:/workspace/vendor:ro")
	const look = "cat ~/.tool/skills/one ~/.config/tool/rule /workspace/vendor/one"
	const want = "a skill\na rule\na skill\n"
	if got := m.cove("exec", "fitted", "--", "sh", "-c", look+"; echo own >~/.tool/own"); got != want {
		t.Errorf("inside: %q", got)
	}
	m.cove("stop", "fitted")
	m.cove("start", "fitted")
	if got := m.cove("exec", "fitted", "--", "sh", "-c", look+" ~/.tool/own"); got != want+"own\n" {
		t.Errorf("started again: %q", got)
	}
}

// refused: what a user asks for is judged, with the reason.
func refused(t *testing.T, m *machine) {
	for _, args := range [][]string{
		{"run", "sh", "-c", "ls /x", "--mount", m.state + ":/x"},
		{"new", "--empty", "--no-attach", "--mount", m.state + "/workspaces:/x"},
		{"new", "--bind", m.state, "--no-attach"},
	} {
		r := m.try(m.project, append([]string{"cove"}, args...)...)
		if r.code == 0 || !strings.Contains(r.errs, "is refused: ") || strings.Contains(r.errs, "was changed") {
			t.Errorf("%q: code %d, %s", args, r.code, r.errs)
		}
	}
}

// worker: a program beside Cove's own.
func worker(t *testing.T, m *machine) { m.runs(t, "worker") }

// agent gives a task to an agent whose layer is below the state.
func agent(t *testing.T, m *machine) {
	m.installAgent()
	m.runs(t, "claude")
	m.env = append(slices.Clone(m.env), "ANTHROPIC_API_KEY=sk-ant-of-nobody")
	m.must(m.project, "cove", "claude", "--apply", "leave a note")
	if got := m.sh(m.project, "cat note.txt"); got != "noted\n" {
		t.Errorf("taken over: %q", got)
	}
}

// installAgent puts an agent of the lab where installed ones are.
func (m *machine) installAgent() {
	m.t.Helper()
	const program = `#!/bin/sh
[ "$1" = --version ] && { echo "1.2.3 (of the lab)"; exit; }
cat >/dev/null
echo noted >note.txt
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"it is noted","session_id":"s-1"}'
`
	bin := filepath.Join(m.state, "agents/claude/1.2.3/bin")
	m.sh("/", "umask 022; mkdir -p "+bin+" && cat >"+bin+"/claude <<'EOF'\n"+program+"EOF\n"+
		"chmod 755 "+bin+"/claude && echo 1.2.3 >"+filepath.Join(m.state, "agents/claude/current"))
}

// inHome works on a project in the user's home, which root has, too; it has settings of Claude Code.
func inHome(t *testing.T, m *machine) {
	m.project = m.home + "/mine"
	m.sh("/", "mkdir -p "+m.project+"/.claude && cd "+m.project+" && git init -q -b main && "+
		"echo {} >.claude/settings.json && echo one >a.txt && git add . && git commit -q -m one")
	m.cove("new", ".", "--name", "homely", "--no-attach")
	m.cove("exec", "homely", "--", "sh", "-c", "echo two >>a.txt; git commit -qam two")
	m.cove("apply", "homely")
	m.env = append(slices.Clone(m.env), "ANTHROPIC_API_KEY=sk-ant-of-nobody")
	m.must(m.project, "cove", "claude", "--apply", "leave a note")
	if got := m.sh(m.project, "cat a.txt note.txt"); got != "one\ntwo\nnoted\n" {
		t.Errorf("taken over: %q", got)
	}
	if got := m.cove("audit", "--json"); strings.Count(got, "apply 1 file to "+m.project) != 2 {
		t.Errorf("what was taken over is not on record:\n%s", got)
	}
}

// install installs an agent from npm's registry.
func install(t *testing.T, m *machine) {
	if os.Getenv("COVE_TEST_AGENTS") == "" {
		t.Skip("needs npm's registry, which is there where agents could be installed: COVE_TEST_AGENTS is set")
	}
	m.cove("agents", "install", "claude")
	m.runs(t, "claude")
}

// runs has an agent's program say its version, in a sandbox.
func (m *machine) runs(t *testing.T, name string) {
	t.Helper()
	r := m.try("/", "cove", "agents", "doctor", name, "--json")
	var reports struct {
		Agents []struct {
			Agent  string
			Checks []struct {
				Name, Found string
				OK          bool
			}
		}
	}
	if err := json.Unmarshal([]byte(r.out), &reports); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.errs)
	}
	for _, a := range reports.Agents {
		for _, c := range a.Checks {
			if a.Agent == name && c.Name == "runs" && c.OK {
				return
			}
		}
	}
	t.Errorf("%s does not run: %s", name, r.out)
}

// left: nothing of a sandbox stays in the state.
func left(t *testing.T, m *machine) {
	m.cove(append([]string{"destroy", "--yes"}, strings.Fields(m.cove("list", "-q"))...)...)
	const ls = "ls workspaces sandboxes gateway/pushes 2>/dev/null | grep -e sb_ -e inspect; ls | grep doctor; true"
	got := m.sh(m.state, ls)
	if got != "" {
		t.Errorf("left in %s: %s", m.state, got)
	}
}
