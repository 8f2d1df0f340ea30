package execution

import (
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestReasons: a program that has ended by itself was ended by nothing else, except by who killed it before.
func TestReasons(t *testing.T) {
	for name, c := range map[string]struct {
		before, after, want ending
	}{
		"nothing else happens":     {endNone, endNone, endItself},
		"the server stops then":    {endNone, endShutdown, endItself},
		"its caller leaves then":   {endNone, endKilled, endItself},
		"it forestalls the server": {endShutdown, endNone, endItself},
		"it was killed":            {endKilled, endShutdown, endKilled},
	} {
		e := &execution{cancel: func() {}}
		for _, why := range []ending{c.before, endNone, c.after} {
			if why == endNone {
				e.settle()
			} else {
				e.end(why)
			}
		}
		if got := e.reason(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestAdmittedWhileClosing: an execution that comes after Close has ended the others is ended, too.
func TestAdmittedWhileClosing(t *testing.T) {
	for closing, want := range map[bool]ending{false: endNone, true: endShutdown} {
		x := &Executions{running: map[cove.ExecutionID]*execution{}, ending: closing}
		e := &execution{executions: x, cancel: func() {}}
		if e.register(); e.reason() != want {
			t.Errorf("ending %v: %d, want %d", closing, e.reason(), want)
		}
	}
}
