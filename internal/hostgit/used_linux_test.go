package hostgit

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/cputime"
)

// TestUsed: the CPU time of a run, of which a shell and its git are one process, counts in the meter of its context:
// all that the kernel has counted for it, and nothing else.
func TestUsed(t *testing.T) {
	g, err := Find()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	init := Run{Command: []string{"init"}, Flags: []string{"--quiet"}, Args: []string{dir}}
	if _, err := g.Output(t.Context(), init); err != nil {
		t.Fatal(err)
	}
	// hash returns what the children of this process have used that ended meanwhile.
	hash := func(ctx context.Context) time.Duration {
		t.Helper()
		before := children(t)
		_, err := g.Output(ctx, Run{Dir: dir + "/.git", Command: []string{"hash-object"}, Flags: []string{"--stdin"},
			Stdin: bytes.NewReader([]byte(strings.Repeat("text\n", 1<<20)))})
		if err != nil {
			t.Fatal(err)
		}
		return children(t) - before
	}
	const rounding = 10 * time.Microsecond
	var m, other cputime.Meter
	want := hash(m.In(other.In(t.Context())))
	if used := m.Used(); want == 0 || (used-want).Abs() > rounding || other.Used() != 0 {
		t.Errorf("%v of a run, want %v, and %v in the meter outside", used, want, other.Used())
	}
	used := m.Used()
	hash(t.Context())
	if m.Used() != used {
		t.Errorf("a run of another context used %v", m.Used()-used)
	}
}

// children returns the CPU time of the children that this process has waited for.
func children(t *testing.T) time.Duration {
	t.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
