package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// fakeRuns runs an agent with the same messages each time. A run of the name "nobody" is not found.
type fakeRuns struct {
	refuse error         // of Begin
	steps  []string      // before a run begins
	hangs  chan struct{} // closed when a run that follows goes on; nil: it does at once

	mu     sync.Mutex
	called []string       // guarded by mu
	begun  run.Request    // guarded by mu
	who    cove.Principal // who asked for it
}

func (f *fakeRuns) note(ref, format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, fmt.Sprintf(format, args...))
	if ref == "nobody" {
		return cove.Errorf(cove.NotFound, "there is no run %q", ref)
	}
	return nil
}

func (f *fakeRuns) notes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.called)
}

func (f *fakeRuns) asked() run.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

func (f *fakeRuns) run(status store.RunStatus) store.Run {
	return store.Run{ID: "ru_0123456789abcdefghjkmnpqrs", Agent: "claude", Prompt: "mend it", Status: status,
		CreatedBy: "local", StartedAt: time.Unix(1_900_000_000, 0).UTC()}
}

func (f *fakeRuns) Check(context.Context, cove.Principal, run.Request) error { return f.refuse }

func (f *fakeRuns) Begin(_ context.Context, who cove.Principal, q run.Request) (store.Run, error) {
	f.mu.Lock()
	f.begun, f.who = q, who
	f.mu.Unlock()
	for _, s := range f.steps {
		q.Progress(workspace.Step{Text: s, Bytes: 3, Total: 9})
	}
	return f.run(store.RunRunning), f.refuse
}

func (f *fakeRuns) Follow(ctx context.Context, who cove.Principal, ref string, after int, begun func(store.Run) error,
	take func(run.Event) error) (store.Run, error) {
	if err := f.note(ref, "follow %s after %d", ref, after); err != nil {
		return store.Run{}, err
	}
	if err := begun(f.run(store.RunRunning)); err != nil {
		return store.Run{}, err
	}
	for i, e := range []run.Event{
		{Seq: 1, Message: &api.Message{Version: 1, Type: api.MessageThinking, Content: "hm"}},
		{Seq: 2, Log: "a warning\n"},
		{Seq: 2, Decision: &decision.Decision{Verdict: decision.Deny, Host: "denied.example",
			Time: time.Unix(1_900_000_000, 0).UTC()}},
		{Seq: 2, Asked: true, Holds: []approval.Hold{}},
		{Seq: 3, Message: &api.Message{Version: 1, Type: api.MessageResult, Content: "done"}},
	} {
		if i == 1 && f.hangs != nil {
			select {
			case <-f.hangs:
			case <-ctx.Done():
				return store.Run{}, cove.Errorf(cove.Canceled, "the follower went away: %w", ctx.Err())
			}
		}
		if e.Seq <= after {
			continue
		}
		if err := take(e); err != nil {
			return store.Run{}, err
		}
	}
	ended, code := f.run(store.RunSucceeded), 0
	at := ended.StartedAt.Add(2 * time.Second)
	ended.EndedAt, ended.ExitCode, ended.Result = &at, &code, "done"
	return ended, nil
}

func (f *fakeRuns) Runs(_ context.Context, who cove.Principal, q store.RunQuery) (store.RunPage, error) {
	return store.RunPage{Runs: []store.Run{f.run(store.RunSucceeded)}, Next: "more"}, f.note("", "list %+v", q)
}

func (f *fakeRuns) Run(_ context.Context, _ cove.Principal, ref string) (store.Run, error) {
	return f.run(store.RunSucceeded), f.note(ref, "get %s", ref)
}

func (f *fakeRuns) Interrupt(_ context.Context, _ cove.Principal, ref string, kill bool) error {
	return f.note(ref, "interrupt %s %v", ref, kill)
}

func (f *fakeRuns) Remove(_ context.Context, _ cove.Principal, ref string) error {
	return f.note(ref, "remove %s", ref)
}

func (f *fakeRuns) Export(_ context.Context, _ cove.Principal, ref string, out io.Writer) error {
	if err := f.note(ref, "export %s", ref); err != nil {
		return err
	}
	_, err := io.WriteString(out, "an archive")
	return err
}

func (f *fakeRuns) Recording(_ context.Context, _ cove.Principal, ref, terminal string, out io.Writer) error {
	if err := f.note(ref, "recording %s %s", ref, terminal); err != nil {
		return err
	}
	_, err := io.WriteString(out, `{"version":2}`)
	return err
}

const someRun = "ru_0123456789abcdefghjkmnpqrs"

// told are the events of an answer, in short.
func told(t *testing.T, r reply) []string {
	t.Helper()
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s %s", r.StatusCode, r.Header.Get("Content-Type"), r.body)
	}
	events, _ := readEvents(t, strings.NewReader(r.body))
	var all []string
	for _, e := range events {
		if !json.Valid([]byte(e.data)) {
			t.Errorf("%+v", e)
		}
		all = append(all, strings.TrimSpace(e.id+" "+e.event))
	}
	return all
}

// TestRunEvents: what happens in a run comes as events, whoever begins it or follows it, from where they left off.
func TestRunEvents(t *testing.T) {
	h := start(t, nil)
	h.runs.steps = []string{"copying", "starting"}
	all := []string{"0 progress", "0 progress", "0 run", "1 message", "2 log", "2 decision", "2 holds",
		"3 message", "0 done"}
	if got := told(t, h.post("/runs", `{"agent":"claude","prompt":"mend it"}`)); !slices.Equal(got, all) {
		t.Errorf("%q, want %q", got, all)
	}
	if got := told(t, h.get("/runs/"+someRun+"/events")); !slices.Equal(got, all[2:]) {
		t.Errorf("%q, want %q", got, all[2:])
	}
	if got := told(t, h.get("/runs/"+someRun+"/events", "Last-Event-ID", "2")); !slices.Equal(got,
		[]string{"2 run", "3 message", "0 done"}) {
		t.Errorf("after 2: %q", got)
	}
	for _, id := range []string{"x", "-1", "1.5", "99999999999"} {
		if r := h.get("/runs/"+someRun+"/events", "Last-Event-ID", id); r.StatusCode != http.StatusBadRequest {
			t.Errorf("after %q: %d %s", id, r.StatusCode, r.body)
		}
	}
	if r := h.get("/runs/nobody/events"); r.StatusCode != http.StatusNotFound {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

// TestRunsThatDoNotBegin: a status tells it, or an event where there were some.
func TestRunsThatDoNotBegin(t *testing.T) {
	h := start(t, nil)
	h.runs.refuse = cove.Errorf(cove.RuntimeMissing, "claude is not installed").WithHint("cove agents install claude")
	if r := h.post("/runs", `{"agent":"claude","prompt":"mend it"}`); r.StatusCode < 400 ||
		r.error(t).Code != string(cove.RuntimeMissing) {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	h.runs.steps = []string{"copying"}
	r := h.post("/runs", `{"agent":"claude","prompt":"mend it"}`)
	if got := told(t, r); !slices.Equal(got, []string{"0 progress", "0 error"}) ||
		!strings.Contains(r.body, `"step":"copying","bytes":3,"total":9,`) ||
		!strings.Contains(r.body, "cove agents install claude") {
		t.Errorf("%q %s", got, r.body)
	}
	if notes := h.runs.notes(); len(notes) != 0 {
		t.Errorf("%q", notes)
	}

	const task = `{"agent":"claude","prompt":"mend it"}`
	if r := h.post("/runs/check", task); r.StatusCode < 400 || r.error(t).Code != string(cove.RuntimeMissing) {
		t.Errorf("checked: %d %s", r.StatusCode, r.body)
	}
	h.runs.refuse = nil
	if r := h.post("/runs/check", task); r.StatusCode != 204 || r.body != "" {
		t.Errorf("checked: %d %s", r.StatusCode, r.body)
	}
	if r := h.post("/runs/check", `{"agent":"claude","prompt":"p","new":{"profile":"nobody"}}`); r.StatusCode != 404 {
		t.Errorf("a profile that is not there: %d %s", r.StatusCode, r.body)
	}
}

// TestRunRequests: what is asked for is what the agent is given, and what makes
// no sense, or is not for the caller, is refused.
func TestRunRequests(t *testing.T) {
	h := start(t, func(o *Options) {
		o.Profiles = func() ([]api.Profile, error) {
			return []api.Profile{{Name: "careful", Agent: "codex", Model: "m1", Instructions: "be brief", MaxTurns: 7,
				Timeout: 60, Provider: "team", Access: "proxy"}}, nil
		}
	})
	dir := t.TempDir()
	for _, c := range []struct {
		name, body string
		check      func(run.Request) bool
	}{
		{"a task",
			`{"agent":"claude","prompt":"mend it","model":"m","instructions":"be quick","max_turns":3,"schema":{"type":"object"},"timeout":1.5,"keep":true}`, func(q run.Request) bool {
				return h.runs.who.IsOwner() && q.Agent == "claude" && q.Task.Prompt == "mend it" && q.Task.Model == "m" &&
					q.Task.Instructions == "be quick" && q.Task.Turns == 3 && string(q.Task.Schema) == `{"type":"object"}` &&
					q.Timeout == 1500*time.Millisecond && q.Keep && !q.Detach
			}},
		{"one that goes on", `{"prompt":"go on","resume":"` + someRun + `","detach":true}`,
			func(q run.Request) bool { return q.Resume == someRun && q.Detach && q.Agent == "" }},
		{"in a sandbox", `{"agent":"claude","prompt":"p","sandbox":"one"}`,
			func(q run.Request) bool { return q.Sandbox == "one" }},
		{"of a profile", `{"prompt":"p","new":{"profile":"careful"}}`, func(q run.Request) bool {
			return q.Agent == "codex" && q.Task.Model == "m1" && q.Task.Instructions == "be brief" && q.Task.Turns == 7 &&
				q.Timeout == time.Minute && q.Provider == "team" && q.Access == "proxy" && q.New.Profile == "careful"
		}},
		{"what is said beside a profile",
			`{"agent":"claude","prompt":"p","model":"m2","max_turns":1,"timeout":5,"new":{"profile":"careful"}}`,
			func(q run.Request) bool {
				return h.runs.who.IsOwner() && q.Agent == "claude" && q.Task.Model == "m2" && q.Task.Turns == 1 &&
					q.Timeout == 5*time.Second
			}},
		{"a copy of a directory", `{"agent":"claude","prompt":"p","directory":"` + dir + `"}`, func(q run.Request) bool {
			return q.New.Repository != nil && q.New.Repository.Source == dir && q.New.Repository.Uncommitted
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			told(t, h.do(h.owner, "POST", "/runs", c.body))
			if q := h.runs.asked(); !c.check(q) {
				t.Errorf("%+v", q)
			}
		})
	}
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"time below zero", `{"agent":"claude","prompt":"p","timeout":-1}`, 400},
		{"time without end", `{"agent":"claude","prompt":"p","timeout":1e9}`, 400},
		{"a sandbox and a new one", `{"agent":"claude","prompt":"p","sandbox":"one","new":{}}`, 400},
		{"a conversation and a directory", `{"prompt":"p","resume":"r","directory":"/srv"}`, 400},
		{"nothing to bind", `{"agent":"claude","prompt":"p","bind":true}`, 400},
		{"a directory and a repository",
			`{"agent":"claude","prompt":"p","directory":"/srv","new":{"repository":{"source":"o/r"}}}`, 400},
		{"no such profile", `{"prompt":"p","new":{"profile":"other"}}`, 404},
		{"no such field", `{"prompt":"p","command":"rm"}`, 400},
		{"no turns", `{"agent":"claude","prompt":"p","max_turns":-1}`, 400},
		{"system files", `{"agent":"claude","prompt":"p","directory":"/proc"}`, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := h.do(h.owner, "POST", "/runs", c.body); r.StatusCode != c.status {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		})
	}
	t.Run("a directory for who is not the owner", func(t *testing.T) {
		r := h.post("/runs", `{"agent":"claude","prompt":"p","directory":"`+dir+`"}`)
		if records := h.store.audited(); r.StatusCode != http.StatusForbidden || len(records) == 0 ||
			records[len(records)-1].Object != dir {
			t.Errorf("%d %s, records %+v", r.StatusCode, r.body, records)
		}
	})
}

// TestWhoLeavesARun: an agent whose caller has gone is interrupted, unless it was to go on.
func TestWhoLeavesARun(t *testing.T) {
	for body, interrupted := range map[string]bool{`{"agent":"claude","prompt":"p"}`: true,
		`{"agent":"claude","prompt":"p","detach":true}`: false} {
		h := start(t, nil)
		h.runs.hangs = make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/runs", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 20)); err != nil { // it has begun
			t.Fatal(err)
		}
		leave()
		resp.Body.Close()
		want := "interrupt " + someRun + " false"
		await.That(t, body+" ends", func() bool { return h.s.Requests() == 0 })
		if got := slices.Contains(h.runs.notes(), want); got != interrupted {
			t.Errorf("%s: %q", body, h.runs.notes())
		}
	}
}

// TestRunRecords: the record of a run, and what is done with it.
func TestRunRecords(t *testing.T) {
	h := start(t, nil)
	list := decode[api.RunList](t, h.get("/runs?agent=claude&status=failed&sandbox=sb_1&before=x&limit=5"), http.StatusOK)
	if len(list.Runs) != 1 || list.Next != "more" {
		t.Errorf("%+v", list)
	}
	if r := decode[api.Run](t, h.get("/runs/"+someRun), http.StatusOK); r.ID != someRun {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		kind, want         string
	}{
		{"POST", "/interrupt", "{}", 204, "", ""},
		{"POST", "/interrupt", `{"kill":true}`, 204, "", ""},
		{"DELETE", "", "", 204, "", ""},
		{"GET", "/export", "", 200, "application/x-tar", "an archive"},
		{"GET", "/recordings/t1", "", 200, "application/x-asciicast", `{"version":2}`},
	} {
		if r := h.do(h.client, c.method, "/runs/"+someRun+c.path, c.body); r.StatusCode != c.status || c.kind != "" &&
			r.Header.Get("Content-Type") != c.kind || r.body != c.want {
			t.Errorf("%s %s: %d %s %s", c.method, c.path, r.StatusCode, r.Header.Get("Content-Type"), r.body)
		}
		if r := h.do(h.client, c.method, "/runs/nobody"+c.path, c.body); r.StatusCode != http.StatusNotFound ||
			r.error(t).Code != string(cove.NotFound) {
			t.Errorf("%s %s of nobody: %d %s", c.method, c.path, r.StatusCode, r.body)
		}
	}
	want := []string{
		fmt.Sprintf("list %+v", store.RunQuery{Agent: "claude", Status: "failed", Sandbox: "sb_1", Cursor: "x", Limit: 5}),
		"get " + someRun,
		"interrupt " + someRun + " false", "interrupt nobody false", "interrupt " + someRun + " true",
		"interrupt nobody true", "remove " + someRun, "remove nobody",
		"export " + someRun, "export nobody", "recording " + someRun + " t1", "recording nobody t1",
	}
	if got := h.runs.notes(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, query := range []string{"status=lost", "limit=0", "limit=501", "limit=x"} {
		if r := h.get("/runs?" + query); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, r.StatusCode, r.body)
		}
	}
}

// TestAgentAsALanguage: an agent stands where a language does, and its messages are its output.
func TestAgentAsALanguage(t *testing.T) {
	h := start(t, nil)
	const body = `{"language":"claude","code":"mend it","timeout":9}`
	done := decode[api.Execution](t, h.post("/execute", body), http.StatusOK)
	if done.ID != string(someAgent) ||
		done.Language != "claude" || done.Status != api.StatusCompleted || done.ExitCode != 0 ||
		done.Duration != 2 || done.Stderr != "a warning\n" ||
		strings.Count(done.Output, "\n") != 2 || !strings.Contains(done.Output, `"type":"result","content":"done"`) {
		t.Errorf("%+v", done)
	}
	if q := h.runs.asked(); q.Task.Prompt != "mend it" || q.Agent != "claude" || q.Timeout != 9*time.Second {
		t.Errorf("%+v", q)
	}
	if got := told(t, h.post("/execute/stream", body)); !slices.ContainsFunc(got,
		func(e string) bool { return strings.HasSuffix(e, "stdout") }) || !strings.HasSuffix(got[len(got)-1], " done") {
		t.Errorf("%q", got)
	}
	for _, wrong := range []string{`{"language":"claude","code":"p","args":["x"]}`,
		`{"language":"claude","code":"p","stdin":"x"}`} {
		if r := h.post("/execute", wrong); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, r.StatusCode, r.body)
		}
	}
	if r := h.post("/execute", `{"language":"cobol","code":"p"}`); strings.Contains(r.body, someRun) {
		t.Errorf("a language that nobody knows is an agent: %s", r.body)
	}
}
