package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/decision"
)

// TestKeysSeeTheirOwnExecutions: an execution, what it says, what it may reach and what becomes of that is for the key
// that asked for it, and for the machine's owner. For another key it is not there.
func TestKeysSeeTheirOwnExecutions(t *testing.T) {
	e := newEstate(t)
	id := e.begin(t, keeper)
	hold := string(e.ways[0].hold.ID)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	remembered := approval.Approval{ID: cove.NewApprovalID(), Policy: "p", Subject: e.ways[0].hold.Subject,
		Who: cove.KeyHolder("keeper"), Time: time.Now(), Until: time.Now().Add(time.Hour)}
	must(e.store.Approve(t.Context(), remembered))
	must(e.store.AppendDecisions(t.Context(), 100, decision.Decision{Time: time.Now(), Execution: id, Client: "key:keeper",
		Host: "api.example.com", Verdict: decision.Allow}))

	execution := "/executions/" + id
	requests := []struct{ method, path, body string }{
		{"GET", execution, ""},
		{"GET", execution + "/stream", ""},
		{"POST", execution + "/network", `{"allow":["evil.example"]}`},
		{"GET", execution + "/ca", ""},
		{"POST", "/network/holds/" + hold, `{"allow":true}`},
		{"DELETE", "/network/approvals/" + string(remembered.ID), ""},
		{"DELETE", execution, ""},
	}
	for _, r := range requests {
		code, text := e.ask(t, stranger, r.method, r.path, r.body)
		if code != http.StatusNotFound || strings.Contains(text, "4711") {
			t.Errorf("a stranger: %s %s: %d %s", r.method, r.path, code, text)
		}
	}
	lists := []struct{ path, has string }{
		{"/executions", id}, {"/network/holds", hold}, {"/network/holds?execution=" + id, hold},
		{"/network/approvals", string(remembered.ID)},
		{"/network/decisions", "api.example.com"}, {"/network/decisions?execution=" + id, "api.example.com"},
	}
	for _, l := range lists {
		for _, who := range []string{keeper, stranger, machine} {
			code, text := e.ask(t, who, "GET", l.path, "")
			if code != http.StatusOK || strings.Contains(text, l.has) != (who != stranger) {
				t.Errorf("%q: %s: %d %s", who, l.path, code, text)
			}
		}
	}
	for _, r := range requests {
		if r.path == execution+"/stream" {
			continue // it goes on
		}
		if code, text := e.ask(t, keeper, r.method, r.path, r.body); code >= 300 {
			t.Errorf("whose it is: %s %s: %d %s", r.method, r.path, code, text)
		}
	}
	for _, who := range []string{keeper, machine} {
		if code, text := e.ask(t, who, "GET", execution+"/stream", ""); code != http.StatusOK ||
			!strings.Contains(text, "4711") {
			t.Errorf("%q follows: %d %s", who, code, text)
		}
	}
	if code, text := e.ask(t, stranger, "GET", execution+"/stream", ""); code != http.StatusNotFound {
		t.Errorf("a stranger follows what has ended: %d %s", code, text)
	}

	// What each did is in the log, and each reads what it did itself.
	for who, want := range map[string][]string{keeper: {"kill", "execute"}, stranger: nil, machine: {"kill", "execute"}} {
		got := get[api.AuditList](t, e, who, "/audit?object="+id)
		for _, action := range want {
			if !slices.ContainsFunc(got.Records, func(r api.AuditRecord) bool { return r.Action == action }) {
				t.Errorf("%q misses the record of %s: %+v", who, action, got.Records)
			}
		}
		if who == stranger && len(got.Records) > 0 {
			t.Errorf("a stranger reads %+v", got.Records)
		}
		for _, r := range got.Records {
			if who != machine && r.Hash != "" {
				t.Errorf("%q is told a hash, over records that are not its own: %+v", who, r)
			}
		}
	}
	for who, want := range map[string]int{keeper: http.StatusForbidden, stranger: http.StatusForbidden,
		machine: http.StatusOK} {
		if code, text := e.ask(t, who, "GET", "/audit/verify", ""); code != want {
			t.Errorf("%q verifies: %d %s", who, code, text)
		}
	}
}

// TestOwnersExecutionsAreTheOwners: what the machine's owner runs is not for keys.
func TestOwnersExecutionsAreTheOwners(t *testing.T) {
	e := newEstate(t)
	id := e.begin(t, machine)
	for _, r := range []struct{ method, path string }{{"GET", "/executions/" + id}, {"DELETE", "/executions/" + id},
		{"POST", "/network/holds/" + string(e.ways[0].hold.ID)}} {
		body := ""
		if r.method == "POST" {
			body = `{"allow":true}`
		}
		if code, text := e.ask(t, keeper, r.method, r.path, body); code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", r.method, r.path, code, text)
		}
	}
	if l := get[api.ExecutionList](t, e, keeper, "/executions"); len(l.Executions) > 0 {
		t.Errorf("%+v", l)
	}
}
