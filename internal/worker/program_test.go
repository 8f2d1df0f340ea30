package worker

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove/internal/model"
)

var build = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("COVE_TEST_BIN"); bin != "" {
		return filepath.Join(bin, "cove-worker"), nil
	}
	dir, err := os.MkdirTemp("", "cove-worker")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cove-worker")
	cmd := exec.Command("go", "build", "-o", path, "../../cmd/cove-worker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := build(); os.Getenv("COVE_TEST_BIN") == "" && err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// start starts the real program.
func (l *lab) start(env []string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	l.t.Helper()
	path, err := build()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, l.t.Output()
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, &out
}

func (l *lab) program(env []string, args ...string) (stdout []byte, code int) {
	l.t.Helper()
	cmd, out := l.start(env, args...)
	cmd.Wait()
	return out.Bytes(), cmd.ProcessState.ExitCode()
}

// marked returns the processes with a variable in their environment.
func marked(t *testing.T, variable string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(variable)) {
			pids = append(pids, path)
		}
	}
	return pids
}

// TestInterrupt: a signal ends any activity, with a result and without remaining processes; the session can be resumed.
func TestInterrupt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	for _, c := range []struct{ name, turn string }{
		{"a command",
			`{do: [{shell: "setsid sleep 1000 & (sleep 1000 &) ; touch begun; sleep 1000"}, {write: {path: never, ` +
				`content: x}}]}`},
		{"a command in the background",
			`{do: [{tool: {name: bash, input: {command: "setsid -f sleep 1000; touch begun; sleep 1000", background: true}}}, ` +
				`{tool: {name: bash_output, input: {id: b1, wait: 600}}}]}`},
		{"an answer", `{say: "a slow answer of many words that take their time", do: [{shell: touch never}], pace: 10s}`},
		{"a pause", `{say: x, fail: [{status: 529, retry_after: 200}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, model.Anthropic, `prompts: [{when: again, turns: [{say: I went on.}]}, {turns: [`+c.turn+
				`, {say: x}]}]`)
			mark := "COVE_TEST_MARK=" + rand.Text()
			cmd, out := l.start(append(l.env(), mark), l.args("agentic", "go")...)
			await.That(t, "it has begun", func() bool {
				if strings.Contains(c.turn, "begun") {
					_, err := os.Stat(filepath.Join(l.dir, "begun"))
					return err == nil
				}
				sessions, _ := filepath.Glob(filepath.Join(l.home, ".local/state/cove-worker/*.json"))
				return len(sessions) == 1
			})
			time.Sleep(100 * time.Millisecond) // sleep: the signal arrives while it works, of which nothing tells
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			e := ended{code: cmd.ProcessState.ExitCode(), messages: parse(t, out.Bytes())}
			if r := e.result(t); e.code != 130 || !r.IsError || !strings.HasPrefix(r.Content, "interrupted") {
				t.Errorf("exit code %d:\n%s", e.code, e.story())
			}
			if left := marked(t, mark); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			if _, err := os.Stat(filepath.Join(l.dir, "never")); err == nil {
				t.Error("it went on")
			}
			if again := l.run("agentic", "again", "--resume"); again.code != 0 || again.result(t).Content != "I went on." {
				t.Errorf("exit code %d:\n%s", again.code, again.story())
			}
		})
	}
}

// TestNothingIsLeft: processes that commands leave running end with the task.
func TestNothingIsLeft(t *testing.T) {
	l := newLab(t, model.Anthropic, `
prompts:
  - turns:
      - do:
          - shell: "setsid -f sleep 1000; (setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo started"
          - tool: {name: bash, input: {command: "sleep 1000 & setsid -f sleep 1000; wait", background: true}}
      - say: Done.
`)
	mark := "COVE_TEST_MARK=" + rand.Text()
	out, code := l.program(append(l.env(), mark), l.args("agentic", "go")...)
	if e := (ended{messages: parse(t, out)}); code != 0 || e.result(t).Content != "Done." {
		t.Errorf("exit code %d:\n%s", code, e.story())
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}
