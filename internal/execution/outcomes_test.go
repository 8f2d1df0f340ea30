package execution

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestWaitingIsBounded: outcomes that wait keep their output while there is room, and then there is a last one.
func TestWaitingIsBounded(t *testing.T) {
	var log bytes.Buffer
	x := newOutcomes(store.Vault{}, slog.New(slog.NewTextHandler(&log, nil)))
	add := func(output string) store.Execution {
		id := cove.NewExecutionID()
		x.wait(outcome{end: store.Execution{ID: id, Output: output}})
		return x.waiting[id].end
	}
	large := strings.Repeat("o", maxWaitingOutput-10)
	if e := add(large); len(e.Output) != len(large) || e.OutputGone != "" {
		t.Errorf("the first has %d bytes, %q", len(e.Output), e.OutputGone)
	}
	if e := add("more than there is room for"); e.Output != "" || e.OutputGone != store.GoneStorageFull {
		t.Errorf("the second has %d bytes, %q", len(e.Output), e.OutputGone)
	}
	if e := add("small"); e.Output != "small" {
		t.Errorf("the third has %d bytes, %q", len(e.Output), e.OutputGone)
	}
	if e := add(""); e.OutputGone != "" {
		t.Errorf("one without output: %q", e.OutputGone)
	}
	for len(x.waiting) < maxWaiting {
		x.waiting[cove.NewExecutionID()] = outcome{}
	}
	if e := add("late"); e.ID != "" || !strings.Contains(log.String(), "too many ends wait") {
		t.Errorf("one too many: %+v, %s", e, log.String())
	}
}
