package sandbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/cputime"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/store"
)

// cpuMeter counts the CPU time of a running sandbox among what its owner's key has used: the time of commands,
// terminals, agents and whatever they have left running, and of git of this machine that serves the sandbox.
type cpuMeter struct {
	quota bool // the key has one; otherwise nothing is counted
	own   store.Records
	clock clock.Clock
	log   *slog.Logger

	git cputime.Meter // on the host, where the sandbox has asked for it

	mu sync.Mutex
	// counted is of the engine's account, which begins with the running sandbox; below 0: all of the first one.
	counted    time.Duration
	countedGit time.Duration
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
	git := m.git.Used()
	if used := stats.CPUTime - m.counted + git - m.countedGit; err == nil && used > 0 {
		if err = m.own.AddCPU(ctx, m.clock.Now(), used); err == nil {
			m.counted, m.countedGit = stats.CPUTime, git
		}
	}
	if err != nil {
		m.log.Warn("the CPU time of a sandbox is not counted", "sandbox", sb.ID(), "error", err)
	}
}
