package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// plenty is more decisions than any case has.
const plenty = 10_000

func aDecision(change func(*decision.Decision)) decision.Decision {
	d := decision.Decision{
		Time: epoch, Execution: "ex_1", Sandbox: "sb_1", Client: "local", Entry: "transparent",
		Protocol: decision.ProtocolHTTPS, Host: "api.example.com", Port: 443, Method: "GET", Path: "/v1",
		Verdict: decision.Allow, Stage: decision.StageUpstream, Rule: "--allow api.example.com", Reason: "it is allowed",
		Remedy: "none", Status: 200,
		Sent: 1, Received: 2, Duration: 0.25, Count: 1,
	}
	if change != nil {
		change(&d)
	}
	return d
}

func decisions(t *testing.T, s store.Store, q store.DecisionQuery) []decision.Decision {
	t.Helper()
	p, err := s.ListDecisions(t.Context(), q)
	must(t, err)
	return p.Decisions
}

func decisionsAreKept(t *testing.T, open Open) {
	dir := t.TempDir()
	s := at(t, open, dir)
	must(t, s.AppendDecisions(t.Context(), plenty))
	long := strings.Repeat("é", store.MaxField)
	hostile := aDecision(func(d *decision.Decision) {
		d.Seq, d.Time, d.Count = 99, epoch.Add(time.Nanosecond).In(time.FixedZone("", 3600)), 0
		d.Host, d.Reason, d.Rule, d.Path = "'; DROP TABLE decisions; --", "\x00\x1b[31m\xff", long, "/"+long
	})
	must(t, s.AppendDecisions(t.Context(), plenty, aDecision(nil), hostile))
	s.Close()

	s = at(t, open, dir)
	got := decisions(t, s, store.DecisionQuery{Limit: 10})
	want := []decision.Decision{hostile, aDecision(nil)}
	want[1].Seq, want[0].Seq, want[0].Count, want[0].Time = 1, 2, 1, epoch
	want[0].Rule = strings.Repeat("é", store.MaxField/2)
	want[0].Reason = "\x00\x1b[31m\uFFFD"
	want[0].Path = "/" + strings.Repeat("é", (store.MaxField-1-len("…"))/2) + "…"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func decisionQuery(t *testing.T, open Open) {
	s := start(t, open)
	var all []decision.Decision
	for i := range 4 {
		all = append(all, aDecision(func(d *decision.Decision) {
			d.Time = epoch.Add(time.Duration(i) * time.Minute)
			d.Execution, d.Host, d.Sandbox = fmt.Sprint("ex_", i%2), fmt.Sprint("h", i/2), fmt.Sprint("sb_", i/3)
			d.Client = []string{"local", "key:ci", "key:ci", "key:dev"}[i]
			d.Verdict = []decision.Verdict{decision.Allow, decision.Deny, decision.Deny, decision.Lost}[i]
		}))
	}
	must(t, s.AppendDecisions(t.Context(), plenty, all...))
	for _, c := range []struct {
		name string
		q    store.DecisionQuery
		want []int64
	}{
		{"all", store.DecisionQuery{Limit: 10}, []int64{4, 3, 2, 1}},
		{"limit", store.DecisionQuery{Limit: 2}, []int64{4, 3}},
		{"execution", store.DecisionQuery{Limit: 10, Execution: "ex_0"}, []int64{3, 1}},
		{"sandbox", store.DecisionQuery{Limit: 10, Sandbox: "sb_0"}, []int64{3, 2, 1}},
		{"client", store.DecisionQuery{Limit: 10, Client: "key:ci"}, []int64{3, 2}},
		{"host", store.DecisionQuery{Limit: 10, Host: "h1"}, []int64{4, 3}},
		{"verdict", store.DecisionQuery{Limit: 10, Verdict: decision.Deny}, []int64{3, 2}},
		{"since is inclusive", store.DecisionQuery{Limit: 10, Since: epoch.Add(2 * time.Minute)}, []int64{4, 3}},
		{"until is exclusive", store.DecisionQuery{Limit: 10, Until: epoch.Add(2 * time.Minute)}, []int64{2, 1}},
		{"together", store.DecisionQuery{Limit: 10, Execution: "ex_0", Host: "h1", Verdict: decision.Deny, Since: epoch,
			Until: epoch.Add(time.Hour)}, []int64{3}},
		{"nothing", store.DecisionQuery{Limit: 10, Host: "h1' OR '1"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := decisions(t, s, c.q)
			var got []int64
			for _, d := range found {
				got = append(got, d.Seq)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			for i, d := range all { // a follower selects alike
				if d.Seq = int64(i + 1); c.q.Limit > len(all) && c.q.Selects(d) != slices.Contains(got, d.Seq) {
					t.Errorf("Selects says %v of %d", c.q.Selects(d), d.Seq)
				}
			}
		})
	}
	for _, limit := range []int{-1, 0, store.MaxPage + 1} {
		_, err := s.ListDecisions(t.Context(), store.DecisionQuery{Limit: limit})
		wantCode(t, err, cove.InvalidArgument)
		_, err = s.DecisionsAfter(t.Context(), "", 0, limit)
		wantCode(t, err, cove.InvalidArgument)
	}
	_, err := s.ListDecisions(t.Context(), store.DecisionQuery{Limit: 1, Cursor: "x"})
	wantCode(t, err, cove.InvalidArgument)
}

// decisionPages: each decision is on one page, whatever arrives meanwhile.
func decisionPages(t *testing.T, open Open) {
	for _, n := range []int{0, 1, 2, 3, 4, 7} {
		s := start(t, open)
		for range n {
			must(t, s.AppendDecisions(t.Context(), plenty, aDecision(nil)))
		}
		q := store.DecisionQuery{Limit: 2, Execution: "ex_1"}
		for want := int64(n); ; {
			p, err := s.ListDecisions(t.Context(), q)
			must(t, err)
			for _, d := range p.Decisions {
				if d.Seq != want {
					t.Errorf("%d decisions: got %d, want %d", n, d.Seq, want)
				}
				want--
			}
			if last := want == 0; last != (p.Next == "") {
				t.Fatalf("%d decisions: %d are left, and the next page is %q", n, want, p.Next)
			}
			if p.Next == "" {
				break
			}
			q.Cursor = p.Next
			must(t, s.AppendDecisions(t.Context(), plenty, aDecision(nil)))
		}
	}
}

func decisionsAfter(t *testing.T, open Open) {
	s := start(t, open)
	after := func(seq int64, limit int, want ...int64) {
		t.Helper()
		all, err := s.DecisionsAfter(t.Context(), "", seq, limit)
		must(t, err)
		var got []int64
		for _, d := range all {
			got = append(got, d.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d: %v, want %v", seq, got, want)
		}
	}
	after(0, 10)
	must(t, s.AppendDecisions(t.Context(), plenty, aDecision(nil), aDecision(nil), aDecision(nil)))
	after(0, 10, 1, 2, 3)
	after(0, 2, 1, 2)
	after(2, 10, 3)
	after(3, 10)
	after(-1, 1, 1)
	must(t, s.AppendDecisions(t.Context(), plenty, aDecision(func(d *decision.Decision) { d.Client = "key:ci" }),
		aDecision(nil)))
	for client, want := range map[string]int64{"key:ci": 4, "local": 5} {
		if all, err := s.DecisionsAfter(t.Context(), client, 3, 10); err != nil || len(all) != 1 || all[0].Seq != want {
			t.Errorf("of %s after 3: %+v, %v; want %d", client, all, err, want)
		}
	}
}

// decisionsAreBounded: whatever comes, only so many stay, the newest of a client, and no number is given twice.
func decisionsAreBounded(t *testing.T, open Open) {
	s := start(t, open)
	for i := range 10 {
		must(t, s.AppendDecisions(t.Context(), 5, slices.Repeat([]decision.Decision{aDecision(nil)}, 1+i%3)...))
		if n := len(decisions(t, s, store.DecisionQuery{Limit: 100})); n > 5 {
			t.Fatalf("%d are kept", n)
		}
	}
	newest := decisions(t, s, store.DecisionQuery{Limit: 1})[0].Seq
	must(t, s.AppendDecisions(t.Context(), 5, slices.Repeat([]decision.Decision{aDecision(nil)}, 20)...))
	all := decisions(t, s, store.DecisionQuery{Limit: 100})
	if len(all) != 5 || all[0].Seq != newest+20 {
		t.Errorf("%d are kept, up to %d", len(all), all[0].Seq)
	}

	// Those of a client with few are not lost by one that floods.
	few := func(d *decision.Decision) { d.Client = "key:few" }
	must(t, s.AppendDecisions(t.Context(), 5, aDecision(few), aDecision(few)))
	for range 4 {
		must(t, s.AppendDecisions(t.Context(), 5, slices.Repeat([]decision.Decision{aDecision(nil)}, 7)...))
	}
	all = decisions(t, s, store.DecisionQuery{Limit: 100})
	if n := len(decisions(t, s, store.DecisionQuery{Limit: 100, Client: "key:few"})); n != 2 || len(all) != 5 {
		t.Errorf("%d of the client with two are left, and %d in all", n, len(all))
	}
}

func decisionsArePruned(t *testing.T, open Open) {
	s := start(t, open)
	for i := range 5 {
		// Recorded in the order of their ends, begun in another.
		must(t, s.AppendDecisions(t.Context(), plenty,
			aDecision(func(d *decision.Decision) { d.Time = epoch.Add(time.Duration(i*3%5) * time.Minute) })))
	}
	_, err := s.Prune(t.Context(), epoch.Add(2*time.Minute))
	must(t, err)
	left := decisions(t, s, store.DecisionQuery{Limit: 10})
	if len(left) != 3 ||
		slices.ContainsFunc(left, func(d decision.Decision) bool { return d.Time.Before(epoch.Add(2 * time.Minute)) }) {
		t.Errorf("left: %+v", left)
	}
	_, err = s.Prune(t.Context(), epoch.Add(time.Hour))
	must(t, err)
	must(t, s.AppendDecisions(t.Context(), plenty, aDecision(nil)))
	if left = decisions(t, s, store.DecisionQuery{Limit: 10}); len(left) != 1 || left[0].Seq != 6 {
		t.Errorf("after pruning all: %+v", left)
	}
}

// decisionsOfTwo: two processes append, and one who follows misses nothing.
func decisionsOfTwo(t *testing.T, open Open) {
	dir := t.TempDir()
	a, b := at(t, open, dir), at(t, open, dir)
	const each, batch = 20, 5
	var writing sync.WaitGroup
	for _, s := range []store.Store{a, b} {
		writing.Go(func() {
			for range each {
				if err := s.AppendDecisions(t.Context(), plenty,
					slices.Repeat([]decision.Decision{aDecision(nil)}, batch)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := int64(0)
	for done := false; ; {
		all, err := a.DecisionsAfter(t.Context(), "", seen, 7)
		must(t, err)
		for _, d := range all {
			if d.Seq != seen+1 {
				t.Fatalf("%d comes after %d", d.Seq, seen)
			}
			seen = d.Seq
		}
		if len(all) == 0 && done {
			break
		}
		if len(all) == 0 {
			writing.Wait()
			done = true
		}
	}
	if seen != 2*each*batch {
		t.Errorf("saw %d of %d", seen, 2*each*batch)
	}
}
