//go:build linux

package docker

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestReachOfAnotherContainer: an id of a process that another container has meanwhile leads to no socket.
func TestReachOfAnotherContainer(t *testing.T) {
	e := open(t, options(t))
	one, other := bound(t, e).(*sandbox), bound(t, e).(*sandbox)
	if !e.capabilities.Reach {
		t.Skip(e.capabilities.Missing["reach"])
	}
	f, err := one.current.socket(t.Context(), one.engine) // the control
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	one.current.pid = other.current.pid
	if _, err := one.Reach(t.Context(), 8080); cove.ErrorCode(err) != cove.Unavailable ||
		!strings.Contains(err.Error(), "its container does not run") {
		t.Errorf("%v", err)
	}
}
