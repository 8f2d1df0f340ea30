// Package storetest owns the suite that every store.Store passes.
package storetest

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
)

// Open opens the store that lives in dir; the suite closes it. Opening the
// same dir again, at the same time or later, opens the same store.
type Open func(t *testing.T, dir string) store.Store

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"BeginFinishGet", beginFinishGet},
		{"FinishOnce", finishOnce},
		{"BeginOnce", beginOnce},
		{"OutputIsBounded", outputIsBounded},
		{"HostileText", hostileText},
		{"ListFilters", listFilters},
		{"ListPages", listPages},
		{"ListSurvivesClockJumps", listSurvivesClockJumps},
		{"ListPagesByTime", listPagesByTime},
		{"MalformedCursor", malformedCursor},
		{"CPUTime", cpuTime},
		{"ModelsUsed", modelsUsed},
		{"Abandon", abandon},
		{"AuditChain", auditChain},
		{"AuditQuery", auditQuery},
		{"AuditPages", auditPages},
		{"DecisionsAreKept", decisionsAreKept},
		{"DecisionQuery", decisionQuery},
		{"DecisionPages", decisionPages},
		{"DecisionsAfter", decisionsAfter},
		{"DecisionsAreBounded", decisionsAreBounded},
		{"DecisionsArePruned", decisionsArePruned},
		{"DecisionsOfTwo", decisionsOfTwo},
		{"Approvals", approvals},
		{"ApprovalsAreBounded", approvalsAreBounded},
		{"GatewayClients", gatewayClients},
		{"Sandboxes", sandboxes},
		{"SandboxNames", sandboxNames},
		{"SandboxesAreBounded", sandboxesAreBounded},
		{"SandboxStates", sandboxStates},
		{"SandboxMovesOnce", sandboxMovesOnce},
		{"Runs", runs},
		{"RunQuery", runQuery},
		{"RunsArePruned", runsArePruned},
		{"Prune", prune},
		{"SurvivesReopening", survivesReopening},
		{"TwoAtOnce", twoAtOnce},
		{"CanceledContext", canceledContext},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

var epoch = time.Date(2030, 1, 2, 3, 4, 5, 678901000, time.UTC)

// start opens a fresh store.
func start(t *testing.T, open Open) store.Store {
	t.Helper()
	return at(t, open, t.TempDir())
}

func at(t *testing.T, open Open, dir string) store.Store {
	t.Helper()
	s := open(t, dir)
	t.Cleanup(func() { s.Close() })
	return s
}

func execution() store.Execution {
	return store.Execution{
		ID: cove.NewExecutionID(), Language: "python", Engine: "native", Status: cove.StatusRunning, ExitCode: -1,
		CreatedAt: epoch,
		Instance:  cove.NewInstanceID(), Owner: cove.MachineOwner(), CodeHash: strings.Repeat("ab", 32),
		Spec: cove.Spec{
			Engine: "native", Image: "debian:stable", Labels: map[string]string{"k": "v'; DROP TABLE"},
			Network: &cove.Network{Enabled: true, Allow: []string{"a.test"}},
			Shape: cove.Shape{Isolation: cove.IsolationContainer, User: cove.CodeUser,
				Limits: cove.Limits{Memory: 1, CPUs: 0.5}},
		},
	}
}

func finished(e store.Execution) store.Execution {
	end := e.CreatedAt.Add(1500 * time.Millisecond)
	e.Status, e.ExitCode, e.Duration, e.FinishedAt = cove.StatusCompleted, 3, 1500*time.Millisecond, &end
	e.Output, e.Stderr, e.Truncated, e.Limit = "out\n", "err\n", true, "output"
	e.Models = []model.ProviderUsage{{Provider: "p", Usage: model.Usage{Requests: 2, Input: 3, Output: 4, CacheRead: 5,
		CacheWrite: 6, Cost: 0.5, Estimated: 1}}}
	e.Usage = cove.Usage{CPUTime: 12500 * time.Microsecond, MemoryPeak: 7<<20 + 1<<18, PIDsPeak: 3, BytesWritten: 8,
		DiskUsed: 4096}
	e.Events = []detect.Event{{Rule: "nsenter", Severity: "high", Line: 2, Detail: "enters namespaces"}}
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code cove.Code) {
	t.Helper()
	if got := cove.ErrorCode(err); got != code {
		t.Fatalf("error is %q (%v), want %q", got, err, code)
	}
}

func begin(t *testing.T, s store.Store, change func(*store.Execution)) store.Execution {
	t.Helper()
	e := execution()
	if change != nil {
		change(&e)
	}
	must(t, s.Begin(t.Context(), e))
	return e
}

func get(t *testing.T, s store.Store, id cove.ExecutionID) store.Execution {
	t.Helper()
	e, err := s.Get(t.Context(), id)
	must(t, err)
	return e
}

func same(t *testing.T, got, want store.Execution) {
	t.Helper()
	if want.Events == nil {
		want.Events = []detect.Event{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func beginFinishGet(t *testing.T, open Open) {
	s := start(t, open)
	e := begin(t, s, nil)
	same(t, get(t, s, e.ID), e)
	e = finished(e)
	must(t, s.Finish(t.Context(), e, store.Record{}))
	same(t, get(t, s, e.ID), e)

	refused := finished(execution())
	refused.Status = cove.StatusRefused
	must(t, s.Begin(t.Context(), refused))
	same(t, get(t, s, refused.ID), refused)

	_, err := s.Get(t.Context(), cove.NewExecutionID())
	wantCode(t, err, cove.NotFound)
	_, err = s.Get(t.Context(), "' OR 1=1 --")
	wantCode(t, err, cove.NotFound)
}

func finishOnce(t *testing.T, open Open) {
	s := start(t, open)
	e := finished(begin(t, s, nil))
	line := store.Record{Time: epoch, Action: "execute", Object: string(e.ID)}
	must(t, s.Finish(t.Context(), e, line))
	again := e
	again.Output = "another"
	wantCode(t, s.Finish(t.Context(), again, line), cove.Conflict)
	same(t, get(t, s, e.ID), e)
	wantCode(t, s.Finish(t.Context(), finished(execution()), line), cove.NotFound)
	if r := audit(t, s, store.AuditQuery{Limit: 10}); len(r) != 1 || r[0].Object != string(e.ID) || r[0].Seq != 1 {
		t.Errorf("one end has the records %+v", r)
	}
	verified(t, s)

	gone := finished(begin(t, s, nil))
	gone.Output, gone.Stderr, gone.OutputGone = "", "", store.GoneHistorySize
	must(t, s.Finish(t.Context(), gone, line))
	same(t, get(t, s, gone.ID), gone)
}

func beginOnce(t *testing.T, open Open) {
	s := start(t, open)
	e := begin(t, s, nil)
	wantCode(t, s.Begin(t.Context(), e), cove.Conflict)
}

func outputIsBounded(t *testing.T, open Open) {
	s := start(t, open)
	e := finished(begin(t, s, nil))
	e.Truncated = false
	e.Output = strings.Repeat("é", store.MaxOutput) // twice the bytes
	must(t, s.Finish(t.Context(), e, store.Record{}))
	got := get(t, s, e.ID)
	if len(got.Output) != store.MaxOutput || !got.Truncated {
		t.Fatalf("kept %d bytes, truncated %v", len(got.Output), got.Truncated)
	}
	if strings.Trim(got.Output, "é") != "" {
		t.Fatal("a character was split")
	}
}

func hostileText(t *testing.T, open Open) {
	s := start(t, open)
	e := finished(begin(t, s, nil))
	e.Output, e.Stderr, e.Error = "a\x00b'\"\n\x1b[2J\u2028", "\xff\xfe invalid", "'; DROP TABLE executions; --"
	must(t, s.Finish(t.Context(), e, store.Record{}))
	e.Stderr = "\uFFFD invalid"
	same(t, get(t, s, e.ID), e)
	must(t, s.Append(t.Context(), store.Record{Time: epoch, Who: "x\nforged line", Detail: "\x00\x1b[31m\xff"}))
	verified(t, s)
}

func abandon(t *testing.T, open Open) {
	s := start(t, open)
	dead, living := begin(t, s, nil), begin(t, s, nil)
	done := finished(begin(t, s, nil))
	must(t, s.Finish(t.Context(), done, store.Record{}))
	var asked []cove.InstanceID
	reason := store.Record{Time: epoch, Action: "execute", Verdict: "error", Detail: "its process is dead"}
	n, err := s.Abandon(t.Context(), reason, func(id cove.InstanceID) bool {
		asked = append(asked, id)
		return id == dead.Instance
	})
	must(t, err)
	slices.Sort(asked)
	want := []cove.InstanceID{dead.Instance, living.Instance}
	slices.Sort(want)
	if !slices.Equal(asked, want) {
		t.Errorf("asked about %v, want those that have running executions, %v", asked, want)
	}
	if n != 1 {
		t.Fatalf("abandoned %d", n)
	}
	if e := get(t, s, dead.ID); e.Status != cove.StatusFailed || e.Error != reason.Detail || e.ExitCode != -1 {
		t.Errorf("the dead one's is %+v", e)
	}
	log, err := s.Audit(t.Context(), store.AuditQuery{Limit: 10, Verdict: reason.Verdict})
	must(t, err)
	if len(log.Records) != 1 || log.Records[0].Object != string(dead.ID) || log.Records[0].Who != dead.Owner.String() ||
		log.Records[0].Detail != reason.Detail {
		t.Errorf("the audit log has %+v", log.Records)
	}
	same(t, get(t, s, living.ID), living)
	same(t, get(t, s, done.ID), done)
	wantCode(t, s.Finish(t.Context(), finished(dead), store.Record{}), cove.Conflict)
	n, err = s.Abandon(t.Context(), reason, func(cove.InstanceID) bool { return true })
	must(t, err)
	if n != 1 {
		t.Errorf("with nobody alive, abandoned %d", n)
	}
	// One that begins while the question is asked is not taken for dead.
	late := execution()
	begin(t, s, nil)
	n, err = s.Abandon(t.Context(), reason, func(id cove.InstanceID) bool {
		must(t, s.Begin(t.Context(), late))
		return true
	})
	must(t, err)
	if n != 1 || get(t, s, late.ID).Status != cove.StatusRunning {
		t.Errorf("abandoned %d, the late one is %s", n, get(t, s, late.ID).Status)
	}
}

func cpuTime(t *testing.T, open Open) {
	s := at(t, open, t.TempDir())
	ci := cove.KeyHolder("ci")
	begun := func(owner cove.Principal) store.Execution {
		return begin(t, s, func(e *store.Execution) { e.Owner = owner })
	}
	end := func(e store.Execution, at time.Time, used time.Duration) {
		t.Helper()
		e.Status, e.FinishedAt, e.Usage.CPUTime = cove.StatusCompleted, &at, used
		must(t, s.Finish(t.Context(), e, store.Record{}))
	}
	want := func(what string, who cove.Principal, since time.Time, want time.Duration) {
		t.Helper()
		if got, err := s.CPUTime(t.Context(), who.String(), since); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", what, got, err, want)
		}
	}
	end(begun(ci), epoch.Add(-26*time.Hour), 5000*time.Second)
	end(begun(ci), epoch.Add(-time.Minute), 1000*time.Second)
	end(begun(cove.KeyHolder("other")), epoch, 1000*time.Second)
	end(begun(ci), epoch, 2*time.Second)
	begun(ci)         // goes on
	both := begun(ci) // an agent's run, in a sandbox that is counted by itself
	r := run("robot")
	r.ID, r.CreatedBy = both.ID.Run(), ci.String()
	must(t, s.AddRun(t.Context(), r))
	end(both, epoch, 70*time.Second)
	add := func(who cove.Principal, at time.Time, used time.Duration) {
		t.Helper()
		must(t, s.AddCPU(t.Context(), who.String(), at, used))
	}
	add(ci, epoch, 300*time.Millisecond)
	add(ci, epoch.Add(time.Hour), 30*time.Second)
	add(ci, epoch.Add(time.Hour), 100*time.Millisecond)
	add(cove.MachineOwner(), epoch, 1000*time.Second)
	want("since a time", ci, epoch, 32400*time.Millisecond)
	want("since an earlier one", ci, epoch.Add(-48*time.Hour), 1032400*time.Millisecond) // what is older is forgotten
	want("nothing", cove.KeyHolder("none"), epoch, 0)

	// What is removed has been used.
	_, err := s.Prune(t.Context(), epoch.Add(24*time.Hour))
	must(t, err)
	want("after the history has gone", ci, epoch, 32400*time.Millisecond)
}

// modelsUsed: what a client has used of models adds up for each provider, apart from others', stays when the history
// goes, and is there when the store is opened anew.
func modelsUsed(t *testing.T, open Open) {
	dir := t.TempDir()
	s := at(t, open, dir)
	use := func(who, provider string, u model.Usage) model.ProviderUsage {
		t.Helper()
		p := model.ProviderUsage{Provider: provider, Usage: u}
		must(t, s.UseModels(t.Context(), who, p))
		return p
	}
	want := func(what, who string, want ...model.ProviderUsage) {
		t.Helper()
		if got, err := s.ModelsUsed(t.Context(), who); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	want("nothing", "key:ci")
	whole := model.Usage{Requests: 1, Input: 2, Output: 3, CacheRead: 4, CacheWrite: 5, Cost: 0.5, Estimated: 1}
	b := use("key:ci", "b", whole)
	a := use("key:ci", "a", model.Usage{Requests: 1})
	other := use("key:other", "b", model.Usage{Output: 9})
	want("of both providers", "key:ci", a, b)
	must(t, s.UseModels(t.Context(), "key:ci", a, b))
	a.Usage, b.Usage = a.Plus(a.Usage), b.Plus(b.Usage)
	want("added up", "key:ci", a, b)
	_, err := s.Prune(t.Context(), epoch.Add(1000*time.Hour))
	must(t, err)
	must(t, s.Close())
	s = at(t, open, dir)
	want("after the history has gone, opened anew", "key:ci", a, b)
	want("another's", "key:other", other)
}

func prune(t *testing.T, open Open) {
	s := start(t, open)
	old, recent, running := finished(begin(t, s, nil)), begin(t, s, nil), begin(t, s, nil)
	must(t, s.Finish(t.Context(), old, store.Record{}))
	recent = finished(recent)
	end := epoch.Add(time.Hour)
	recent.FinishedAt = &end
	must(t, s.Finish(t.Context(), recent, store.Record{}))
	for i := range 5 {
		must(t, s.Append(t.Context(), store.Record{Time: epoch.Add(time.Duration(i) * time.Minute), Action: "execute"}))
	}

	n, err := s.Prune(t.Context(), epoch.Add(2*time.Minute))
	must(t, err)
	if n != 1 {
		t.Errorf("removed %d executions", n)
	}
	_, err = s.Get(t.Context(), old.ID)
	wantCode(t, err, cove.NotFound)
	same(t, get(t, s, recent.ID), recent)
	same(t, get(t, s, running.ID), running)
	if r := audit(t, s, store.AuditQuery{Limit: 10}); len(r) != 3 || r[2].Seq != 5 {
		t.Errorf("records left: %+v", r)
	}
	verified(t, s)

	// Everything goes; the chain continues where it was.
	_, err = s.Prune(t.Context(), epoch.Add(24*time.Hour))
	must(t, err)
	verified(t, s)
	must(t, s.Append(t.Context(), store.Record{Time: epoch, Action: "execute"}))
	if r := audit(t, s, store.AuditQuery{Limit: 10}); len(r) != 1 || r[0].Seq != 8 {
		t.Errorf("after pruning all: %+v", r)
	}
	verified(t, s)
	same(t, get(t, s, running.ID), running)
}

func survivesReopening(t *testing.T, open Open) {
	dir := t.TempDir()
	s := open(t, dir)
	e := finished(begin(t, s, nil))
	must(t, s.Finish(t.Context(), e, store.Record{Time: epoch, Action: "execute", Object: string(e.ID)}))
	must(t, s.Close())

	s = at(t, open, dir)
	same(t, get(t, s, e.ID), e)
	must(t, s.Append(t.Context(), store.Record{Time: epoch, Action: "kill"}))
	if r := audit(t, s, store.AuditQuery{Limit: 10}); len(r) != 2 {
		t.Errorf("%d records", len(r))
	}
	verified(t, s)
}

func twoAtOnce(t *testing.T, open Open) {
	dir := t.TempDir()
	a, b := at(t, open, dir), at(t, open, dir)
	const each = 40
	var wg sync.WaitGroup
	for _, s := range []store.Store{a, b, a, b} {
		wg.Go(func() {
			for range each {
				e := execution()
				if err := s.Begin(t.Context(), e); err != nil {
					t.Error(err)
				}
				line := store.Record{Time: epoch, Action: "execute", Object: string(e.ID)}
				if err := s.Finish(t.Context(), finished(e), line); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(list(t, a, store.Query{Limit: store.MaxPage, Status: cove.StatusCompleted}).Executions); n != 4*each {
		t.Errorf("%d executions of %d", n, 4*each)
	}
	if r := audit(t, b, store.AuditQuery{Limit: 1}); len(r) != 1 || r[0].Seq != 4*each {
		t.Errorf("newest record is %+v", r)
	}
	verified(t, b)
}

func canceledContext(t *testing.T, open Open) {
	s := start(t, open)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := execution()
	if err := s.Begin(ctx, e); err == nil {
		t.Fatal("Begin with an ended context succeeded")
	}
	must(t, s.Begin(t.Context(), e)) // nothing half done is left
}
