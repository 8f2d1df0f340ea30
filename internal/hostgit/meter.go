package hostgit

import (
	"context"
	"os"
	"sync/atomic"
	"time"
)

// Meter counts the CPU time of runs of git, with the processes that they have waited for. The zero Meter has counted
// none.
type Meter struct{ used atomic.Int64 }

type meterKey struct{}

// In returns a context whose runs count in m, and in no other meter.
func (m *Meter) In(ctx context.Context) context.Context { return context.WithValue(ctx, meterKey{}, m) }

// Used returns what the runs have used that have ended.
func (m *Meter) Used() time.Duration { return time.Duration(m.used.Load()) }

// Count counts CPU time in the meter of a context, if it has one.
func Count(ctx context.Context, used time.Duration) {
	if m, ok := ctx.Value(meterKey{}).(*Meter); ok {
		m.used.Add(int64(used))
	}
}

// countProcess counts a process that has ended; nil is one that was not waited for.
func countProcess(ctx context.Context, p *os.ProcessState) {
	if p != nil {
		Count(ctx, p.UserTime()+p.SystemTime())
	}
}
