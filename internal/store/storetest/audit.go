package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// verified checks that the chain holds, and that the verification says of which records.
func verified(t *testing.T, s store.Store) {
	t.Helper()
	v, err := s.Verify(t.Context())
	must(t, err)
	if v.Broken != 0 {
		t.Fatalf("the chain breaks at %d", v.Broken)
	}
	records := audit(t, s, store.AuditQuery{Limit: store.MaxPage})
	if int(v.Records) != len(records) || len(records) > 0 && v.Head != records[0].Hash {
		t.Fatalf("%d records verified up to %q, of %+v", v.Records, v.Head, records)
	}
}

func audit(t *testing.T, s store.Store, q store.AuditQuery) []store.Record {
	t.Helper()
	p, err := s.Audit(t.Context(), q)
	must(t, err)
	return p.Records
}

func auditChain(t *testing.T, open Open) {
	s := start(t, open)
	verified(t, s)
	for i := range 20 {
		must(t, s.Append(t.Context(), store.Record{Seq: 999, Hash: "ignored",
			Time: epoch.Add(time.Duration(-i) * time.Hour), Who: "local",
			Action: "execute", Object: fmt.Sprint("ex_", i), Verdict: "allow", Detail: strings.Repeat("x", 2*store.MaxDetail)}))
	}
	verified(t, s)
	records := audit(t, s, store.AuditQuery{Limit: 100})
	if len(records) != 20 {
		t.Fatalf("%d records", len(records))
	}
	previous := ""
	for i := len(records) - 1; i >= 0; i-- {
		r := records[i]
		if r.Seq != int64(len(records)-i) || r.Hash != store.Chain(previous, r) {
			t.Fatalf("record %d does not fit: %+v", r.Seq, r)
		}
		if len(r.Detail) != store.MaxDetail {
			t.Fatalf("detail of %d bytes", len(r.Detail))
		}
		previous = r.Hash
	}
}

func auditQuery(t *testing.T, open Open) {
	s := start(t, open)
	for i, action := range []string{"start", "execute", "kill", "execute"} {
		must(t, s.Append(t.Context(), store.Record{Time: epoch.Add(time.Duration(i) * time.Minute), Who: []string{"local",
			"key:ci"}[i%2], Action: action, Object: fmt.Sprint("o", i%2), Verdict: []string{"ok", "deny"}[i/2]}))
	}
	for _, c := range []struct {
		name string
		q    store.AuditQuery
		want []int64
	}{
		{"all", store.AuditQuery{Limit: 10}, []int64{4, 3, 2, 1}},
		{"limit", store.AuditQuery{Limit: 2}, []int64{4, 3}},
		{"who", store.AuditQuery{Limit: 10, Who: "key:ci"}, []int64{4, 2}},
		{"action", store.AuditQuery{Limit: 10, Action: "execute"}, []int64{4, 2}},
		{"object", store.AuditQuery{Limit: 10, Object: "o0"}, []int64{3, 1}},
		{"verdict", store.AuditQuery{Limit: 10, Verdict: "deny"}, []int64{4, 3}},
		{"since", store.AuditQuery{Limit: 10, Since: epoch.Add(2 * time.Minute)}, []int64{4, 3}},
		{"until", store.AuditQuery{Limit: 10, Until: epoch.Add(2 * time.Minute)}, []int64{2, 1}},
		{"together", store.AuditQuery{Limit: 10, Action: "execute", Object: "o1", Verdict: "ok", Since: epoch,
			Until: epoch.Add(time.Hour)}, []int64{2}},
		{"nothing", store.AuditQuery{Limit: 10, Action: "execute' OR '1"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int64
			for _, r := range audit(t, s, c.q) {
				got = append(got, r.Seq)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	_, err := s.Audit(t.Context(), store.AuditQuery{})
	wantCode(t, err, cove.InvalidArgument)
}

// auditPages: each record is on one page, whatever arrives meanwhile, and the page that ends the log says so.
func auditPages(t *testing.T, open Open) {
	for _, n := range []int{0, 1, 2, 3, 4, 7} {
		s := start(t, open)
		add := func() {
			must(t, s.Append(t.Context(), store.Record{Time: epoch, Action: "execute"}))
		}
		for range n {
			add()
		}
		q := store.AuditQuery{Limit: 2}
		for want := int64(n); ; {
			p, err := s.Audit(t.Context(), q)
			must(t, err)
			for _, r := range p.Records {
				if r.Seq != want {
					t.Errorf("%d records: got %d, want %d", n, r.Seq, want)
				}
				want--
			}
			if last := want == 0; last != (p.Next == "") {
				t.Fatalf("%d records: %d are left, and the next page is %q", n, want, p.Next)
			}
			if p.Next == "" {
				break
			}
			q.Cursor = p.Next
			add()
		}
	}
}
