//go:build linux

package agents

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

const faults = `
aside: A title
prompts:
  - when: get through
    turns:
      - say: I begin.
        fail: [{status: 429, retry_after: 1}, {status: 500}]
        do: [{shell: echo one >one}]
      - say: I go on, in a text that is long enough to be broken off somewhere.
        fail: [{cut: true, after: 6}]
        do: [{shell: echo two >two}]
      - say: I got through.
        pace: 30ms
  - when: lose the model
    turns:
      - do: [{shell: echo kept >kept}]
      - say: Nobody will read this text to its end, since it is broken off.
        fail: [{cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}]
  - when: be killed
    turns:
      - do: [{shell: "echo kept >kept; kill -9 $PPID; sleep 20"}]
      - say: I live.
  - when: take all memory
    turns:
      - do: [{shell: "echo kept >kept; python3 -c 'x = bytearray(3 << 30)' && echo had it"}]
      - say: It was too much.
  - when: fill the disk
    turns:
      - do: [{shell: "echo kept >kept; dd if=/dev/zero of=big bs=1M count=400 2>&1; rm big"}]
      - say: It is full.
  - when: wait a little
    turns:
      - say: I wait a little.
        do: [{shell: "echo kept >kept; sleep 8"}]
      - say: I waited, and am still here.
  - when: wait for long
    turns:
      - say: I wait.
        do: [{shell: "echo kept >kept; sleep 100"}]
      - say: I waited.
`

// kept: what the agent had written is in its sandbox.
func (l *lab) kept(t *testing.T, run api.Run) {
	t.Helper()
	if got := l.cove(t, l.dir, "diff", run.SandboxName); !strings.Contains(got.stdout, "+kept") {
		t.Errorf("its work is gone: %+v", got)
	}
}

// TestFaults: whatever goes wrong, the run ends as what it was, with a message
// that says it, and nothing that was done is lost.
func TestFaults(t *testing.T) {
	l := newLab(t, faults)
	for _, c := range []struct {
		prompt string
		flags  []string
		code   map[string]int // by the agent; of the others, under ""
		status string
		says   string // on standard error, or as the result
		keeps  bool
		slow   string // the agent that tries again for too long to wait for it
	}{
		{prompt: "get through", status: api.RunSucceeded, says: "I got through."},
		{prompt: "lose the model", code: map[string]int{"": 125}, status: api.RunError, says: "model", keeps: true, flags: []string{"--env", "CLAUDE_CODE_MAX_RETRIES=1"}, slow: "worker"},
		{prompt: "be killed", code: map[string]int{"": 1}, status: api.RunFailed, says: "killed", keeps: true},
		{prompt: "take all memory", status: api.RunSucceeded, says: "It was too much.", keeps: true},
		{prompt: "fill the disk", status: api.RunSucceeded, says: "It is full.", keeps: true, flags: []string{"--disk", "200M"}},
		{prompt: "wait for long", code: map[string]int{"": 124}, status: api.RunLimit, says: "time", keeps: true, flags: []string{"--timeout", "6s"}},
	} {
		for _, a := range agents {
			if a.name == c.slow {
				continue
			}
			t.Run(strings.ReplaceAll(c.prompt, " ", "_")+"/"+a.name, func(t *testing.T) {
				l.models.Forget()
				dir := l.project(t, t.Name())
				got := l.cove(t, dir, append([]string{a.name, c.prompt}, c.flags...)...)
				run := l.last(t)
				code, ok := c.code[a.name]
				if !ok {
					code = c.code[""]
				}
				if got.code != code || run.Status != c.status || !strings.Contains(got.stdout+got.stderr, c.says) || strings.Contains(got.stderr, "panic") {
					t.Errorf("%+v\n%+v", got, run)
				}
				if c.keeps {
					l.kept(t, run)
				}
				if got := l.cove(t, dir, "destroy", "--yes", run.SandboxName); got.code != 0 {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// waits begins a run that waits, and returns once it does.
func (l *lab) waits(t *testing.T, dir, agent, prompt string) (*bytes.Buffer, func() int, func(os.Signal)) {
	t.Helper()
	var asked atomic.Bool
	l.before = func(r *http.Request) {
		if r.Method == http.MethodPost {
			asked.Store(true)
		}
	}
	cmd := l.command(t.Context(), dir, agent, "--json", prompt)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !asked.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("it never asked a model: %s", out.String())
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		run := l.last(t)
		if got := l.cove(t, l.dir, "diff", run.SandboxName); strings.Contains(got.stdout, "+kept") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does nothing: %s", out.String())
		}
	}
	return &out, func() int { cmd.Wait(); return cmd.ProcessState.ExitCode() }, func(s os.Signal) { cmd.Process.Signal(s) }
}

// TestInterrupted: ctrl-c ends what the agent does, and keeps what it did.
func TestInterrupted(t *testing.T) {
	l := newLab(t, faults)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			out, wait, signal := l.waits(t, l.project(t, t.Name()), a.name, "wait for long")
			signal(syscall.SIGINT)
			if code := wait(); code != 130 {
				t.Errorf("%d: %s", code, out)
			}
			run := l.last(t)
			if run.Status != api.RunInterrupted {
				t.Errorf("%+v", run)
			}
			l.kept(t, run)
		})
	}
}

// TestServerKilled: a server that is killed while an agent works loses nothing:
// the agent goes on, and the next server with it, to its end.
func TestServerKilled(t *testing.T) {
	l := newLab(t, faults)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, t.Name())
			out, wait, _ := l.waits(t, dir, a.name, "wait a little")
			pid, err := strconv.Atoi(l.pid(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if code := wait(); code == 0 {
				t.Errorf("the command ended well: %s", out)
			}
			if got := l.cove(t, dir, "list"); got.code != 0 { // which starts the next server
				t.Fatalf("%+v", got)
			}
			run := l.last(t)
			for deadline := time.Now().Add(time.Minute); run.Status == api.RunRunning && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				run = l.last(t)
			}
			if run.Status != api.RunSucceeded || run.Result != "I waited, and am still here." {
				t.Errorf("%+v", run)
			}
			var said []string
			c := l.client(t)
			defer c.Close()
			if _, err := c.FollowRun(t.Context(), run.ID, client.RunStream{Message: func(m api.Message) error {
				said = append(said, m.Type)
				return nil
			}}); err != nil {
				t.Error(err)
			}
			if want := []string{api.MessageThinking, api.MessageToolCall, api.MessageToolResult, api.MessageResult, api.MessageUsage}; !slices.Equal(said, want) {
				t.Errorf("it said %q, want %q", said, want)
			}
			l.kept(t, run)
		})
	}
}

// pid is the server's in the background.
func (l *lab) pid(t *testing.T) string {
	t.Helper()
	got := l.cove(t, l.dir, "server", "status", "--json")
	_, after, _ := strings.Cut(got.stdout, `"pid":`)
	digits, _, _ := strings.Cut(after, ",")
	return strings.TrimSpace(digits)
}
