package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/message"
)

func run(agent string) store.Run {
	return store.Run{ID: cove.NewRunID(), Agent: agent, Status: store.RunRunning, CreatedBy: "local", StartedAt: epoch}
}

func runs(t *testing.T, open Open) {
	dir := t.TempDir()
	s := at(t, open, dir)
	whole := run("claude")
	whole.Version, whole.Model, whole.Profile, whole.Prompt = "1.2.3", "m", "p", "'; DROP TABLE \u00e9"
	whole.Sandbox, whole.SandboxName, whole.Directory, whole.Bind = "sb_1", "brave-otter", "/d", true
	whole.Spec = store.RunSpec{Own: true, Keep: true, Dir: "/tmp/x", Schema: []byte(`{"type":"object"}`),
		Deadline: epoch.Add(time.Hour), Terminal: "t1"}
	must(t, s.AddRun(t.Context(), whole))
	wantConflict(t, "a known id", s.AddRun(t.Context(), whole))
	is := func(s store.Store, want store.Run) {
		t.Helper()
		if got, err := s.Run(t.Context(), want.ID); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}
	is(s, whole)
	is(at(t, open, dir), whole)
	wantConflict(t, "removing one that runs", s.RemoveRun(t.Context(), whole.ID))

	end := epoch.Add(time.Minute)
	must(t, s.ChangeRun(t.Context(), whole.ID, func(r *store.Run) error {
		if !reflect.DeepEqual(*r, whole) {
			t.Errorf("to be changed is %+v, want %+v", *r, whole)
		}
		r.Status, r.ExitCode, r.Result, r.Session = store.RunSucceeded, new(0), "done", "s"
		r.Usage = message.AgentUsage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, Cost: 0.5,
			Duration: 6, Turns: 7}
		r.Changes = []store.FileChange{{Path: "a", Change: "added", Added: 1}}
		r.Error, r.Limit, r.EndedAt = &store.Failure{Code: "internal", Error: "x"}, "oom", new(end.Add(time.Nanosecond))
		whole, whole.EndedAt = *r, &end
		r.ID, r.Agent, r.CreatedBy, r.StartedAt = "ru_other", "other", "nobody", end // which are not changed so
		return nil
	}))
	is(s, whole)
	refused := errors.New("refused")
	if s.ChangeRun(t.Context(), whole.ID, func(r *store.Run) error { r.Result = "x"; return refused }) == nil {
		t.Error("a change that is refused is made")
	}
	is(s, whole)

	must(t, s.RemoveRun(t.Context(), whole.ID))
	_, err := s.Run(t.Context(), whole.ID)
	wantCode(t, err, cove.NotFound)
	wantCode(t, s.RemoveRun(t.Context(), whole.ID), cove.NotFound)
	wantCode(t, s.ChangeRun(t.Context(), whole.ID, func(*store.Run) error { return nil }), cove.NotFound)
}

func runQuery(t *testing.T, open Open) {
	s := start(t, open)
	names := map[string]string{}
	var all []store.Run
	for i := range 6 {
		r := run([]string{"claude", "codex"}[i%2])
		r.Status = []store.RunStatus{store.RunRunning, store.RunSucceeded, store.RunFailed}[i/2]
		r.Sandbox, r.CreatedBy = fmt.Sprint("sb_", i%3), fmt.Sprint("key:", i/3)
		must(t, s.AddRun(t.Context(), r))
		names[string(r.ID)] = string(rune('a' + i))
		all = append(all, r)
	}
	for _, c := range []struct {
		name string
		q    store.RunQuery
		want string
	}{
		{"all, newest first", store.RunQuery{}, "fedcba"},
		{"agent", store.RunQuery{Agent: "codex"}, "fdb"},
		{"status", store.RunQuery{Status: store.RunSucceeded}, "dc"},
		{"sandbox", store.RunQuery{Sandbox: "sb_1"}, "eb"},
		{"client", store.RunQuery{Client: "key:0"}, "cba"},
		{"id", store.RunQuery{ID: string(all[3].ID)}, "d"},
		{"the beginning of it", store.RunQuery{ID: string(all[3].ID[:12])}, "d"},
		{"not its middle", store.RunQuery{ID: string(all[3].ID[3:])}, ""},
		{"together", store.RunQuery{Agent: "codex", Status: store.RunRunning, Sandbox: "sb_1", Client: "key:0"}, "b"},
		{"nothing", store.RunQuery{Agent: "' OR '1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, limit := range []int{2, 10} {
				c.q.Limit, c.q.Cursor = limit, ""
				var got string
				for more := true; more; more = c.q.Cursor != "" {
					page, err := s.Runs(t.Context(), c.q)
					must(t, err)
					for _, r := range page.Runs {
						got += names[string(r.ID)]
					}
					c.q.Cursor = page.Next
				}
				if got != c.want {
					t.Errorf("pages of %d: got %q, want %q", limit, got, c.want)
				}
			}
		})
	}
	for _, q := range []store.RunQuery{{}, {Limit: store.MaxPage + 1}, {Limit: 1, Cursor: "x"}} {
		_, err := s.Runs(t.Context(), q)
		wantCode(t, err, cove.InvalidArgument)
	}
}

func runsArePruned(t *testing.T, open Open) {
	s := start(t, open)
	var left []cove.RunID
	for _, end := range []*time.Time{nil, new(epoch), new(epoch.Add(2 * time.Hour))} {
		r := run("claude")
		if r.EndedAt = end; end != nil {
			r.Status = store.RunSucceeded
		}
		must(t, s.AddRun(t.Context(), r))
		if end == nil || end.After(epoch) {
			left = append([]cove.RunID{r.ID}, left...)
		}
	}
	_, err := s.Prune(t.Context(), epoch.Add(time.Hour))
	must(t, err)
	page, err := s.Runs(t.Context(), store.RunQuery{Limit: 10})
	must(t, err)
	var got []cove.RunID
	for _, r := range page.Runs {
		got = append(got, r.ID)
	}
	if !reflect.DeepEqual(got, left) {
		t.Errorf("left are %s, want %s", got, left)
	}
}
