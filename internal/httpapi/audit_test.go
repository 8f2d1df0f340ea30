package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/store"
)

func TestAuditLog(t *testing.T) {
	h := start(t, nil)
	r := store.Record{Seq: 7, Time: time.Unix(1_900_000_000, 5000).UTC(), Who: "key:ci", Action: "execute", Object: someID,
		Verdict: "ok", Detail: "python \x1b[2J", Hash: "ab"}
	h.store.records = []store.Record{r}
	l := decode[api.AuditList](t, h.do(h.owner, "GET", "/audit?action=execute&object="+
		someID+"&verdict=ok&since=2030-01-02T03:04:05Z&until=2031-01-02T03:04:05Z&cursor=abc&limit=7", ""), 200)
	if len(l.Records) != 1 || l.Records[0] != api.AuditRecord(r) || l.NextCursor != "more" {
		t.Errorf("%+v", l)
	}
	want := store.AuditQuery{Action: "execute", Object: someID, Verdict: "ok", Cursor: "abc", Limit: 7,
		Since: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Until: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)}
	if h.store.auditQuery != want {
		t.Errorf("query %+v", h.store.auditQuery)
	}
	h.store.records = nil
	if body := h.get("/audit").body; !strings.Contains(body, `"records":[]`) { // and no null
		t.Errorf("an empty log is %s", body)
	}
	if want := (store.AuditQuery{Who: caller.String(), Limit: 50}); h.store.auditQuery != want {
		t.Errorf("default query %+v", h.store.auditQuery)
	}
	for _, bad := range []string{"limit=0", "limit=501", "verdict=maybe", "since=yesterday", "until=1", "who=local",
		"action=" + strings.Repeat("x", 65), "cursor=" + strings.Repeat("x", 257)} {
		if r := h.get("/audit?" + bad); r.StatusCode != 400 {
			t.Errorf("%s: status %d", bad, r.StatusCode)
		} else {
			r.error(t)
		}
	}
	h.store.err = cove.Errorf(cove.InvalidArgument, "not a cursor")
	if r := h.get("/audit?cursor=x"); r.StatusCode != 400 {
		t.Errorf("cursor: status %d", r.StatusCode)
	}
}

func TestVerifyAudit(t *testing.T) {
	h := start(t, nil)
	if v := decode[api.AuditVerification](t, h.do(h.owner, "GET", "/audit/verify", ""),
		200); v != (api.AuditVerification{Intact: true, Records: 3, Head: "h"}) {
		t.Errorf("%+v", v)
	}
	h.store.verify = func() store.Verification { return store.Verification{Records: 1, Head: "g", Broken: 2} }
	if v := decode[api.AuditVerification](t, h.do(h.owner, "GET", "/audit/verify", ""),
		200); v != (api.AuditVerification{Records: 1, Head: "g", Broken: 2}) {
		t.Errorf("%+v", v)
	}

	// It is work for the server, so there is one at a time.
	begun, release := make(chan struct{}), make(chan struct{})
	h.store.verify = func() store.Verification {
		close(begun)
		<-release
		return store.Verification{}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if r := h.do(h.owner, "GET", "/audit/verify", ""); r.StatusCode != 200 {
			t.Errorf("the first: status %d", r.StatusCode)
		}
	})
	<-begun
	if r := h.do(h.owner, "GET", "/audit/verify", ""); r.StatusCode != 429 || r.Header.Get("Retry-After") == "" {
		t.Errorf("the second: status %d", r.StatusCode)
	}
	close(release)
	wg.Wait()
}

// TestTheAuditLogTellsCallersNothingNew: who may read it learns no more from
// the record of a refusal than from its answer, such as whether a path exists.
func TestTheAuditLogTellsCallersNothingNew(t *testing.T) {
	h := start(t, nil)
	var details []string
	for _, path := range []string{"/etc/shadow", "/etc/nonexistent", "/root"} {
		r := h.post("/execute", fmt.Sprintf(`{"language":"python","code":"x","work_dir":%q}`, path))
		if r.StatusCode != 403 {
			t.Fatalf("%s: status %d", path, r.StatusCode)
		}
		record := h.store.audited()[len(details)]
		if record.Action != "attach" || record.Object != path || !strings.Contains(r.error(t).Error, record.Detail) {
			t.Errorf("%+v, where the answer is %s", record, r.body)
		}
		quoted, _ := json.Marshal(path)
		details = append(details, strings.ReplaceAll(record.Detail, string(quoted), "PATH"))
	}
	for _, d := range details {
		if d != details[0] {
			t.Errorf("records differ: %q", details)
		}
	}
	if log := h.log.String(); !strings.Contains(log, "a host path was refused") ||
		!strings.Contains(log, "does not exist") {
		t.Errorf("the log does not have the whole reason: %s", log)
	}
}
