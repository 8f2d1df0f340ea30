package execution

import (
	"testing"

	"github.com/cove-sandbox/cove/internal/store"
)

// TestShortened: an outcome without room for its output says where that has gone.
func TestShortened(t *testing.T) {
	o := outcome{end: store.Execution{ID: "ex_1", Output: "out", Stderr: "err", ExitCode: 3}}
	got := o.shortened()
	if got.size() != 0 || got.end.OutputGone != store.GoneStorageFull || got.end.ID != "ex_1" || got.end.ExitCode != 3 {
		t.Errorf("%+v", got.end)
	}
	if o.size() != 6 {
		t.Errorf("the outcome itself has changed: %+v", o.end)
	}
	if silent := (outcome{}).shortened(); silent.end.OutputGone != "" {
		t.Errorf("one without output: %+v", silent.end)
	}
}
