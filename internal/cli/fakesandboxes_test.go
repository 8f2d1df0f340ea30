package cli_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// fakeSandboxes answers like a server's detached sandboxes. What was sent to
// make one is its label "request". A branch has a meaning:
//
//	fail        an error after the first step
//	wait        until the caller has gone
//	unpushable  the repository has no remote
type fakeSandboxes struct {
	mu      *sync.Mutex
	all     []api.Sandbox // guarded by mu
	orphans []string      // guarded by mu
	freed   int64         // guarded by mu
}

func newFakeSandboxes() fakeSandboxes {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return fakeSandboxes{mu: new(sync.Mutex), orphans: []string{"sb_zzzzzzzzzzzzzzzzzzzzzzzzzz"}, all: []api.Sandbox{{
		ID: "sb_0123456789abcdefghjkmnpqrs", Name: "calm-heron", State: "stopped", Engine: "native", Image: "host",
		Directory: "/nowhere/calm", WorkDir: "/workspace", Network: "limited",
		Repository: &api.SandboxRepository{Source: "owner/repo", Remote: "https://github.com/owner/repo.git",
			Branch: "cove/calm-heron", From: "main", Base: "0123456789abcdef0123456789abcdef01234567"},
		Limits:   api.Limits{MemoryMB: 2048, CPUs: 1.5, PIDs: 300, DiskMB: 1024},
		Mounts:   []api.Mount{{Source: "/srv/data", Target: "/data", ReadOnly: true}},
		Labels:   map[string]string{"stage": "ci"},
		DiskUsed: 3 << 20, DiskBound: "image", CreatedBy: "local", CreatedAt: at, LastUsedAt: at,
	}}}
}

func (f *fakeSandboxes) sandboxRoutes(mux *http.ServeMux) {
	stored := api.StoredRepository{Source: "https://github.com/owner/repo.git", Name: "github.com/owner/repo",
		Size: 5 << 20, FetchedAt: time.Now(), UsedAt: time.Now(), Sandboxes: []string{"sb_0123456789abcdefghjkmnpqrs"},
		Kept: []string{"/home/ada/.cove/workspaces/sb_x/checkout"}}
	mux.HandleFunc("GET /repositories", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		r := stored
		r.Size -= f.freed
		reply(w, 200, api.StoredRepositories{Repositories: []api.StoredRepository{r}})
	})
	mux.HandleFunc("POST /repositories", func(w http.ResponseWriter, r *http.Request) {
		var req api.FetchRepositoryRequest
		json.NewDecoder(r.Body).Decode(&req)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: progress\ndata: {\"step\":\"fetching %s\",\"elapsed\":0.5}\n\n", req.Source)
		fetched := stored
		fetched.Partial = req.Partial
		b, _ := json.Marshal(fetched)
		fmt.Fprintf(w, "event: fetched\ndata: %s\n\n", b)
	})
	mux.HandleFunc("DELETE /repositories", func(w http.ResponseWriter, r *http.Request) {
		reply(w, 409, api.Error{Error: "1 workspaces borrow from " + r.URL.Query().Get("source"),
			Code: string(cove.Conflict)})
	})
	mux.HandleFunc("POST /repositories/collect", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.freed = 1 << 20
		w.WriteHeader(204)
	})
	f.workRoutes(mux)
	mux.HandleFunc("GET /sandboxes", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		l := api.SandboxList{Sandboxes: []api.Sandbox{}, Orphans: f.orphans}
		for _, s := range f.all {
			if labeled(r, s.Labels) {
				l.Sandboxes = append(l.Sandboxes, s)
			}
		}
		reply(w, 200, l)
	})
	mux.HandleFunc("POST /sandboxes", f.create)
	mux.HandleFunc("GET /sandboxes/{sandbox}", f.change(func(*api.Sandbox) {}))
	mux.HandleFunc("GET /sandboxes/{sandbox}/network", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, api.SandboxNetwork{Mode: "limited", Providers: []string{"house"}, Credentials: []string{"anthropic"}})
	})
	for action, state := range map[string]string{"start": "running", "stop": "stopped", "pause": "paused",
		"resume": "running"} {
		mux.HandleFunc("POST /sandboxes/{sandbox}/"+action, f.change(func(s *api.Sandbox) { s.State = state }))
	}
	mux.HandleFunc("PATCH /sandboxes/{sandbox}", func(w http.ResponseWriter, r *http.Request) {
		var c api.SandboxChange
		json.NewDecoder(r.Body).Decode(&c)
		f.change(func(s *api.Sandbox) {
			s.Name, s.Limits.DiskMB = cmp.Or(c.Name, s.Name), cmp.Or(c.DiskMB, s.Limits.DiskMB)
		})(w, r)
	})
	mux.HandleFunc("DELETE /sandboxes/{sandbox}", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all = slices.DeleteFunc(f.all, func(s api.Sandbox) bool { return s.ID == r.PathValue("sandbox") })
		f.orphans = slices.DeleteFunc(f.orphans, func(id string) bool { return id == r.PathValue("sandbox") })
		w.WriteHeader(204)
	})
}

func (f *fakeSandboxes) change(do func(*api.Sandbox)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range f.all {
			if s := &f.all[i]; s.ID == r.PathValue("sandbox") {
				do(s)
				reply(w, 200, s)
				return
			}
		}
		reply(w, 404, api.Error{Error: "no sandbox " + r.PathValue("sandbox"), Code: string(cove.NotFound)})
	}
}

func (f *fakeSandboxes) create(w http.ResponseWriter, r *http.Request) {
	var req api.SandboxRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		reply(w, 400, api.Error{Error: err.Error(), Code: string(cove.InvalidArgument)})
		return
	}
	sent, _ := json.Marshal(req)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(name string, v any) {
		b, _ := json.Marshal(v)
		fmt.Fprintf(w, "id: 0\nevent: %s\ndata: %s\n\n", name, b)
		w.(http.Flusher).Flush()
	}
	s := api.Sandbox{ID: string(cove.NewSandboxID()), Name: req.Name, State: "running", Engine: "native", Image: "host",
		Agent: req.Agent, Directory: "/nowhere/new", WorkDir: "/workspace", Network: "none",
		Mounts: []api.Mount{}, Labels: map[string]string{"request": string(sent)}, CreatedBy: "local", CreatedAt: time.Now(),
		LastUsedAt: time.Now()}
	maps.Copy(s.Labels, req.Labels)
	if s.Name == "" {
		s.Name = "brave-otter"
	}
	if req.Repository != nil {
		branch := req.Repository.Branch
		send(api.EventProgress, api.Progress{Step: "fetching \x1b]0;owned\a" + req.Repository.Source, Done: 0.5,
			Elapsed: 0.001})
		switch branch {
		case "fail":
			send(api.EventError, api.Error{Error: "the repository is not there (look again)", Hint: "look again",
				Code: string(cove.NotFound)})
			return
		case "wait":
			<-r.Context().Done()
			return
		case "":
			branch = "cove/" + s.Name
		}
		send(api.EventProgress, api.Progress{Step: "checking out " + branch, Elapsed: 1.251})
		s.Repository = &api.SandboxRepository{Source: req.Repository.Source, Branch: branch, From: "main",
			Base: strings.Repeat("ab", 20), Worktree: req.Repository.Worktree,
			Remote: "https://git.example/owner/repo.git"}
		if branch == "unpushable" {
			s.Repository.Remote = ""
		}
	}
	send(api.EventProgress, api.Progress{Step: "starting", Elapsed: 1.301})
	f.mu.Lock()
	f.all = append(f.all, s)
	f.mu.Unlock()
	send(api.EventCreated, s)
}

// hostile is a patch of somebody who means harm to a terminal.
// toChoose are the changes of an agent that is told to change choose.go.
var toChoose = []api.WorkChange{
	{Path: "choose.go", Change: "changed", Added: 3, Removed: 1, NewID: "01", Patch: "diff --git a/choose.go b/c\n" +
		"--- a/choose.go\n+++ b/choose.go\n@@ -1,3 +1,4 @@\n-1\n+one\n 2\n+two and a half\n 3\n" +
		"@@ -20 +21,2 @@\n 20\n+more \x1b]0;owned\a\n"},
	{Path: "old.txt", OldPath: "older.txt", Change: "renamed", NewID: "02", Patch: "diff --git a/older.txt b/old.txt\n" +
		"similarity index 100%\nrename from older.txt\nrename to old.txt\n"},
	{Path: "x/__pycache__/a.pyc", Change: "added", Binary: true, NewID: "03",
		Patch: "diff --git a/x b/x\nBinary files\n"},
	{Path: "logo.png", Change: "added", Binary: true, NewID: "04", Patch: "diff --git a/l b/l\nBinary files\n"},
}

const hostile = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+\tnew \x1b]0;owned\a\n"

// workRoutes bring work back. The directory of what was imported is import.git
// beside the repository that the sandbox was made from.
func (f *fakeSandboxes) workRoutes(mux *http.ServeMux) {
	of := func(r *http.Request) (s api.Sandbox) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s = range f.all {
			if s.ID == r.PathValue("sandbox") {
				break
			}
		}
		return s
	}
	// git inside says what it was told to do; a branch with "refused" is not taken.
	mux.HandleFunc("POST /sandboxes/{sandbox}/exec", func(w http.ResponseWriter, r *http.Request) {
		var req api.ExecRequest
		json.NewDecoder(r.Body).Decode(&req)
		w.Header().Set("Content-Type", "text/event-stream")
		result := api.ExecResult{}
		if strings.Contains(req.Args[2], "git push") && strings.Contains(req.Args[4], "refused") {
			result.ExitCode = 1
			b, _ := json.Marshal(api.OutputEvent{Data: "remote: Cove refuses this push \x1b[2J\n"})
			fmt.Fprintf(w, "event: stderr\ndata: %s\n\n", b)
		}
		b, _ := json.Marshal(result)
		fmt.Fprintf(w, "event: done\ndata: %s\n\n", b)
	})
	mux.HandleFunc("POST /sandboxes/{sandbox}/import", func(w http.ResponseWriter, r *http.Request) {
		s := of(r)
		done := api.ImportedWork{Branch: s.Repository.Branch, Remote: "https://git.example/owner/repo.git",
			Base: s.Repository.Base, Directory: filepath.Join(filepath.Dir(s.Repository.Source), "import.git")}
		out, err := exec.Command("git", "-C", done.Directory, "for-each-ref", "--format=%(objectname) %(refname)",
			"refs/sandbox").Output()
		if err != nil {
			out = []byte("0123456789012345678901234567890123456789 refs/sandbox/HEAD\n")
		}
		for line := range strings.Lines(string(out)) {
			id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			done.Refs = append(done.Refs, api.WorkRef{Name: strings.TrimPrefix(name, "refs/sandbox/"), ID: id})
		}
		reply(w, 200, done)
	})
	mux.HandleFunc("GET /sandboxes/{sandbox}/diff", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if changed := of(r).Labels["changes"]; changed != "" && !q.Has("path") && (q.Has("stat") || q.Has("names")) {
			for file := range strings.FieldsSeq(changed) {
				fmt.Fprintf(w, map[bool]string{true: " %s | 1 +\n", false: "%s\n"}[q.Has("stat")], file)
			}
			return
		}
		if q.Has("path") || q.Has("stat") || q.Has("names") {
			fmt.Fprintf(w, "stat=%s names=%s path=%q\n", q.Get("stat"), q.Get("names"), q["path"])
			return
		}
		fmt.Fprint(w, hostile)
	})
	mux.HandleFunc("POST /sandboxes/{sandbox}/pull", func(w http.ResponseWriter, r *http.Request) {
		var req api.PullRequest
		json.NewDecoder(r.Body).Decode(&req)
		if !req.Draft {
			reply(w, 501, api.Error{Error: "this is no GitHub", Code: string(cove.Unsupported)})
			return
		}
		reply(w, 200, api.OpenedPull{URL: "https://git.example/" + req.Branch + "/" + req.Base + "/" + req.Title, Number: 7})
	})
	mux.HandleFunc("GET /sandboxes/{sandbox}/changes", func(w http.ResponseWriter, r *http.Request) {
		if of(r).ID != r.PathValue("sandbox") {
			reply(w, 404, api.Error{Error: "no sandbox " + r.PathValue("sandbox"), Code: string(cove.NotFound)})
			return
		}
		if of(r).Labels["lost"] != "" {
			reply(w, 501, api.Error{Error: "git in the sandbox cannot say what has changed", Code: string(cove.Unsupported)})
			return
		}
		if strings.Contains(of(r).Labels["changes"], "choose.go") {
			reply(w, 200, api.WorkChanges{Changes: toChoose})
			return
		}
		reply(w, 200, api.WorkChanges{Changes: []api.WorkChange{{Path: r.URL.RawQuery, Change: "changed", Patch: hostile}}})
	})
	mux.HandleFunc("GET /sandboxes/{sandbox}/held", func(w http.ResponseWriter, r *http.Request) {
		var held api.HeldWork
		switch {
		case of(r).ID != r.PathValue("sandbox"):
			reply(w, 404, api.Error{Error: "no sandbox " + r.PathValue("sandbox"), Code: string(cove.NotFound)})
			return
		case of(r).Labels["aside"] != "": // two commits, one of them on a branch that is not checked out
			held = api.HeldWork{Commits: 2, Aside: 1}
		}
		reply(w, 200, held)
	})
	mux.HandleFunc("GET /sandboxes/{sandbox}/commits", func(w http.ResponseWriter, r *http.Request) {
		reply(w, 200, api.WorkCommits{Commits: []api.WorkCommit{{ID: "01", Message: hostile}}})
	})
	mux.HandleFunc("GET /sandboxes/{sandbox}/log", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "0123456 Say hello \x1b[2J%s\n", r.URL.Query().Get("short"))
	})
	mux.HandleFunc("POST /sandboxes/{sandbox}/apply", func(w http.ResponseWriter, r *http.Request) {
		var req api.ApplyRequest
		json.NewDecoder(r.Body).Decode(&req)
		if changed := of(r).Labels["changes"]; changed != "" { // an agent has run in it
			if req.Choice != nil {
				reply(w, 200, api.AppliedWork{Changes: []api.WorkChange{{Path: fmt.Sprint(req.Choice), Change: "changed"}}})
				return
			}
			if !strings.Contains(changed, ".github/") {
				reply(w, 200, api.AppliedWork{Changes: []api.WorkChange{{Path: changed, Change: "changed"}}})
				return
			}
		}
		if !req.Restricted {
			reply(w, 403, api.Error{Error: `".github/workflows/ci.yaml" is not applied: it decides what others run`,
				Code: string(cove.Forbidden)})
			return
		}
		reply(w, 200, api.AppliedWork{Changes: []api.WorkChange{{Path: req.Directory, Change: "changed"},
			{Path: fmt.Sprint(req.Paths), Change: "added"}}})
	})
	mux.HandleFunc("POST /sandboxes/{sandbox}/push", func(w http.ResponseWriter, r *http.Request) {
		var req api.PushRequest
		json.NewDecoder(r.Body).Decode(&req)
		if req.Branch == "" {
			req.Branch = of(r).Repository.Branch
		}
		reply(w, 200, api.PushedWork{Remote: "https://git.example/owner/repo.git", Branch: req.Branch,
			Commit: "0123456789012345678901234567890123456789"})
	})
}
