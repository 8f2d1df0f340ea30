package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// fakeLasting has one sandbox. What the tests of commands and terminals ask for is not here.
type fakeLasting struct {
	Processes

	mu      sync.Mutex
	called  []string // guarded by mu
	request sandbox.Request
	who     cove.Principal // who asked for it
	made    []hostpath.Made
}

func (f *fakeLasting) note(what ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, strings.Join(what, " "))
}

func (f *fakeLasting) notes() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := strings.Join(f.called, "; ")
	f.called = nil
	return all
}

func (f *fakeLasting) asked() sandbox.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.request
}

func (f *fakeLasting) one(state cove.State) sandbox.View {
	return sandbox.View{Sandbox: store.Sandbox{
		ID: "sb_0123456789abcdefghjkmnpqrs", Name: "one", State: state, Owner: cove.MachineOwner(),
		Spec:      store.SandboxSpec{Spec: cove.Spec{Engine: "fake", WorkDir: cove.Workspace}},
		CreatedAt: time.Unix(1, 0).UTC(), LastUsedAt: time.Unix(2, 0).UTC(),
	}}
}

// found is the one sandbox, for whoever asks for it.
func (f *fakeLasting) found(ref string, state cove.State) (sandbox.View, error) {
	switch ref {
	case "one":
		return f.one(state), nil
	case "busy":
		return sandbox.View{}, cove.Errorf(cove.Conflict, "it is %s", state).WithHint("wait")
	case "weak":
		return sandbox.View{}, cove.Errorf(cove.Unsupported, "it cannot")
	}
	return sandbox.View{}, cove.Errorf(cove.NotFound, "there is no sandbox %q", ref)
}

func (f *fakeLasting) Check(_ context.Context, _ cove.Principal, r sandbox.Request) error {
	f.note("plan", r.Name)
	if r.Name == "taken" {
		return cove.Errorf(cove.NotFound, "there is no model provider nobody")
	}
	return nil
}

func (f *fakeLasting) Create(_ context.Context, who cove.Principal, r sandbox.Request,
	progress func(workspace.Step)) (sandbox.View, error) {
	f.note("create", r.Name, who.String())
	f.mu.Lock()
	f.request, f.who = r, who
	f.mu.Unlock()
	if r.Name == "taken" {
		return sandbox.View{}, cove.Errorf(cove.Conflict, "it is there")
	}
	if r.Name == "quick" {
		return f.one(cove.StateRunning), nil
	}
	progress(workspace.Step{Text: "fetching", Done: 0.5})
	progress(workspace.Step{Text: "starting"})
	if r.Name == "late" {
		return sandbox.View{}, cove.Errorf(cove.Unavailable, "the engine in /secret has gone")
	}
	return f.one(cove.StateRunning), nil
}

func (f *fakeLasting) List(_ context.Context, who cove.Principal) (sandbox.Listing, error) {
	f.note("list", who.String())
	return sandbox.Listing{Sandboxes: []sandbox.View{f.one(cove.StateRunning)}, Orphans: []string{"sb_1"}}, nil
}

func (f *fakeLasting) Find(_ context.Context, who cove.Principal, ref string) (sandbox.View, error) {
	return f.found(ref, cove.StateRunning)
}

func (f *fakeLasting) change(who cove.Principal, doing, ref string, state cove.State) (sandbox.View, error) {
	f.note(doing, ref, who.String())
	return f.found(ref, state)
}

func (f *fakeLasting) Start(_ context.Context, who cove.Principal, ref string) (sandbox.View, error) {
	return f.change(who, "start", ref, cove.StateRunning)
}

func (f *fakeLasting) Stop(_ context.Context, who cove.Principal, ref string) (sandbox.View, error) {
	return f.change(who, "stop", ref, cove.StateStopped)
}

func (f *fakeLasting) Pause(_ context.Context, who cove.Principal, ref string) (sandbox.View, error) {
	return f.change(who, "pause", ref, cove.StatePaused)
}

func (f *fakeLasting) Resume(_ context.Context, who cove.Principal, ref string) (sandbox.View, error) {
	return f.change(who, "resume", ref, cove.StateRunning)
}

func (f *fakeLasting) Change(ctx context.Context, who cove.Principal, ref string, c sandbox.Change) (
	sandbox.View, error) {
	switch {
	case c.Name != "":
		return f.change(who, "rename to "+c.Name, ref, cove.StateRunning)
	case c.Disk != 0:
		return f.change(who, "resize to "+strconv.FormatInt(c.Disk, 10), ref, cove.StateRunning)
	}
	return f.Find(ctx, who, ref)
}

func (f *fakeLasting) Destroy(_ context.Context, who cove.Principal, ref string, keepWork bool) (
	[]hostpath.Made, error) {
	doing := "destroy"
	if keepWork {
		doing = "destroy and keep"
	}
	_, err := f.change(who, doing, ref, cove.StateDestroyed)
	return f.made, err
}

func (f *fakeLasting) ChangeNetwork(_ context.Context, who cove.Principal, ref string, change store.NetworkChange,
	reset bool) (int, error) {
	doing := "extend by " + strings.Join(change.Allow, ",")
	if reset || change.Mode != "" {
		doing = fmt.Sprintf("change to %s, reset %v", change.Mode, reset)
	}
	_, err := f.change(who, doing, ref, cove.StateRunning)
	return 2, err
}

func (f *fakeLasting) NetworkOf(_ context.Context, _ cove.Principal, ref string) (sandbox.View, egress.Network, error) {
	v, err := f.found(ref, cove.StateRunning)
	n, nerr := egress.NetworkOf(&cove.Network{Enabled: true, Allow: []string{"a.example"}})
	return v, n, errors.Join(err, nerr)
}

func (f *fakeLasting) FitsUploads(context.Context, cove.Principal, int64, int64) error { return nil }

func (f *fakeLasting) Certificate(_ context.Context, _ cove.Principal, ref string) ([]byte, error) {
	_, err := f.found(ref, cove.StateRunning)
	return []byte("a certificate"), err
}

// TestSandboxes: requests to detached sandboxes reach them, with who
// asks, and what they say comes back as it is documented.
func TestSandboxes(t *testing.T) {
	h := start(t, nil)
	stranger := caller.String()
	for _, c := range []struct {
		method, path, body string
		status             int
		called             string
	}{
		{"GET", "/sandboxes", "", 200, "list " + stranger},
		{"GET", "/sandboxes/one", "", 200, ""},
		{"GET", "/sandboxes/two", "", 404, ""},
		{"GET", "/sandboxes/" + strings.Repeat("x", 200), "", 400, ""},
		{"PATCH", "/sandboxes/one", `{"name":"two"}`, 200, "rename to two one " + stranger},
		{"PATCH", "/sandboxes/one", `{}`, 200, ""},
		{"PATCH", "/sandboxes/one", `{"disk_mb":64}`, 200, "resize to 67108864 one " + stranger},
		{"PATCH", "/sandboxes/one", `{"disk_mb":-1}`, 400, ""},
		{"PATCH", "/sandboxes/one", `{"state":"failed"}`, 400, ""},
		{"POST", "/sandboxes/one/start", "", 200, "start one " + stranger},
		{"POST", "/sandboxes/one/stop", "", 200, "stop one " + stranger},
		{"POST", "/sandboxes/one/pause", "", 200, "pause one " + stranger},
		{"POST", "/sandboxes/one/resume", "", 200, "resume one " + stranger},
		{"POST", "/sandboxes/one/commit", `{"image":"mine","changes":["USER ada"]}`, 403, ""},
		{"POST", "/sandboxes/busy/start", "", 409, "start busy " + stranger},
		{"POST", "/sandboxes/weak/pause", "", 422, "pause weak " + stranger},
		{"POST", "/sandboxes/two/stop", "", 404, "stop two " + stranger},
		{"POST", "/sandboxes/one/network", `{"allow":["a.test"]}`, 200, "extend by a.test one " + stranger},
		{"POST", "/sandboxes/one/network", `{"allow":["a b"]}`, 400, ""},
		{"POST", "/sandboxes/one/network", `{"allow":["127.0.0.1:80"]}`, 403, ""},
		{"GET", "/sandboxes/one/ca", "", 200, ""},
		{"DELETE", "/sandboxes/one?keep_work=true", "", 204, "destroy and keep one " + stranger},
		{"DELETE", "/sandboxes/one", "", 204, "destroy one " + stranger},
		{"DELETE", "/sandboxes/two", "", 404, "destroy two " + stranger},
		{"PUT", "/sandboxes/one", "", 405, ""},
	} {
		r := h.do(h.client, c.method, c.path, c.body)
		if r.StatusCode != c.status {
			t.Errorf("%s %.40s %s: status %d, want %d: %s", c.method, c.path, c.body, r.StatusCode, c.status, r.body)
		}
		if got := h.lasting.notes(); got != c.called {
			t.Errorf("%s %.40s: called is %q, want %q", c.method, c.path, got, c.called)
		}
	}
	h.do(h.owner, http.MethodPost, "/sandboxes/one/stop", "")
	if got := h.lasting.notes(); got != "stop one local" {
		t.Errorf("the owner is %q", got)
	}
	h.lasting.made = []hostpath.Made{{Source: "/p", Deciding: hostpath.Deciding{Files: []string{".envrc"}}}}
	if r := h.do(h.client, http.MethodDelete, "/sandboxes/one", ""); r.StatusCode != http.StatusOK ||
		!strings.Contains(r.body, `{"made_in_mounts":[{"paths":["/p/.envrc"],"detail":"the sandbox made .envrc in /p`) {
		t.Errorf("what it has made is told as %d %s", r.StatusCode, r.body)
	}
}

// TestCreateSandbox: its steps come as events, and what fails before the first as a status.
func TestCreateSandbox(t *testing.T) {
	h := start(t, nil)
	events := func(body string) string {
		t.Helper()
		r := h.post("/sandboxes", body)
		var names []string
		for line := range strings.Lines(r.body) {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
		if len(names) == 0 {
			return r.error(t).Code
		}
		if strings.Contains(r.body, "/secret") {
			t.Errorf("a stranger is told %s", r.body)
		}
		return strings.Join(names, " ")
	}
	for body, want := range map[string]string{
		`{"name":"one"}`:      "progress progress created",
		`{"name":"quick"}`:    "created",
		`{"name":"late"}`:     "progress progress error",
		`{"name":"taken"}`:    "conflict",
		`{"nam":"one"}`:       "invalid_argument",
		`{"work_dir":"/etc"}`: "invalid_argument",
		`{"files":[{"path":"a","content":"%","encoding":"base64"}]}`: "invalid_argument",
		`{"network":{"enabled":true}}`:                               "invalid_argument",
		// What is the owner's.
		`{"ssh_agent":"/tmp/agent"}`:                                               "forbidden",
		`{"repository":{"source":"a/b","worktree":true}}`:                          "forbidden",
		`{"network":{"enabled":true,"allow":["a.test"],"credentials":["github"]}}`: "forbidden",
		`{"mounts":[{"source":"/etc","target":"/data"}]}`:                          "forbidden",
		`{"image":"dir:/etc"}`:                                                     "forbidden",
	} {
		if got := events(body); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}

	h.lasting.notes()
	for body, want := range map[string]int{`{"name":"one"}`: 204, `{"name":"taken"}`: 404, `{"work_dir":"/etc"}`: 400,
		`{"profile":"nobody"}`: 404, `{"repository":{"source":"file://laptop/src","upload":{"id":"","commit":""}}}`: 204} {
		if r := h.post("/sandboxes/check", body); r.StatusCode != want {
			t.Errorf("check %s: %d, want %d: %s", body, r.StatusCode, want, r.body)
		}
	}
	if notes := h.lasting.notes(); strings.Contains(notes, "create") || strings.Count(notes, "plan") != 3 {
		t.Errorf("a check has done %q", notes)
	}

	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "data"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := h.do(h.owner, "POST", "/sandboxes",
		`{"name":"one","repository":{"source":"/src","branch":"b","from":"f","sparse":["d"],"depth":3,"worktree":true},
		"image":"dir:/etc","engine":"fake","isolation":"microvm","agent":"claude","limits":{"memory_mb":64,"cpus":0.5},"network":{"enabled":true,"allow":["a.test"],"credentials":["github"]},
		"mounts":[{"source":"`+dir+`/data","target":"/data","read_only":true}],"files":[{"path":"a/b","content":"x","mode":448}],"env":{"A":"b"},"work_dir":"/workspace/sub",
		"allow_pr":true,"git":{"name":"Ada","email":"ada@example.com"},"ssh_agent":"/tmp/agent","labels":{"k":"v"}}`)
	if r.StatusCode != 200 || !strings.Contains(r.body, "event: created") {
		t.Fatalf("status %d: %s", r.StatusCode, r.body)
	}
	q := h.lasting.asked()
	if q.Name != "one" || !h.lasting.who.IsOwner() || q.Image != "dir:/etc" || q.Engine != "fake" ||
		q.Isolation != cove.IsolationMicroVM || q.Agent != "claude" || q.WorkDir != "sub" ||
		!q.AllowPR || q.SSHAgent != "/tmp/agent" || q.Env["A"] != "b" || q.Labels["k"] != "v" || q.Git.Name != "Ada" ||
		q.Limits.Memory != 64<<20 || q.Limits.CPUs != 0.5 || q.Network.Allow[0] != "a.test" ||
		q.Network.Credentials[0] != "github" {
		t.Errorf("asked for is %+v", q)
	}
	if g := q.Repository; g == nil || g.Source != "/src" || g.Branch != "b" || g.From != "f" || g.Sparse[0] != "d" ||
		g.Depth != 3 || !g.Worktree {
		t.Errorf("the repository asked for is %+v", q.Repository)
	}
	if len(q.Mounts) != 1 || q.Mounts[0] != (cove.Mount{Source: dir + "/data", Target: "/data", ReadOnly: true}) {
		t.Errorf("mounts: %+v", q.Mounts)
	}
	if len(q.Files) != 1 || q.Files[0].Path != "a/b" || q.Files[0].Mode != 0o700 {
		t.Errorf("files: %+v", q.Files)
	}
	if r := h.post("/sandboxes", `{"profile":"p"}`); r.StatusCode != http.StatusNotFound ||
		!strings.Contains(r.body, "no profile") {
		t.Errorf("a profile that is not there: status %d: %s", r.StatusCode, r.body)
	}
	if h.post("/sandboxes", `{"repository":{"source":"a/b"}}`); h.lasting.who.IsOwner() {
		t.Error("a stranger counts as the machine's owner")
	}
}
