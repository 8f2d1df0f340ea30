package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// Each part of the load does one thing for a number that no other part has, and tells the oracle before and after.

// unanswered waits a moment after a request that has no answer, since its server died or the load ends. Every other
// failure is wrong, as one of what was acknowledged.
func (l *lab) unanswered(err error) {
	l.t.Helper()
	if code := cove.ErrorCode(err); code != cove.Unavailable && code != cove.Canceled {
		l.t.Errorf("%s: %v", code, err)
	}
	away()
}

// executes runs snippets.
func (l *lab) executes(ctx context.Context) func(n int) {
	return func(n int) {
		if l.execute(ctx, fmt.Sprint("word", n)) != nil {
			away()
		}
	}
}

// writes runs commands in the long-lived sandbox, which add lines to a file.
func (l *lab) writes(ctx context.Context) func(n int) {
	return func(n int) {
		l.oracle.line("log", n, false)
		command := fmt.Sprintf("echo %d >>/workspace/log", n)
		r, err := l.client.Exec(ctx, "log", api.ExecRequest{Args: []string{"sh", "-c", command}}, client.Stream{})
		if err != nil || r.ExitCode != 0 {
			away()
			return
		}
		l.oracle.line("log", n, true)
		l.oracle.acted("sandbox-exec", l.log)
	}
}

// boxes makes sandboxes, some of which outlive servers.
func (l *lab) boxes(ctx context.Context) func(n int) {
	ids := map[string]string{}
	var kept []string
	return func(n int) {
		name := fmt.Sprint("box", n)
		if s, err := l.create(ctx, api.SandboxRequest{Name: name}); err == nil {
			ids[name] = s.ID
		}
		if n%3 == 0 {
			if kept = append(kept, name); len(kept) <= 30 {
				return
			}
			name, kept = kept[0], kept[1:]
		}
		if l.destroy(ctx, name) != nil {
			away()
		} else if id := ids[name]; id != "" {
			l.oracle.acted("sandbox-destroy", id)
		}
		delete(ids, name)
	}
}

// create makes a sandbox.
func (l *lab) create(ctx context.Context, req api.SandboxRequest) (api.Sandbox, error) {
	l.oracle.sandbox(req.Name, uncertain)
	s, err := l.client.CreateSandbox(ctx, req, nil)
	if err == nil && s.State == "running" {
		l.oracle.sandbox(req.Name, there)
		l.oracle.acted("sandbox-create", s.ID)
	}
	return s, err
}

// destroy destroys a sandbox.
func (l *lab) destroy(ctx context.Context, name string) error {
	l.oracle.sandbox(name, uncertain)
	_, err := l.client.DestroySandbox(ctx, name, false)
	if err == nil {
		l.oracle.sandbox(name, gone)
	}
	return err
}

// folder is what uploads are of.
type folder struct {
	commit string
	pack   []byte
}

// newFolder makes a small repository, and the pack of it.
func newFolder(t *testing.T) (f folder) {
	t.Helper()
	dir := t.TempDir()
	git := func(stdin string, args ...string) string {
		c := exec.Command("git", args...)
		c.Dir, c.Stdin = dir, strings.NewReader(stdin)
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := c.Output()
		if err != nil {
			t.Fatalf("git %s: %v", args[0], err)
		}
		return string(out)
	}
	if err := os.WriteFile(filepath.Join(dir, "word"), []byte("uploaded\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("", "init", "-q", "-b", "main")
	git("", "add", "-A")
	git("", "-c", "user.name=A", "-c", "user.email=a@lab.test", "commit", "-qm", "A first version")
	f.commit = strings.TrimSpace(git("", "rev-parse", "HEAD"))
	f.pack = []byte(git("HEAD\n", "pack-objects", "-q", "--revs", "--stdout"))
	return f
}

// uploads sends folders, some of which wait for their sandboxes while servers die.
func (l *lab) uploads(ctx context.Context, f folder) func(n int) {
	var waiting []string
	return func(n int) {
		u, err := l.client.Upload(ctx, bytes.NewReader(f.pack))
		if err != nil {
			l.unanswered(err)
			return
		}
		l.oracle.upload(u.ID, there)
		if waiting = append(waiting, u.ID); len(waiting) > 4 {
			l.takes(ctx, f, waiting[0], fmt.Sprint("taken", n))
			waiting = waiting[1:]
		}
	}
}

// takes makes a sandbox of an upload that waits, looks at its file, and destroys it.
func (l *lab) takes(ctx context.Context, f folder, id, name string) {
	l.oracle.upload(id, uncertain)
	_, err := l.create(ctx, api.SandboxRequest{Name: name, Repository: &api.RepositoryRequest{
		Source: "file://lab.test/project", Upload: &api.UploadedFolder{ID: id, Commit: f.commit, From: "main"}}})
	if err != nil {
		l.unanswered(err)
		return
	}
	l.oracle.upload(id, gone)
	var out bytes.Buffer
	r, err := l.client.Exec(ctx, name, api.ExecRequest{Args: []string{"cat", "word"}}, client.Stream{Stdout: &out})
	if err == nil && (r.ExitCode != 0 || out.String() != "uploaded\n") {
		l.t.Errorf("the sandbox of %s ends with %d and has %q", id, r.ExitCode, out.String())
	}
	if l.destroy(ctx, name) != nil {
		away()
	}
}

// waiting returns the uploads that the server has.
func (l *lab) waiting() map[string]bool {
	files, _ := filepath.Glob(filepath.Join(l.dir, "home/uploads/*/up_*"))
	found := map[string]bool{}
	for _, path := range files {
		found[filepath.Base(path)] = true
	}
	return found
}

// types opens a terminal in the long-lived sandbox and types into it, again and again the same one.
func (l *lab) types(ctx context.Context) func(n int) {
	var at *client.Terminal
	return func(n int) {
		if at == nil {
			o := client.TerminalOptions{ID: l.terminal, New: l.terminal == "", Rows: 24, Columns: 80, Args: []string{"sh", "-c",
				`stty -echo; while read -r n; do echo "$n" >>/workspace/typed; echo "got $n."; done`}}
			t, err := l.client.AttachTerminal(ctx, "log", o)
			if err != nil {
				l.unanswered(err)
				return
			}
			at, l.terminal = t, t.ID()
			context.AfterFunc(ctx, func() { t.Close() })
		}
		l.oracle.line("typed", n, false)
		_, err := fmt.Fprintf(at, "%d\n", n)
		for said := ""; err == nil && !strings.Contains(said, fmt.Sprintf("got %d.", n)); {
			var p []byte
			p, err = at.Next()
			said += string(p)
		}
		if err != nil {
			at.Close()
			at = nil
			return
		}
		l.oracle.line("typed", n, true)
	}
}

// script is what the model says to the agents.
const script = `
prompts:
  - turns:
      - say: I begin.
        do: [{shell: "echo one; sleep 0.5"}]
      - say: I go on.
        do: [{shell: echo two}]
      - say: I am done.
`

// newModels starts a model server, and returns the file that names it as the provider "scripted".
func newModels(t *testing.T) string {
	t.Helper()
	parsed, err := modeltest.Parse("script", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(modeltest.New(modeltest.Options{Script: parsed}))
	t.Cleanup(s.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	path := filepath.Join(t.TempDir(), "providers.yaml")
	text := fmt.Sprintf("providers:\n  - {name: scripted, kind: anthropic, base_url: \"http://localhost:%s/v1\"}\n", port)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// works gives tasks to agents, which go on when a server dies.
func (l *lab) works(ctx context.Context) func(n int) {
	return func(n int) {
		name, id := fmt.Sprint("work", n), ""
		l.oracle.sandbox(name, uncertain) // it goes with its run
		s := client.RunStream{Started: func(r api.Run) error {
			id = r.ID
			l.oracle.run(id, func(*streamed) {})
			return nil
		}, Message: func(m api.Message) error {
			l.oracle.run(id, func(r *streamed) { r.events = append(r.events, event(m)) })
			return nil
		}}
		r, err := l.client.StartRun(ctx, api.RunRequest{Agent: "worker", Prompt: "work", Detach: true, Timeout: 120,
			New: &api.SandboxRequest{Name: name, Network: &api.NetworkPermission{Enabled: true,
				ModelPermission: api.ModelPermission{Providers: []string{"scripted"}}}}}, s)
		if err != nil {
			l.unanswered(err)
			return
		}
		l.oracle.run(id, func(known *streamed) { known.end = r.Status })
	}
}

// event is a message as the oracle remembers it.
func event(m api.Message) string {
	b, _ := json.Marshal(m)
	return string(b)
}

// policy makes each request wait.
const policy = "rules:\n  - {hosts: \"*.lab.test\", action: ask}\n"

// asks makes requests that wait for an answer, answers them for the policy, and takes old answers back.
func (l *lab) asks(ctx context.Context) func(n int) {
	var kept []string
	return func(n int) {
		host := fmt.Sprintf("h%d.lab.test", n)
		of := ""
		answer := func(all []api.Hold) {
			i := slices.IndexFunc(all, func(h api.Hold) bool { return h.Host == host })
			if i < 0 {
				return
			}
			about := all[i].About
			l.oracle.approval(about, uncertain)
			if l.client.AnswerHold(ctx, all[i].ID, api.HoldAnswer{Allow: true, Scope: "policy"}) == nil {
				l.oracle.approval(about, there)
				l.oracle.acted("approve", of)
				kept = append(kept, about)
			}
		}
		_, err := l.client.ExecuteStream(ctx, api.ExecuteRequest{Language: "bash",
			Code: "curl -sS -m 20 -o /dev/null http://" + host, Permissions: &api.Permissions{
				Network: &api.NetworkPermission{Enabled: true, GatewayPolicy: api.GatewayPolicy{
					Policies: []api.PolicyText{{Source: "soak.yaml", Text: policy}}}}}},
			client.Stream{Holds: answer, Started: func(id string) { of = id; l.oracle.execution(id, answered{}) }})
		if err != nil {
			l.unanswered(err)
		}
		if len(kept) > 20 {
			l.revoke(ctx, kept[0])
			kept = kept[1:]
		}
	}
}

// revoke takes an approval back.
func (l *lab) revoke(ctx context.Context, about string) {
	l.oracle.approval(about, uncertain)
	all, err := l.client.Approvals(ctx)
	i := slices.IndexFunc(all, func(a api.Approval) bool { return a.About == about })
	if err != nil || i < 0 {
		return
	}
	if l.client.Revoke(ctx, all[i].ID) == nil {
		l.oracle.approval(about, gone)
		l.oracle.acted("revoke", all[i].ID)
	}
}
