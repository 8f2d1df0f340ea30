//go:build linux

package agents

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/driver"
	"github.com/cove-sandbox/cove/test/modeltest"
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
  - when: be too large
    turns:
      - do: [{shell: "echo kept >kept; head -c 120M /dev/zero | tail -c 119M | wc -c"}]
      - say: I am large.
  - when: fill the disk
    turns:
      - do: [{shell: "echo kept >kept; dd if=/dev/zero of=big bs=1M count=400 2>&1; rm big"}]
      - say: It is full.
  - when: leave no space
    turns:
      - say: I fill it.
        do: [{shell: "echo kept >kept; cat /dev/zero >big; cat /dev/zero >$HOME/big; sync; df -k ."}]
      - do: [{write: {path: more.txt, content: "there is none\n"}}]
      - say: It is full.
  - when: break on a full disk
    turns:
      - do: [{shell: "echo kept >kept; cat /dev/zero >big; cat /dev/zero >$HOME/big; sync; kill -9 $PPID; sleep 20"}]
      - say: I live.
  - when: wait for me
    turns:
      - say: I wait for you.
        do: [{shell: "echo kept >kept; until [ -e go ]; do sleep 0.1; done"}]
      - say: I waited, and am still here.
  - when: go on now
    turns: [{say: I am back.}]
  - when: talk at length
    turns:
      - do: [{shell: echo kept >kept}]
      - say: I talk at length, so that there is time to interrupt me in the middle of what I have to say.
        pace: 200ms
  - when: wait for long
    turns:
      - say: I wait.
        do: [{shell: "echo kept >kept; sleep 100"}]
      - say: I wait on. # Codex ends a command after ten seconds
        do: [{shell: "sleep 100"}]
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
		except string // agents that try again for too long to wait for them, or need less memory
		alike  bool   // the kernel ends it, of whatever agent it is
	}{
		{prompt: "get through", status: api.RunSucceeded, says: "I got through."},
		{prompt: "lose the model", code: map[string]int{"": 123}, status: api.RunError, says: "model", keeps: true,
			flags: []string{"--env", "CLAUDE_CODE_MAX_RETRIES=1"}, except: "codex worker"},
		{prompt: "be killed", code: map[string]int{"": 1}, status: api.RunFailed, says: "killed", keeps: true,
			alike: true},
		{prompt: "take all memory", status: api.RunSucceeded, says: "It was too much.", keeps: true,
			alike: true},
		{prompt: "be too large", code: map[string]int{"": 137}, status: api.RunLimit, says: "out of memory",
			flags: []string{"--memory", "128M"}, except: "worker"},
		{prompt: "fill the disk", status: api.RunSucceeded, says: "It is full.", keeps: true,
			alike: true, flags: []string{"--disk", "200M"}},
		{prompt: "wait for long", code: map[string]int{"": 124}, status: api.RunLimit, says: "time", keeps: true,
			flags: []string{"--timeout", "12s"}},
	} {
		for _, a := range agents {
			if strings.Contains(c.except, a.name) || c.alike && a.name == "codex" && os.Getenv("COVE_TEST_LONG") == "" {
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
				if got.code != code || run.Status != c.status || !strings.Contains(got.stdout+got.stderr, c.says) ||
					strings.Contains(got.stderr, "panic") {
					t.Errorf("%+v\n%+v", got, run)
				}
				if c.keeps {
					l.kept(t, run)
				}
				if got := l.cove(t, dir, "destroy", "--yes", run.SandboxName); got.code != 0 && len(run.Changes) > 0 {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// waits begins a run that waits, and returns once it does.
func (l *lab) waits(t *testing.T, dir, agent, prompt string) (*bytes.Buffer, func() int, func(os.Signal)) {
	t.Helper()
	out, wait, signal := l.begins(t, dir, agent, prompt)
	await.That(t, "the model is asked", l.asked.Load)
	await.That(t, "the agent does something", func() bool {
		return strings.Contains(l.cove(t, l.dir, "diff", l.last(t).SandboxName).stdout, "+kept")
	})
	return out, wait, signal
}

// begins begins a run, and listens to what its model is asked.
func (l *lab) begins(t *testing.T, dir, agent, prompt string) (*bytes.Buffer, func() int, func(os.Signal)) {
	t.Helper()
	l.listens()
	cmd := l.command(t.Context(), dir, agent, "--json", prompt)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &out, func() int { cmd.Wait(); return cmd.ProcessState.ExitCode() }, func(s os.Signal) { cmd.Process.Signal(s) }
}

// whatTools is in a request that tells a model what tools have answered.
var whatTools = regexp.MustCompile(`"(tool_result|\w+_call_output)"`)

// listens notes from now on when a model is asked, and when it is about to speak of what a tool has answered.
func (l *lab) listens() {
	l.asked.Store(false)
	l.speaks.Store(false)
	l.before = func(r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		l.asked.Store(true)
		body, err := io.ReadAll(r.Body)
		if r.Body = io.NopCloser(bytes.NewReader(body)); err == nil && whatTools.Match(body) {
			l.speaks.Store(true)
		}
	}
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
			out, wait, _ := l.waits(t, dir, a.name, "wait for me")
			begun := l.last(t)
			l.killServer(t)
			if code := wait(); code == 0 {
				t.Errorf("the command ended well: %s", out)
			}
			// which starts the next server
			if got := l.cove(t, dir, "exec", begun.SandboxName, "--", "touch", "go"); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			run := l.ended(t)
			if run.Status != api.RunSucceeded || run.Result != "I waited, and am still here." {
				t.Errorf("%+v", run)
			}
			said := l.said(t, run)
			if want := []string{api.MessageThinking, api.MessageToolCall, api.MessageToolResult, api.MessageResult,
				api.MessageUsage}; !slices.Equal(said, want) {
				t.Errorf("it said %q, want %q", said, want)
			}
			l.kept(t, run)
		})
	}
}

// TestGatewayKilled: the gateway, which is the server's, is killed while the model
// speaks. The agent asks again, and the next gateway lets it.
func TestGatewayKilled(t *testing.T) {
	l := newLab(t, faults)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			l.models.Forget()
			dir := l.project(t, t.Name())
			_, wait, _ := l.begins(t, dir, a.name, "talk at length")
			await.That(t, "the model speaks", l.speaks.Load)
			l.killServer(t)
			wait()
			if got := l.cove(t, dir, "list"); got.code != 0 { // which starts the next server
				t.Fatalf("%+v", got)
			}
			run := l.ended(t)
			if run.Status != api.RunSucceeded || !strings.HasPrefix(run.Result, "I talk at length") {
				t.Errorf("%+v", run)
			}
			if said, want := l.said(t, run), []string{api.MessageToolCall, api.MessageToolResult, api.MessageResult,
				api.MessageUsage}; !slices.Equal(said, want) {
				t.Errorf("it said %q, want %q", said, want)
			}
			l.cut(t)
			l.kept(t, run)
		})
	}
}

// cut: the model was interrupted when it spoke.
func (l *lab) cut(t *testing.T) {
	t.Helper()
	if !slices.ContainsFunc(l.models.Requests(), func(r modeltest.Request) bool { return r.Turn == 2 && !r.Finished }) {
		t.Error("the model was not interrupted")
	}
}

// TestLoneGatewayKilled: agents that Cove has not started go out by a gateway that
// is alone, and is killed while the model speaks.
func TestLoneGatewayKilled(t *testing.T) {
	l := newLab(t, faults)
	all := t.Context()
	begin := func(t *testing.T) func() {
		t.Helper()
		cmd := l.command(all, l.dir, "gateway")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the gateway answers", func() bool { return l.cove(t, l.dir, "gateway", "list").code == 0 })
		return func() { cmd.Process.Kill(); cmd.Wait() }
	}
	kill := begin(t)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			l.models.Forget()
			l.listens()
			got := l.cove(t, l.dir, "gateway", "add", a.name, "--allow", a.host, "--credential", a.provider, "--env")
			if got.code != 0 {
				t.Fatalf("%+v", got)
			}
			env := map[string]string{}
			for line := range strings.Lines(got.stdout) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				env[name] = value
			}
			d := l.local(t, a.name, "https://"+a.host, env)
			told := make(chan driver.Result)
			go func() {
				r, err := d.Generate(t.Context(), "talk at length", driver.Options{Directory: l.project(t, a.name), Bind: true})
				if err != nil {
					t.Error(err)
				}
				told <- r
			}()
			await.That(t, "the model speaks", l.speaks.Load)
			kill()
			kill = begin(t)
			if r := <-told; r.IsError || !strings.HasPrefix(r.Text, "I talk at length") {
				t.Errorf("%+v", r)
			}
			l.cut(t)
		})
	}
	kill()
}

// TestDiskFull: agents that fill their disk end as what they were. What they have
// changed cannot be said, and is there once there is room.
func TestDiskFull(t *testing.T) {
	l := newLab(t, faults)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, a.name)
			got := l.cove(t, dir, a.name, "leave no space", "--disk", "64M")
			run := l.last(t)
			if got.code != 0 || got.stdout != "It is full.\n" ||
				!strings.Contains(got.stderr, "what it has changed is not known") ||
				!strings.Contains(got.stderr, "free some space") || run.Status != api.RunSucceeded || len(run.Changes) > 0 {
				t.Errorf("%+v\n%+v", got, run)
			}
			if got := l.cove(t, dir, "diff", run.SandboxName); got.code == 0 ||
				!strings.Contains(got.stderr, "free some space") {
				t.Errorf("%+v", got)
			}
			if got := l.cove(t, dir, "exec", run.SandboxName, "--", "sh", "-c", "rm big $HOME/big"); got.code != 0 {
				t.Errorf("%+v", got)
			}
			l.kept(t, run)
			if got := l.cove(t, dir, "destroy", "--yes", run.SandboxName); got.code != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestDiskLimit: the run of an agent that fails while its disk is full was ended by the limit of the disk: so says the
// command, and the record, which the API gives too. The control is "be killed" of TestFaults, which fails with room.
func TestDiskLimit(t *testing.T) {
	l := newLab(t, faults)
	c := l.client(t)
	defer c.Close()
	for _, a := range agents {
		if a.name == "codex" && os.Getenv("COVE_TEST_LONG") == "" {
			continue // as in TestFaults
		}
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, a.name)
			got := l.cove(t, dir, a.name, "break on a full disk", "--disk", "64M")
			run, err := c.Run(t.Context(), l.last(t).ID)
			if err != nil || got.code == 0 || !strings.Contains(got.stderr, "disk full") || run.Status != api.RunLimit ||
				run.LimitHit != string(cove.LimitDisk) {
				t.Errorf("%+v\n%+v, %v", got, run, err)
			}
			shown := l.cove(t, dir, "runs", "show", run.ID, "--json")
			if !strings.Contains(shown.stdout, `"limit_hit": "disk"`) {
				t.Errorf("%+v", shown)
			}
			if got := l.cove(t, dir, "destroy", "--yes", run.SandboxName); got.code != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestReboot: a machine that dies while agents work, and comes back with its disks
// alone, says so of each, and has what they did.
func TestReboot(t *testing.T) {
	l := newLab(t, faults)
	var runs []api.Run
	for _, a := range agents {
		_, wait, _ := l.waits(t, l.project(t, a.name), a.name, "wait for long")
		runs = append(runs, l.last(t))
		defer wait()
	}
	l.killServer(t)
	l.killSandboxes(t)
	if err := os.RemoveAll(filepath.Join(l.dir, "run")); err != nil {
		t.Fatal(err)
	}
	if got := l.cove(t, l.dir, "list"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	c := l.client(t)
	defer c.Close()
	for _, begun := range runs {
		run, err := c.Run(t.Context(), begun.ID)
		if err != nil || run.Status != api.RunError || run.Error == nil || run.EndedAt == nil ||
			!strings.Contains(run.Error.Hint, run.SandboxName) {
			t.Errorf("%+v, %v", run, err)
		}
		l.kept(t, run)
		l.models.Forget()
		if got := l.cove(t, l.dir, run.Agent, "--quiet", "--resume", run.ID, "go on now"); got.code != 0 ||
			got.stdout != "I am back.\n" {
			t.Errorf("it cannot go on: %+v", got)
		}
		l.remembered(t, "wait for long")
	}
}

// killServer kills the server in the background, with the gateway.
func (l *lab) killServer(t *testing.T) {
	t.Helper()
	pid, err := strconv.Atoi(l.pid(t))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// killSandboxes kills whatever is in sandboxes, at once, and removes their control groups.
func (l *lab) killSandboxes(t *testing.T) {
	t.Helper()
	await.That(t, "all processes have ended", func() bool {
		left := inSandboxes(t)
		for _, dir := range left {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				syscall.Kill(pid, syscall.SIGKILL) // what has ended is killed in vain
			}
		}
		return len(left) == 0
	})
	parents := append(globbed(t, "/sys/fs/cgroup/*/"+cgroups+"/"), globbed(t, "/sys/fs/cgroup/"+cgroups+"/")...)
	for _, parent := range parents {
		for _, group := range append(globbed(t, parent+"*/"), parent) {
			if err := os.Remove(group); err != nil {
				t.Error(err)
			}
		}
	}
}

// ended is the last run, once it has ended.
func (l *lab) ended(t *testing.T) api.Run {
	t.Helper()
	var run api.Run
	await.That(t, "the run ends", func() bool { run = l.last(t); return run.Status != api.RunRunning })
	return run
}

// said are the types of a run's messages, without what was used on the way.
func (l *lab) said(t *testing.T, run api.Run) (types []string) {
	t.Helper()
	c := l.client(t)
	defer c.Close()
	if _, err := c.FollowRun(t.Context(), run.ID, client.RunStream{Message: func(m api.Message) error {
		types = append(types, m.Type)
		return nil
	}}); err != nil {
		t.Error(err)
	}
	for i := len(types) - 2; i >= 0; i-- {
		if types[i] == api.MessageUsage {
			types = slices.Delete(types, i, i+1)
		}
	}
	return types
}

// pid is the server's in the background.
func (l *lab) pid(t *testing.T) string {
	t.Helper()
	got := l.cove(t, l.dir, "server", "status", "--json")
	_, after, _ := strings.Cut(got.stdout, `"pid":`)
	digits, _, _ := strings.Cut(after, ",")
	return strings.TrimSpace(digits)
}
