package hostgit

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// TestMeter: the CPU time of a run, of which a shell and its git are one process, counts in the meter of its context.
func TestMeter(t *testing.T) {
	g, err := Find()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	init := Run{Command: []string{"init"}, Flags: []string{"--quiet"}, Args: []string{dir}}
	if _, err := g.Output(t.Context(), init); err != nil {
		t.Fatal(err)
	}
	hash := func(ctx context.Context) {
		t.Helper()
		_, err := g.Output(ctx, Run{Dir: dir + "/.git", Command: []string{"hash-object"}, Flags: []string{"--stdin"},
			Stdin: bytes.NewReader([]byte(strings.Repeat("text\n", 8<<20)))})
		if err != nil {
			t.Fatal(err)
		}
	}
	var m, other Meter
	hash(m.In(other.In(t.Context())))
	if used := m.Used(); used < 10*time.Millisecond || used > time.Minute || other.Used() != 0 {
		t.Errorf("%v of a run, and %v in the meter outside", used, other.Used())
	}
	used := m.Used()
	hash(t.Context())
	if m.Used() != used {
		t.Errorf("a run of another context used %v", m.Used()-used)
	}
}
