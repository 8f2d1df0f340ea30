package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/store"
)

// followed asks for the events of an execution after an event.
func (h *harness) followed(id cove.ExecutionID, last string) []sse {
	h.t.Helper()
	req, err := http.NewRequest("GET", h.url+"/executions/"+string(id)+"/stream", nil)
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
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get(api.ExecutionIDHeader) != string(id) {
		h.t.Fatalf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	events, _ := readEvents(h.t, resp.Body)
	return events
}

// TestFollow: of one that runs the events come from the sandbox, and of one
// that has ended from its record; a client cannot tell which.
func TestFollow(t *testing.T) {
	h := start(t, nil)
	id := cove.NewExecutionID()
	record := store.Execution{ID: id, Status: cove.StatusCompleted, ExitCode: 3, Output: "one\ntwö\n", Stderr: "oops\n"}
	h.store.executions[id] = record
	live := func(_ context.Context, _ cove.ExecutionID, from execution.Position, begun func(), out process.Output) error {
		begun()
		out.Stdout([]byte(record.Output[min(from.Stdout, 9):]))
		return out.Stderr([]byte(record.Stderr[min(from.Stderr, 5):]))
	}
	ended := func(context.Context, cove.ExecutionID, execution.Position, func(), process.Output) error {
		return cove.Errorf(cove.Conflict, "it has ended")
	}
	for name, follow := range map[string]followFunc{"running": live, "ended": ended} {
		h.fake.follow = follow
		for _, last := range []string{"", "0-0", "4-0", "6-3", "9-5"} { // within a character, too
			events := h.followed(id, last)
			from, err := parseEventID(last)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(output(t, events, "stdout")); got != record.Output[from.Stdout:] {
				t.Errorf("%s after %q: stdout %q", name, last, got)
			}
			if got := string(output(t, events, "stderr")); got != record.Stderr[from.Stderr:] {
				t.Errorf("%s after %q: stderr %q", name, last, got)
			}
			end := events[len(events)-1]
			var e api.Execution
			if err := json.Unmarshal([]byte(end.data), &e); err != nil || end.event != "done" || end.id != "9-5" ||
				e.ExitCode != 3 || e.Output != "" || e.SecurityEvents == nil {
				t.Errorf("%s after %q: the end is %+v", name, last, end)
			}
		}
	}
	// More was seen than there is: nothing comes but the end.
	if events := h.followed(id, "1000-1000"); len(events) != 1 || events[0].event != "done" {
		t.Errorf("%+v", events)
	}
}

func TestFollowErrors(t *testing.T) {
	h := start(t, nil)
	id := cove.NewExecutionID()
	path := "/executions/" + string(id) + "/stream"
	if r := h.get(path); r.StatusCode != 404 {
		t.Errorf("an unknown execution: status %d", r.StatusCode)
	}
	if r := h.get("/executions/x/stream"); r.StatusCode != 404 {
		t.Errorf("no id: status %d", r.StatusCode)
	}
	for _, last := range []string{"1", "x", "-", "1-", "-1", "1-2-3", "+1-2", "01-2", "1--2", "99999999999999999999-0",
		strings.Repeat("9", 65)} {
		if r := h.get(path, "Last-Event-ID", last); r.StatusCode != 400 {
			t.Errorf("after %q: status %d", last, r.StatusCode)
		} else {
			r.error(t)
		}
	}
	// One that runs in another process is known, and cannot be followed here.
	h.store.executions[id] = store.Execution{ID: id, Status: cove.StatusRunning}
	if r := h.get(path); r.StatusCode != 409 {
		t.Errorf("elsewhere: status %d", r.StatusCode)
	}
	// A failure after the beginning is an event.
	h.fake.follow = func(_ context.Context, _ cove.ExecutionID, _ execution.Position, begun func(),
		_ process.Output) error {
		begun()
		return cove.Errorf(cove.Internal, "broken")
	}
	if events := h.followed(id, ""); len(events) != 1 || events[0].event != "error" {
		t.Errorf("%+v", events)
	}
}

func FuzzEventID(f *testing.F) {
	for _, seed := range []string{"", "0-0", "12-0", "1", "-1-2", "9223372036854775807-9223372036854775808"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := parseEventID(s)
		if err == nil && (at.Stdout < 0 || at.Stderr < 0 || s != "" && eventID(at) != s) {
			t.Errorf("%q is read as %+v", s, at)
		}
	})
}
