package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// fakeRepositories has one repository, from which a sandbox borrows.
type fakeRepositories struct {
	mu     sync.Mutex
	called []string // guarded by mu
}

func (f *fakeRepositories) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, what)
}

func (f *fakeRepositories) mirror() repos.Mirror {
	return repos.Mirror{Address: "https://git.example/a/b.git", Key: "git.example/a/b", Size: 7,
		FetchedAt: time.Unix(1, 0).UTC(), Borrowers: []cove.SandboxID{"sb_0123456789abcdefghjkmnpqrs"}}
}

func (f *fakeRepositories) Receive(_ context.Context, _ cove.Principal, _ repos.Sending, pack io.Reader) (cove.UploadID,
	int64, error) {
	n, err := io.Copy(io.Discard, pack)
	return cove.NewUploadID(), n, err
}

func (f *fakeRepositories) Mirrors(context.Context, cove.Principal) ([]repos.Mirror, error) {
	f.note("list")
	return []repos.Mirror{f.mirror()}, nil
}

func (f *fakeRepositories) FetchMirror(_ context.Context, who cove.Principal, source string, partial bool,
	progress func(workspace.Step)) (repos.Mirror, error) {
	f.note("fetch " + source)
	if source == "nowhere" {
		return repos.Mirror{}, cove.Errorf(cove.InvalidArgument, "this is no repository")
	}
	progress(workspace.Step{Text: "fetching " + source, Done: 0.5})
	if source == "gone/gone" {
		return repos.Mirror{}, cove.Errorf(cove.NotFound, "it has gone")
	}
	return f.mirror(), nil
}

func (f *fakeRepositories) RemoveMirror(_ context.Context, _ cove.Principal, source string) error {
	f.note("remove " + source)
	return cove.Errorf(cove.Conflict, "1 workspaces borrow from it")
}

func (f *fakeRepositories) CollectMirror(_ context.Context, _ cove.Principal, source string) error {
	f.note("collect " + source)
	return nil
}

// TestRepositories: only the machine's owner sees and changes the store.
func TestRepositories(t *testing.T) {
	h := start(t, withKeys)
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/repositories", ""}, {"POST", "/repositories", `{"source":"a/b"}`},
		{"DELETE", "/repositories?source=a/b", ""}, {"POST", "/repositories/collect", `{"source":"a/b"}`},
	} {
		if r := h.do(h.client, c.method, c.path, c.body, "X-API-Key", "cove_right"); r.StatusCode != 403 {
			t.Errorf("%s %s with a key: %d", c.method, c.path, r.StatusCode)
		}
	}
	if len(h.repositories.called) > 0 {
		t.Errorf("somebody else did %q", h.repositories.called)
	}

	l := decode[api.StoredRepositories](t, h.do(h.owner, "GET", "/repositories", ""), 200)
	if len(l.Repositories) != 1 || l.Repositories[0].Name != "git.example/a/b" || l.Repositories[0].Size != 7 ||
		len(l.Repositories[0].Sandboxes) != 1 {
		t.Errorf("%+v", l)
	}
	if r := h.do(h.owner, "DELETE", "/repositories?source=a/b", ""); r.StatusCode != http.StatusConflict {
		t.Errorf("removed one that is borrowed from: %d", r.StatusCode)
	}
	if r := h.do(h.owner, "POST", "/repositories/collect", `{"source":"a/b"}`); r.StatusCode != 204 {
		t.Errorf("collecting: %d", r.StatusCode)
	}
	for source, want := range map[string][]string{
		"a/b":       {"event: progress", `"step":"fetching a/b","done":0.5`, "event: fetched", `"name":"git.example/a/b"`},
		"gone/gone": {"event: progress", "event: error", `"code":"not_found"`},
		"nowhere":   {`"code":"invalid_argument"`},
	} {
		r := h.do(h.owner, "POST", "/repositories", `{"source":"`+source+`"}`)
		text := r.body
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %s in %s", source, w, text)
			}
		}
		if (r.StatusCode == 200) != (source != "nowhere") {
			t.Errorf("%s: status %d", source, r.StatusCode)
		}
	}
}
