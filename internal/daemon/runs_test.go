//go:build linux

package daemon_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// robots are the agents of the tests: a shell that does what its prompt says.
var robots = []agent.Agent{{
	Name: "robot", Title: "Robot", Program: "sh", Prompt: agent.ByStdin, Output: agent.FormatMessages,
	Headless: []string{"sh", "-c",
		`say() { printf '{"version":1,"type":"thinking","content":"%s","session_id":"s1"}\n' "$1"; }
answer() { printf '{"version":1,"type":"result","content":"%s"}\n{"version":1,"type":"usage","usage":{"input_tokens":3,"output_tokens":4,"turns":1}}\n' "$1"; }
eval "$(cat)"`},
	Options: agent.Options{Resume: []string{"{session}"}},
}}

// story is what somebody hears who takes part in a run.
type story struct {
	lines []string
	run   api.Run
	news  chan string // each line, where somebody waits for it
}

func (s *story) stream() client.RunStream {
	add := func(line string) error {
		s.lines = append(s.lines, line)
		if s.news != nil {
			s.news <- line
		}
		return nil
	}
	return client.RunStream{
		Started: func(r api.Run) error { s.run = r; return add("begun") },
		Message: func(m api.Message) error { return add(m.Type + " " + m.Content) },
		Log:     func(p []byte) error { return add("log " + strings.TrimSpace(string(p))) },
	}
}

// do gives the robot a task.
func (p *process) do(t *testing.T, req api.RunRequest, steps ...string) (api.Run, *story) {
	t.Helper()
	req.Agent, req.Prompt = "robot", strings.Join(steps, "\n")
	s := &story{}
	r, err := p.StartRun(t.Context(), req, s.stream())
	if err != nil {
		t.Fatalf("%v after %q", err, s.lines)
	}
	return r, s
}

// TestRuns has agents work in sandboxes of the native engine.
func TestRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	cfg := settings(t)
	cfg.Agents = robots
	cfg.Sandbox.CgroupParent = "cove-runs-" + strconv.Itoa(os.Getpid())
	t.Cleanup(func() { // where the test fails on its way, sandboxes are left
		if t.Failed() {
			if h, err := cgroup.Find(cfg.Sandbox.CgroupParent); err == nil {
				defer h.Close()
				names, _ := h.List()
				for _, name := range names {
					h.Group(name).Kill()
					h.Group(name).Remove(10 * time.Second)
				}
			}
		}
	})
	p := serve(t, cfg)
	source := repository(t)
	must(t, os.WriteFile(filepath.Join(source, "notes"), []byte("not committed\n"), 0o644))

	t.Log("on a copy of a directory")
	r, s := p.do(t, api.RunRequest{Directory: source}, "say hello", "cat notes >&2", "id -u >&2",
		"echo second >> file", `printf 'a\0b' >bin`, "answer done")
	if got := strings.Join(s.lines, "\n"); r.Status != api.RunSucceeded || r.Result != "done" ||
		r.Usage.InputTokens != 3 || r.Session != "s1" || !strings.Contains(got, "log not committed") ||
		!strings.Contains(got, "log 1000") || !strings.Contains(got, "thinking hello") {
		t.Errorf("%+v\n%s", r, got)
	}
	if len(r.Changes) != 2 || r.Changes[1].Path != "file" || r.Changes[1].Added != 1 || !r.Changes[0].Binary {
		t.Errorf("it has changed %+v", r.Changes)
	}
	if left := p.sh(t, r.Sandbox, "ls -d /tmp/cove-* 2>/dev/null || echo none"); left != "none" {
		t.Errorf("left are %s", left)
	}
	if _, err := p.ApplyWork(t.Context(), r.Sandbox, api.ApplyRequest{Directory: source}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(source, "file")); err != nil || string(got) != "first\nsecond\n" {
		t.Errorf("applied is %q, %v", got, err)
	}
	must(t, fails(p.DestroySandbox(t.Context(), r.Sandbox, false)))
	var out bytes.Buffer
	must(t, p.ExportRun(t.Context(), r.ID, &out))
	patch := ""
	for a := tar.NewReader(&out); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.Name == "changes.patch" {
			data, _ := io.ReadAll(a)
			patch = string(data)
		}
	}
	if !strings.Contains(patch, "+second") {
		t.Errorf("its patch, once its sandbox has gone, is %q", patch)
	}
	clone := gittest.NewGit(t, t.TempDir())
	clone.Run("clone", "-q", source, "clone")
	if got := clone.In("clone").TryWith(patch, "apply", "-"); got.Code != 0 {
		t.Errorf("git does not apply it: %s", got.Stderr)
	}
	for name, want := range map[string]string{"file": "first\nsecond\n", "bin": "a\x00b"} {
		if got, err := os.ReadFile(filepath.Join(clone.Dir, "clone", name)); string(got) != want {
			t.Errorf("applied, %s is %q, %v", name, got, err)
		}
	}

	t.Log("in a directory of a repository, which the copy would not have")
	empty := filepath.Join(source, "deep", "empty")
	must(t, os.MkdirAll(empty, 0o755))
	r, s = p.do(t, api.RunRequest{Directory: empty}, "pwd >&2", "cat ../../notes >&2", "echo new > made", "answer done")
	if got := strings.Join(s.lines, "\n"); !strings.Contains(got, "log /workspace/deep/empty\n") ||
		!strings.Contains(got, "log not committed") || len(r.Changes) != 1 || r.Changes[0].Path != "deep/empty/made" {
		t.Errorf("%+v\n%s", r, got)
	}
	if got := p.sh(t, r.Sandbox, "pwd"); got != "/workspace/deep/empty" {
		t.Errorf("others begin in %s", got)
	}
	must(t, fails(p.DestroySandbox(t.Context(), r.Sandbox, false)))

	t.Log("on files that are not committed, without a change")
	r, _ = p.do(t, api.RunRequest{Directory: source}, "answer done")
	if _, err := p.Sandbox(t.Context(), r.Sandbox); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("its sandbox stays: %v", err)
	}
	t.Log("on another branch, or put aside, and back again")
	for what, steps := range map[string]string{
		"a branch":         "git switch -qc side; echo more >> file; git commit -qam aside; git switch -q -",
		"a stash":          "echo more >> file; git stash -q",
		"it takes it back": "echo more >> file; git commit -qam aside; git revert --no-edit HEAD >&2",
	} {
		steps = "git config user.name R; git config user.email r@localhost; " + steps
		r, s = p.do(t, api.RunRequest{New: &api.SandboxRequest{Repository: &api.RepositoryRequest{Source: source}}}, steps,
			"answer done")
		held, err := p.HeldWork(t.Context(), r.Sandbox)
		if err != nil || len(r.Changes) > 0 || held.Commits == 0 {
			t.Errorf("%s: %+v, %v, after %+v\n%s", what, held, err, r, strings.Join(s.lines, "\n"))
			continue
		}
		must(t, fails(p.DestroySandbox(t.Context(), r.Sandbox, false)))
	}

	t.Log("on a directory itself")
	bound := t.TempDir()
	must(t, os.Chmod(bound, 0o777))
	r, _ = p.do(t, api.RunRequest{Directory: bound, Bind: true}, "echo here > mine; answer done")
	if got, err := os.ReadFile(filepath.Join(bound, "mine")); err != nil || string(got) != "here\n" || !r.Bind ||
		r.Directory != bound {
		t.Errorf("%+v has %q, %v", r, got, err)
	}

	t.Log("in the place of a language")
	req := api.ExecuteRequest{Language: "robot", Code: "say hello; cat mine >&2; answer done", WorkDir: bound}
	e, err := p.Execute(t.Context(), req)
	if err != nil || e.Status != api.StatusCompleted || e.ExitCode != 0 || e.Stderr != "here\n" ||
		strings.Count(e.Output, "\n") != 3 || !strings.Contains(e.Output, `"content":"hello"`) {
		t.Errorf("%+v, %v", e, err)
	}
	var stdout, stderr bytes.Buffer
	e, err = p.ExecuteStream(t.Context(), req, client.Stream{Stdout: &stdout, Stderr: &stderr})
	if err != nil || stderr.String() != "here\n" || strings.Count(stdout.String(), "\n") != 3 {
		t.Errorf("%+v, %v: %s", e, err, &stdout)
	}
	if r, err := p.Run(t.Context(), string(cove.ExecutionID(e.ID).Run())); err != nil || r.Result != "done" {
		t.Errorf("%+v, %v", r, err)
	}
	for code, want := range map[string]int{"exit 3": 3,
		"echo '{\"version\":1,\"type\":\"result\",\"is_error\":true}'": 1} {
		if e, err := p.Execute(t.Context(), api.ExecuteRequest{Language: "robot", Code: code}); err != nil ||
			e.ExitCode != want {
			t.Errorf("%s: %+v, %v", code, e, err)
		}
	}
	if _, err := p.Execute(t.Context(), api.ExecuteRequest{Language: "nothing",
		Code: "x"}); cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), "no runtime") {
		t.Errorf("no language and no agent: %v", err)
	}

	t.Log("without changes nothing stays")
	if list, err := p.Sandboxes(t.Context()); err != nil || len(list.Sandboxes)+len(list.Orphans) > 0 {
		t.Errorf("left are %+v, %v", list, err)
	}

	t.Log("limits")
	for limit, c := range map[string]struct {
		req   api.RunRequest
		steps string
	}{
		"oom": {api.RunRequest{New: &api.SandboxRequest{Spec: api.Spec{Limits: &api.Limits{MemoryMB: 64}}}},
			"say eating; tail /dev/zero; exit 1"},
		"disk": {api.RunRequest{New: &api.SandboxRequest{Spec: api.Spec{Limits: &api.Limits{DiskMB: 32}}}},
			"say filling; head -c 100000000 /dev/zero > /tmp/big || exit 1"},
		"timeout": {api.RunRequest{Timeout: 3}, "say waiting; sleep 1000"},
	} {
		if r, s := p.do(t, c.req, c.steps); r.Status != api.RunLimit || r.LimitHit != limit || r.Error != nil ||
			len(s.lines) < 2 {
			t.Errorf("%s: %+v\n%q", limit, r, s.lines)
		}
	}

	t.Log("an interrupt is heard")
	s = &story{news: make(chan string, 100)}
	done := make(chan api.Run, 1)
	wait := func(line string) {
		t.Helper()
		for {
			select {
			case got := <-s.news:
				if got == line {
					return
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("nobody hears %q", line)
			}
		}
	}
	start := func(ctx context.Context, req api.RunRequest, steps string) {
		req.Agent, req.Prompt = "robot", steps
		go func() {
			r, err := p.StartRun(ctx, req, s.stream())
			if err != nil && !req.Detach && ctx.Err() == nil { // its server may be killed
				t.Error(err)
			}
			done <- r
		}()
	}
	start(t.Context(), api.RunRequest{}, "trap 'answer stopped; exit 130' INT; say working; while :; do sleep 0.05; done")
	wait("thinking working")
	must(t, p.InterruptRun(t.Context(), s.run.ID, false))
	if r = <-done; r.Status != api.RunInterrupted || r.Result != "stopped" {
		t.Errorf("interrupted is %+v", r)
	}
	t.Log("and a kill need not be")
	start(t.Context(), api.RunRequest{}, "trap '' INT; say deaf; while :; do sleep 0.05; done")
	wait("thinking deaf")
	must(t, p.InterruptRun(t.Context(), s.run.ID, true))
	if r = <-done; r.Status != api.RunInterrupted || *r.ExitCode != 137 {
		t.Errorf("killed is %+v", r)
	}

	t.Log("who leaves interrupts, unless it goes on without")
	for _, detach := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		steps := "say working; while :; do sleep 0.05; done"
		if detach {
			steps = "say working; sleep 1; answer done"
		}
		start(ctx, api.RunRequest{Detach: detach}, steps)
		wait("thinking working")
		leave()
		<-done
		r, err := p.FollowRun(t.Context(), s.run.ID, client.RunStream{})
		if want := map[bool]string{false: api.RunInterrupted, true: api.RunSucceeded}[detach]; err != nil ||
			r.Status != want {
			t.Errorf("detached %v: %+v, %v", detach, r, err)
		}
	}

	t.Log("in a sandbox that is there, and on where it was")
	_, err = p.CreateSandbox(t.Context(), api.SandboxRequest{Name: "mine"}, nil)
	must(t, err)
	first, _ := p.do(t, api.RunRequest{Sandbox: "mine"}, "say one; answer first")
	_, err = p.StopSandbox(t.Context(), "mine")
	must(t, err)
	if second, s := p.do(t, api.RunRequest{Resume: first.ID}, "say $0; answer second"); second.SandboxName != "mine" ||
		second.Result != "second" || s.lines[1] != "thinking s1" {
		t.Errorf("%+v\n%q", second, s.lines)
	}

	t.Log("a server that is killed")
	s = &story{news: make(chan string, 100)}
	start(context.WithoutCancel(t.Context()), api.RunRequest{Sandbox: "mine", Detach: true},
		"say one; say two; while [ ! -e /tmp/go ]; do sleep 0.02; done; say three; answer done")
	wait("thinking two")
	id := s.run.ID
	stopped, _ := p.do(t, api.RunRequest{}, "answer done")
	p.kill()
	r = <-done
	p = serve(t, cfg)
	p.sh(t, "mine", "touch /tmp/go")
	s = &story{}
	r, err = p.FollowRun(t.Context(), id, s.stream())
	if got := strings.Join(s.lines, "\n"); err != nil || r.Status != api.RunSucceeded ||
		got != "begun\nthinking one\nthinking two\nthinking three\nresult done\nusage " {
		t.Errorf("%+v, %v\n%s", r, err, got)
	}
	if again, err := p.Run(t.Context(), stopped.ID[:12]); err != nil || again.Result != "done" {
		t.Errorf("an earlier one: %+v, %v", again, err)
	}

	t.Log("several in one sandbox, one of which is killed, and then the server")
	must(t, os.WriteFile(cfg.ProfilesFile(), []byte("profiles:\n  - {name: crew, shared: true}\n"), 0o600))
	crew := api.RunRequest{Detach: true, New: &api.SandboxRequest{Profile: "crew",
		Repository: &api.RepositoryRequest{Source: source}}}
	together := func(steps string) string {
		s = &story{news: make(chan string, 100)}
		start(context.WithoutCancel(t.Context()), crew,
			"pwd > mine; say here; while [ ! -e ~/go ]; do sleep 0.02; done; "+steps)
		wait("thinking here")
		return s.run.ID
	}
	one, two, three := together("answer one"), together("say two; answer two"), together("answer three")
	must(t, p.InterruptRun(t.Context(), three, true))
	if r, err := p.FollowRun(t.Context(), three, client.RunStream{}); err != nil || r.Status != api.RunInterrupted ||
		len(r.Changes) != 1 {
		t.Errorf("killed is %+v, %v", r, err)
	}
	p.kill()
	for range 3 {
		<-done
	}
	p = serve(t, cfg)
	inOne, err := p.Run(t.Context(), one)
	must(t, err)
	p.sh(t, inOne.Sandbox, "touch ~/go")
	places, boxes := map[string]bool{}, map[string]bool{}
	for id, want := range map[string]string{one: "one", two: "two"} {
		r, err := p.FollowRun(t.Context(), id, client.RunStream{})
		if err != nil || r.Status != api.RunSucceeded || r.Result != want || len(r.Changes) != 1 ||
			r.Changes[0].Path != "mine" {
			t.Errorf("%+v, %v", r, err)
		}
		in, err := p.Sandbox(t.Context(), r.Sandbox)
		must(t, err)
		places[p.sh(t, r.Sandbox, "cat mine")], boxes[in.Within] = true, true
	}
	if len(places) != 2 || len(boxes) != 1 {
		t.Errorf("they worked in %v of %v", places, boxes)
	}
	for box := range boxes {
		must(t, fails(p.DestroySandbox(t.Context(), box, false)))
	}

	t.Log("a machine that is restarted")
	s = &story{news: make(chan string, 100)}
	start(context.WithoutCancel(t.Context()), api.RunRequest{Directory: source, Detach: true},
		"echo third >> file; say lost; sleep 1000")
	wait("thinking lost")
	id = s.run.ID
	in, err := p.Sandbox(t.Context(), s.run.Sandbox)
	must(t, err)
	p.kill()
	<-done
	reboot(t, cfg)
	p = serve(t, cfg)
	r, err = p.Run(t.Context(), id)
	if err != nil || r.Status != api.RunError || r.Error.Code != string(cove.Unavailable) ||
		!strings.Contains(r.Error.Hint, "cove diff "+in.Name) || len(r.Changes) != 1 {
		t.Errorf("%+v, %+v, %v", r, r.Error, err)
	}

	t.Log("several at once")
	results := make(chan string, 4)
	for i := range 4 {
		go func() {
			r, err := p.StartRun(t.Context(), api.RunRequest{Agent: "robot", Prompt: fmt.Sprintf("say %d; answer %[1]d", i)},
				client.RunStream{})
			results <- fmt.Sprintf("%s, %v", r.Result, err)
		}()
	}
	seen := map[string]bool{}
	for range 4 {
		seen[<-results] = true
	}
	for i := range 4 {
		if !seen[fmt.Sprintf("%d, %v", i, nil)] {
			t.Errorf("they said %v", seen)
		}
	}
	for _, name := range []string{"mine", in.ID} {
		must(t, fails(p.DestroySandbox(t.Context(), name, false)))
	}
	if list, err := p.Sandboxes(t.Context()); err != nil || len(list.Sandboxes)+len(list.Orphans) > 0 {
		t.Errorf("left are %+v, %v", list, err)
	}
	p.kill()
	reap(t, cfg)
}
