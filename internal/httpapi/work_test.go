package httpapi

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// fakeWork is the work of any sandbox but "nobody", and breaks in the midst of
// that of "broken".
type fakeWork struct {
	mu     sync.Mutex
	called []string // guarded by mu
}

func (f *fakeWork) note(ref string, format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, fmt.Sprintf(format, args...))
	if ref == "nobody" {
		return cove.Errorf(cove.NotFound, "there is no sandbox")
	}
	return nil
}

func (f *fakeWork) Import(_ context.Context, ref string, _ sandbox.Caller) (api.ImportedWork, error) {
	return api.ImportedWork{Refs: []api.WorkRef{{Name: "HEAD", ID: "01"}}, Branch: "b", Directory: "/home/import.git"}, f.note(ref, "import")
}

func (f *fakeWork) Diff(_ context.Context, ref string, _ sandbox.Caller, w repos.Work, style repos.DiffStyle, out io.Writer) error {
	if err := f.note(ref, "diff %q %+v", w.Paths, style); err != nil {
		return err
	}
	io.WriteString(out, "+new\n")
	if ref == "broken" {
		return cove.Errorf(cove.TooLarge, "more than is shown")
	}
	return nil
}

func (f *fakeWork) Log(_ context.Context, ref string, _ sandbox.Caller, w repos.Work, short bool, out io.Writer) error {
	return f.note(ref, "log %s %v", w.Ref, short)
}

func (f *fakeWork) Apply(_ context.Context, ref string, _ sandbox.Caller, w repos.Work, dir string, restricted bool) ([]repos.Change, error) {
	there := repos.Entry{Mode: policy.File, ID: "01"}
	return []repos.Change{{Path: "a", New: there, Added: 3}, {Path: "b", Old: there, New: there}, {Path: "c", Old: there}}, f.note(ref, "apply %s %q %v", dir, w.Paths, restricted)
}

func (f *fakeWork) Push(_ context.Context, ref string, _ sandbox.Caller, q api.PushRequest) (api.PushedWork, error) {
	return api.PushedWork{Remote: "https://git.example/r.git", Branch: q.Branch, Commit: "01"}, f.note(ref, "push %s", q.Branch)
}

// TestWorkLeavesForTheOwner: a caller with a key sees what its sandbox has done;
// only the machine's owner has it applied to a directory, or pushed with the
// machine's credentials.
func TestWorkLeavesForTheOwner(t *testing.T) {
	h := start(t, withKeys)
	dir := t.TempDir()
	for _, c := range []struct{ path, body string }{{"/sandboxes/x/apply", `{"directory":"` + dir + `"}`}, {"/sandboxes/x/push", `{"branch":"b"}`}} {
		if r := h.do(h.client, "POST", c.path, c.body, "X-API-Key", "cove_right"); r.StatusCode != 403 {
			t.Errorf("%s with a key: %d", c.path, r.StatusCode)
		}
	}
	if len(h.work.called) > 0 {
		t.Errorf("somebody else did %q", h.work.called)
	}
	if w := decode[api.ImportedWork](t, h.do(h.client, "POST", "/sandboxes/x/import", "", "X-API-Key", "cove_right"), 200); w.Directory != "" || len(w.Refs) != 1 {
		t.Errorf("%+v", w)
	}
	if w := decode[api.ImportedWork](t, h.do(h.owner, "POST", "/sandboxes/x/import", ""), 200); w.Directory == "" {
		t.Errorf("%+v", w)
	}
	done := decode[api.AppliedWork](t, h.do(h.owner, "POST", "/sandboxes/x/apply", `{"directory":"`+dir+`","paths":["a"],"restricted":true}`), 200)
	if fmt.Sprint(done.Changes) != "[{a added 3 0} {b changed 0 0} {c deleted 0 0}]" {
		t.Errorf("%+v", done)
	}
	if r := h.do(h.owner, "POST", "/sandboxes/x/apply", `{"directory":"/etc"}`); r.StatusCode != 403 {
		t.Errorf("applied to /etc: %d %s", r.StatusCode, r.body)
	}
	if p := decode[api.PushedWork](t, h.do(h.owner, "POST", "/sandboxes/x/push", `{"branch":"b"}`), 200); p.Branch != "b" {
		t.Errorf("%+v", p)
	}
	want := []string{"import", "import", "apply " + dir + ` ["a"] true`, "push b"}
	if fmt.Sprint(h.work.called) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", h.work.called, want)
	}
}

// TestWorkIsText: what fails before there is any has a status, and what fails
// later does not look whole.
func TestWorkIsText(t *testing.T) {
	h := start(t, nil)
	r := h.do(h.client, "GET", "/sandboxes/x/diff?path=a&path=b+c&stat=true", "")
	if r.StatusCode != 200 || r.body != "+new\n" || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%d %q", r.StatusCode, r.body)
	}
	if r := h.do(h.client, "GET", "/sandboxes/x/log?short=true", ""); r.StatusCode != 200 || r.body != "" {
		t.Errorf("%d %q", r.StatusCode, r.body)
	}
	if r := h.do(h.client, "GET", "/sandboxes/nobody/diff", ""); r.StatusCode != 404 {
		t.Errorf("%d %q", r.StatusCode, r.body)
	}
	if want := `diff ["a" "b c"] {Stat:true Names:false Color:false}`; h.work.called[0] != want {
		t.Errorf("%q, want %q", h.work.called[0], want)
	}
	resp, err := h.client.Get(h.url + "/sandboxes/broken/diff")
	if err != nil {
		return // not even a head has come
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("half of it looks whole: %q", text)
	}
}
