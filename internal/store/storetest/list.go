package storetest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

func list(t *testing.T, s store.Store, q store.Query) store.Page {
	t.Helper()
	p, err := s.List(t.Context(), q)
	must(t, err)
	return p
}

func listFilters(t *testing.T, open Open) {
	s := start(t, open)
	ids := map[cove.ExecutionID]string{}
	for i, v := range []struct {
		name     string
		owner    cove.Principal
		language string
		status   cove.Status
	}{
		{"a", cove.KeyHolder("ci"), "python", cove.StatusRunning}, {"b", cove.KeyHolder("ci"), "node", cove.StatusCompleted},
		{"c", cove.MachineOwner(), "python", cove.StatusCompleted}, {"d", cove.KeyHolder("ci"), "python", cove.StatusTimeout},
	} {
		e := begin(t, s, func(e *store.Execution) {
			e.Owner, e.Language, e.Status, e.CreatedAt = v.owner, v.language, v.status, epoch.Add(time.Duration(i)*time.Minute)
			e.Output, e.Spec.Labels = "not in lists", map[string]string{"who": v.name, "k.\"x": "v'"}
		})
		ids[e.ID] = v.name
	}
	for _, c := range []struct {
		name string
		q    store.Query
		want string
	}{
		{"all, newest first", store.Query{}, "dcba"},
		{"client", store.Query{Client: "key:ci"}, "dba"},
		{"another client", store.Query{Client: "key:c"}, ""},
		{"client and language", store.Query{Client: "key:ci", Language: "python"}, "da"},
		{"language", store.Query{Language: "python"}, "dca"},
		{"status", store.Query{Status: cove.StatusCompleted}, "cb"},
		{"both", store.Query{Language: "python", Status: cove.StatusCompleted}, "c"},
		{"label", store.Query{Labels: map[string]string{"who": "a"}}, "a"},
		{"labels that all have", store.Query{Labels: map[string]string{"k.\"x": "v'"}}, "dcba"},
		{"all labels", store.Query{Labels: map[string]string{"who": "b", "k.\"x": "v'"}}, "b"},
		{"not all labels", store.Query{Labels: map[string]string{"who": "b", "k.\"x": "w"}}, ""},
		{"an unknown label", store.Query{Labels: map[string]string{"what": "a"}}, ""},
		{"label and language", store.Query{Labels: map[string]string{"who": "b"}, Language: "python"}, ""},
		{"since is inclusive", store.Query{Since: epoch.Add(2 * time.Minute)}, "dc"},
		{"until is exclusive", store.Query{Until: epoch.Add(2 * time.Minute)}, "ba"},
		{"a range in another zone", store.Query{Since: epoch.Add(time.Minute).In(time.FixedZone("", 3600)),
			Until: epoch.Add(3 * time.Minute)}, "cb"},
		{"unknown language", store.Query{Language: "' OR 1=1 --"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.q.Limit = 100
			var got string
			for _, e := range list(t, s, c.q).Executions {
				got += ids[e.ID]
				if e.Output != "" || e.Stderr != "" {
					t.Error("a list carries output")
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for _, limit := range []int{-1, 0, store.MaxPage + 1} {
		_, err := s.List(t.Context(), store.Query{Limit: limit})
		wantCode(t, err, cove.InvalidArgument)
	}
}

func listPages(t *testing.T, open Open) {
	s := start(t, open)
	const total = 23
	for range total {
		begin(t, s, nil) // all at the same moment
	}
	seen := map[cove.ExecutionID]bool{}
	q := store.Query{Limit: 5, Language: "python"}
	for pages := 1; ; pages++ {
		p := list(t, s, q)
		for _, e := range p.Executions {
			if seen[e.ID] {
				t.Fatalf("%s is on two pages", e.ID)
			}
			seen[e.ID] = true
		}
		begin(t, s, nil) // newer ones do not move the pages
		if p.Next == "" {
			if pages != 5 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		q.Cursor = p.Next
	}
	if len(seen) != total {
		t.Errorf("saw %d of %d", len(seen), total)
	}
	exact := list(t, s, store.Query{Limit: 1, Since: epoch.Add(time.Hour)})
	if exact.Next != "" {
		t.Error("an empty page has a next one")
	}
}

func listSurvivesClockJumps(t *testing.T, open Open) {
	s := start(t, open)
	var want []cove.ExecutionID
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour, -59 * 365 * 24 * time.Hour} {
		e := begin(t, s, func(e *store.Execution) { e.CreatedAt = epoch.Add(jump) })
		want = append([]cove.ExecutionID{e.ID}, want...)
	}
	var got []cove.ExecutionID
	for q := (store.Query{Limit: 1}); ; {
		p := list(t, s, q)
		got = append(got, p.Executions[0].ID)
		if p.Next == "" {
			break
		}
		q.Cursor = p.Next
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want the order of arrival, reversed: %v", got, want)
	}
}

// listPagesByTime: within bounds of the time each execution is on one page, the latest first, whatever its place in the
// order of arrival, and a page of audit records likewise.
func listPagesByTime(t *testing.T, open Open) {
	s := start(t, open)
	want, records := []cove.ExecutionID{}, []int64{}
	for i, minute := range []int{3, 1, 9, 2, 2, 0, 2, 5, 4} { // 0 and 9 are out of bounds
		at := epoch.Add(time.Duration(minute) * time.Minute)
		e := begin(t, s, func(e *store.Execution) { e.CreatedAt = at })
		must(t, s.Append(t.Context(), store.Record{Time: at, Who: cove.MachineOwner().String()}))
		want, records = append(want, e.ID), append(records, int64(i+1))
	}
	order := []int{7, 8, 0, 6, 4, 3, 1}
	since, until := epoch.Add(time.Minute), epoch.Add(9*time.Minute)
	for _, client := range []string{"", cove.MachineOwner().String()} {
		q := store.Query{Limit: 2, Since: since, Until: until, Client: client, Language: "python"}
		of := store.AuditQuery{Limit: 2, Since: since, Until: until, Who: client}
		for i := 0; i < len(order); i += 2 {
			p := list(t, s, q)
			log, err := s.Audit(t.Context(), of)
			must(t, err)
			for j, e := range p.Executions {
				if k := order[i+j]; e.ID != want[k] || log.Records[j].Seq != records[k] {
					t.Errorf("place %d has %s and %d, want %s and %d", i+j, e.ID, log.Records[j].Seq, want[k], records[k])
				}
			}
			if last := i+2 >= len(order); last != (p.Next == "") || last != (log.Next == "") {
				t.Fatalf("place %d: the next pages are %q and %q", i, p.Next, log.Next)
			}
			q.Cursor, of.Cursor = p.Next, log.Next
		}
	}
	byTime := list(t, s, store.Query{Limit: 1, Since: since}).Next
	_, err := s.List(t.Context(), store.Query{Limit: 1, Cursor: byTime})
	wantCode(t, err, cove.InvalidArgument) // a cursor of other filters
}

func malformedCursor(t *testing.T, open Open) {
	s := start(t, open)
	begin(t, s, nil)
	begin(t, s, nil)
	good := list(t, s, store.Query{Limit: 1}).Next
	if good == "" {
		t.Fatal("no cursor to damage")
	}
	for range 2 {
		must(t, s.Append(t.Context(), store.Record{Time: epoch, Action: "execute"}))
	}
	log, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1})
	must(t, err)
	if _, err := s.Audit(t.Context(), store.AuditQuery{Limit: 1, Cursor: log.Next}); err != nil {
		t.Error(err)
	}
	for _, c := range []string{"x", "-1", "0", good + "A", good[:len(good)-1], log.Next, "B" + good[1:], "' OR 1=1",
		"\x00", strings.Repeat("A", 1<<16), good + "="} {
		_, err := s.List(t.Context(), store.Query{Limit: 1, Cursor: c})
		wantCode(t, err, cove.InvalidArgument)
		if c != log.Next {
			_, err = s.Audit(t.Context(), store.AuditQuery{Limit: 1, Cursor: c})
			wantCode(t, err, cove.InvalidArgument)
		}
	}
}
