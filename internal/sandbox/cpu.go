package sandbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/store"
)

// cpuMeter counts the CPU time of a running sandbox among what its owner's key has used: the time of commands,
// terminals, agents and whatever they have left running.
type cpuMeter struct {
	quota bool // the key has one; otherwise nothing is counted
	own   store.Records
	clock clock.Clock
	log   *slog.Logger

	mu      sync.Mutex
	counted time.Duration // of the engine's account, which begins with the running sandbox; below 0: all of the first one
}

// count records what the sandbox has used since the last count. What cannot be recorded now is with the next one.
func (m *cpuMeter) count(ctx context.Context, sb engine.Sandbox) {
	if !m.quota {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stats, err := sb.Stats(ctx)
	if m.counted < 0 {
		if err == nil && stats.CPUTime > 0 {
			m.counted = stats.CPUTime
		}
		return
	}
	if used := stats.CPUTime - m.counted; err == nil && used > 0 {
		if err = m.own.AddCPU(ctx, m.clock.Now(), used); err == nil {
			m.counted = stats.CPUTime
		}
	}
	if err != nil {
		m.log.Warn("the CPU time of a sandbox is not counted", "sandbox", sb.ID(), "error", err)
	}
}
