// Package cputime counts the CPU time of work that a context is for: git of the host, and sandboxes that Cove makes for
// work of its own.
package cputime

import (
	"context"
	"sync/atomic"
	"time"
)

// Meter counts CPU time. The zero Meter has counted none.
type Meter struct{ used atomic.Int64 }

type meterKey struct{}

// In returns a context whose work counts in m, and in no other meter.
func (m *Meter) In(ctx context.Context) context.Context { return context.WithValue(ctx, meterKey{}, m) }

// Used returns what the work has used that has ended.
func (m *Meter) Used() time.Duration { return time.Duration(m.used.Load()) }

// Count counts CPU time in the meter of a context, if it has one.
func Count(ctx context.Context, used time.Duration) {
	if m, ok := ctx.Value(meterKey{}).(*Meter); ok {
		m.used.Add(int64(used))
	}
}
