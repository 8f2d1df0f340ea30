package httpapi

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/git/forge"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/work"
)

// fakeWork is the work of any sandbox but "nobody", and breaks in the midst of that of "broken".
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

func (f *fakeWork) Import(_ context.Context, _ cove.Principal, ref string) (work.Imported, error) {
	return work.Imported{Refs: []repos.Ref{{Name: "HEAD", ID: "01"}}, Branch: "b", Directory: "/home/import.git"},
		f.note(ref, "import")
}

func (f *fakeWork) Diff(_ context.Context, _ cove.Principal, ref string, w repos.Work, style repos.DiffStyle,
	out io.Writer) error {
	if err := f.note(ref, "diff %q %+v", w.Paths, style); err != nil {
		return err
	}
	io.WriteString(out, "+new\n")
	if ref == "broken" {
		return cove.Errorf(cove.TooLarge, "more than is shown")
	}
	return nil
}

func (f *fakeWork) Send(_ context.Context, _ cove.Principal, ref string, _ io.Writer) error {
	return f.note(ref, "send")
}

func (f *fakeWork) Log(_ context.Context, _ cove.Principal, ref string, w repos.Work, short bool, out io.Writer) error {
	return f.note(ref, "log %s %v", w.Ref, short)
}

func (f *fakeWork) Changes(_ context.Context, _ cove.Principal, ref string, w repos.Work,
	style repos.ChangeStyle) ([]repos.Change, error) {
	program := repos.Entry{Mode: policy.Program, ID: "01"}
	return []repos.Change{{Path: "new", OldPath: "old", Old: repos.Entry{Mode: policy.File, ID: "01"}, New: program,
		Patch: "diff"}, {Path: "bin\xff", New: program, Binary: true}}, f.note(ref, "changes %q %+v", w.Paths, style)
}

func (f *fakeWork) Commits(_ context.Context, _ cove.Principal, ref string, w repos.Work) ([]repos.Commit, error) {
	who := repos.Person{Name: "A", Email: "a@x.example", Time: time.Unix(1_700_000_000, 0).UTC()}
	return []repos.Commit{{ID: "02", Parents: []string{"01"}, Author: who, Committer: repos.Person{Name: "B"},
		Message: "say\n\nmore"}, {ID: "01"}}, f.note(ref, "commits %q", w.Paths)
}

func (f *fakeWork) Held(_ context.Context, _ cove.Principal, ref string) (repos.Held, error) {
	return repos.Held{Commits: 2, Files: 1}, f.note(ref, "held")
}

func (f *fakeWork) Apply(_ context.Context, _ cove.Principal, ref string, w repos.Work, dir string,
	style repos.ApplyStyle) (repos.Applied, error) {
	there := repos.Entry{Mode: policy.File, ID: "01"}
	done := repos.Applied{Changes: []repos.Change{{Path: "a", New: there, Added: 3}, {Path: "b", Old: there, New: there},
		{Path: "c", Old: there}}}
	if style.Merge {
		done.Merged, done.Conflicts = []string{"b"}, []repos.Clash{{Path: "c", Why: "it differs", Markers: true}}
	}
	return done, f.note(ref, "apply %s %q %v", dir, w.Paths, style.Restricted)
}

func (f *fakeWork) Push(_ context.Context, _ cove.Principal, ref string, q work.Push) (work.Pushed, error) {
	return work.Pushed{Remote: "https://git.example/r.git", Branch: q.Branch, Commit: "01"},
		f.note(ref, "push %s", q.Branch)
}

func (f *fakeWork) Pull(_ context.Context, _ cove.Principal, ref string, q forge.Pull) (forge.Opened, error) {
	return forge.Opened{URL: "https://git.example/pull/1", Number: 1}, f.note(ref, "pull %+v", q)
}

// TestWorkLeavesForTheOwner: a caller with a key sees what its sandbox has done; only the machine's owner has it
// applied to a directory, or pushed with the machine's credentials.
func TestWorkLeavesForTheOwner(t *testing.T) {
	h := start(t, withKeys)
	dir := t.TempDir()
	for _, c := range []struct{ path, body string }{{"/sandboxes/x/apply", `{"directory":"` + dir + `"}`},
		{"/sandboxes/x/push", `{"branch":"b"}`}, {"/sandboxes/x/pull", `{"branch":"b","base":"main","title":"t"}`}} {
		if r := h.do(h.client, "POST", c.path, c.body, "X-API-Key", "cove_right"); r.StatusCode != 403 {
			t.Errorf("%s with a key: %d", c.path, r.StatusCode)
		}
	}
	if len(h.work.called) > 0 {
		t.Errorf("somebody else did %q", h.work.called)
	}
	if w := decode[api.ImportedWork](t, h.do(h.client, "POST", "/sandboxes/x/import", "", "X-API-Key", "cove_right"),
		200); w.Directory != "" || len(w.Refs) != 1 {
		t.Errorf("%+v", w)
	}
	if w := decode[api.ImportedWork](t, h.do(h.owner, "POST", "/sandboxes/x/import", ""), 200); w.Directory == "" {
		t.Errorf("%+v", w)
	}
	done := decode[api.AppliedWork](t, h.do(h.owner, "POST", "/sandboxes/x/apply",
		`{"directory":"`+dir+`","paths":["a"],"restricted":true}`), 200)
	for i, want := range []api.WorkChange{{Path: "a", Change: "added", NewMode: "100644", NewID: "01", Added: 3}, {Path: "b",
		Change: "changed", OldMode: "100644", NewMode: "100644", NewID: "01"}, {Path: "c", Change: "deleted", OldMode: "100644"}} {
		if done.Changes[i] != want {
			t.Errorf("%+v, want %+v", done.Changes[i], want)
		}
	}
	merged := decode[api.AppliedWork](t, h.do(h.owner, "POST", "/sandboxes/x/apply",
		`{"directory":"`+dir+`","merge":true}`), 200)
	if len(merged.Changes) != 2 || merged.Changes[1].Change != "merged" || len(merged.Conflicts) != 1 ||
		merged.Conflicts[0] != (api.WorkConflict{Path: "c", Why: "it differs", Markers: true}) {
		t.Errorf("merged %+v", merged)
	}
	if r := h.do(h.owner, "POST", "/sandboxes/x/apply", `{"directory":"/etc"}`); r.StatusCode != 403 {
		t.Errorf("applied to /etc: %d %s", r.StatusCode, r.body)
	}
	if p := decode[api.PushedWork](t, h.do(h.owner, "POST", "/sandboxes/x/push", `{"branch":"b"}`), 200); p.Branch != "b" {
		t.Errorf("%+v", p)
	}
	want := []string{"import", "import", "apply " + dir + ` ["a"] true`, "apply " + dir + ` [] false`, "push b"}
	if fmt.Sprint(h.work.called) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", h.work.called, want)
	}
}

// TestWorkIsListed: for programs, everything that is known is there.
func TestWorkIsListed(t *testing.T) {
	h := start(t, nil)
	for path, want := range map[string]string{
		"changes?patch=true&path=a": `{"changes":[{"path":"new","old_path":"old","change":"renamed","old_mode":"100644","new_mode":"100755","new_id":"01","added":0,"removed":0,"patch":"diff"},` +
			`{"path":"bin\ufffd","change":"added","new_mode":"100755","new_id":"01","added":0,"removed":0,"binary":true}]}`,
		"commits?path=a": `{"commits":[{"id":"02","parents":["01"],"author":{"name":"A","email":"a@x.example","time":"2023-11-14T22:13:20Z"},"committer":{"name":"B","email":""},"message":"say\n\nmore"},` +
			`{"id":"01","parents":[],"author":{"name":"","email":""},"committer":{"name":"","email":""},"message":""}]}`,
		"held": `{"commits":2,"aside":0,"files":1}`,
	} {
		if r := h.do(h.client, "GET", "/sandboxes/x/"+path, ""); r.StatusCode != 200 || strings.TrimSpace(r.body) != want {
			t.Errorf("%s: %d\n%s, want\n%s", path, r.StatusCode, r.body, want)
		}
		if r := h.do(h.client, "GET", "/sandboxes/nobody/"+path, ""); r.StatusCode != 404 {
			t.Errorf("%s of nobody: %d", path, r.StatusCode)
		}
	}
	called := strings.Join(h.work.called, "; ")
	for _, want := range []string{`changes ["a"] {Renames:true Patches:true}`, `commits ["a"]`} {
		if !strings.Contains(called, want) {
			t.Errorf("called %s", called)
		}
	}
}

// TestWorkIsText: what fails before there is any has a status, and what fails later does not look whole.
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
	if want := `diff ["a" "b c"] {Stat:true Names:false Binary:false Color:false}`; h.work.called[0] != want {
		t.Errorf("%q, want %q", h.work.called[0], want)
	}
	h.do(h.client, "GET", "/sandboxes/x/diff?binary=true", "")
	if want := `diff [] {Stat:false Names:false Binary:true Color:false}`; !slices.Contains(h.work.called, want) {
		t.Errorf("%q, want %q", h.work.called, want)
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
