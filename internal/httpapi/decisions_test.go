package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/store"
)

func TestDecisions(t *testing.T) {
	h := start(t, nil)
	h.store.decide("a.example", decision.Allow)
	h.store.decide("b.example", decision.Deny)
	l := decode[api.DecisionList](t, h.get("/network/decisions?execution="+
		someID+"&host=a.example&verdict=deny&since=2030-01-02T03:04:05Z&until=2031-01-02T03:04:05Z&cursor=abc&limit=7"), 200)
	if len(l.Decisions) != 2 || l.Decisions[0] != apispec.Decision(h.store.decided[1]) || l.NextCursor != "more" {
		t.Errorf("%+v", l)
	}
	want := store.DecisionQuery{Client: caller.String(), Execution: someID, Host: "a.example", Verdict: decision.Deny,
		Cursor: "abc", Limit: 7,
		Since: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Until: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)}
	if h.store.decisionQuery != want {
		t.Errorf("query %+v", h.store.decisionQuery)
	}
	h.store.decided = nil
	if body := h.get("/network/decisions").body; !strings.Contains(body, `"decisions":[]`) { // and no null
		t.Errorf("none are %s", body)
	}
	if want := (store.DecisionQuery{Client: caller.String(), Limit: 50}); h.store.decisionQuery != want {
		t.Errorf("default query %+v", h.store.decisionQuery)
	}
	for _, bad := range []string{"limit=0", "limit=501", "verdict=ok", "since=yesterday", "who=local",
		"host=" + strings.Repeat("x", 254), "cursor=" + strings.Repeat("x", 257)} {
		if r := h.get("/network/decisions?" + bad); r.StatusCode != 400 {
			t.Errorf("%s: status %d", bad, r.StatusCode)
		} else {
			r.error(t)
		}
	}
}

// decisionEvents follows decisions, and hands out the events one by one.
func (h *harness) decisionEvents(query, last string) func() sse {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	h.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", h.url+"/network/decisions/stream"+query, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		h.t.Fatalf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	return func() (e sse) {
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.event = value
			case "data":
				e.data = value
			case "":
				if e.event != "" {
					return e
				}
			}
		}
		return e
	}
}

func TestDecisionStream(t *testing.T) {
	h := start(t, nil)
	h.store.decide("a.example", decision.Allow)
	h.store.decide("b.example", decision.Deny)
	all, rest, denied, fresh := h.decisionEvents("", "0"), h.decisionEvents("", "1"),
		h.decisionEvents("?verdict=deny&host=c.example", "0"), h.decisionEvents("", "")
	is := func(name string, e sse, id, host string) {
		t.Helper()
		var d api.Decision
		if err := json.Unmarshal([]byte(e.data), &d); err != nil || e.event != api.EventDecision || e.id != id ||
			d.Host != host {
			t.Errorf("%s: %+v (%v)", name, e, err)
		}
	}
	is("all", all(), "1", "a.example")
	is("all", all(), "2", "b.example")
	is("after the first", rest(), "2", "b.example")
	h.store.decide("c.example", decision.Allow)
	h.store.decide("c.example", decision.Deny)
	is("all", all(), "3", "c.example")
	is("after the first", rest(), "3", "c.example")
	is("denied", denied(), "4", "c.example")
	is("new ones", fresh(), "3", "c.example")
	h.store.fail(cove.Errorf(cove.StorageFull, "no space"))
	if e := fresh(); e.id != "4" { // it was there before
		t.Errorf("%+v", e)
	}
	if e := fresh(); e.event != api.EventError || !strings.Contains(e.data, string(cove.StorageFull)) {
		t.Errorf("%+v", e)
	}
}

func TestDecisionStreamErrors(t *testing.T) {
	h := start(t, nil)
	for _, last := range []string{"x", "-1", "1-2", "01", "+1", "99999999999999999999", strings.Repeat("9", 65)} {
		req, err := http.NewRequest("GET", h.url+"/network/decisions/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Last-Event-ID", last)
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("%q: status %d", last, resp.StatusCode)
		}
	}
}

// TestShutdownEndsFollowers, who would go on for ever.
func TestShutdownEndsFollowers(t *testing.T) {
	h := start(t, nil)
	next := h.decisionEvents("", "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := h.s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if e := next(); e != (sse{}) {
		t.Errorf("%+v", e)
	}
}
