//go:build linux

package docker

import (
	"context"
	"encoding/json"
	"os"
	"time"

	containertypes "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// groupOf is the container's control group, whose name has its id; nil when the daemon is not on this host.
func groupOf(pid int, id string) *cgroup.Group {
	g, err := cgroup.Of(pid)
	if err != nil {
		return nil
	}
	return g.Limited(id)
}

// measure reads the accounting of a container, the guest's part included.
func (e *Engine) measure(ctx context.Context, c *running) (engine.Stats, error) {
	if c.group != nil {
		g, err := c.group.Stats()
		if err == nil {
			return engine.Stats{CPUTime: g.CPUTime, MemoryPeak: g.MemoryPeak, PIDs: g.PIDs, PIDsPeak: g.PIDsPeak,
				OOMKills: g.OOMKills, PIDsDenied: g.PIDsDenied}, nil
		}
		if !os.IsNotExist(err) {
			return engine.Stats{}, err
		}
	}
	return e.api.stats(ctx, c.id)
}

// stats asks the daemon, which counts no peak of tasks, no refused forks, and on cgroup version 2 no peak of memory.
func (a *api) stats(ctx context.Context, id string) (engine.Stats, error) {
	var r containertypes.StatsResponse
	err := a.do(ctx, "measure a container", func(ctx context.Context) error {
		answer, err := a.c.ContainerStats(ctx, id, client.ContainerStatsOptions{})
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return json.NewDecoder(answer.Body).Decode(&r)
	})
	return engine.Stats{
		CPUTime:    time.Duration(r.CPUStats.CPUUsage.TotalUsage),
		MemoryPeak: int64(max(r.MemoryStats.MaxUsage, r.MemoryStats.Usage)),
		OOMKills:   int64(r.MemoryStats.Failcnt),
		PIDs:       int64(r.PidsStats.Current),
		PIDsPeak:   int64(r.PidsStats.Current),
	}, err
}

// Stats implements engine.Sandbox. A container that has ended has no accounting any more: what is known is from before,
// and whether the kernel ended its PID 1 for memory.
func (s *sandbox) Stats(ctx context.Context) (engine.Stats, error) {
	s.mu.Lock()
	c, ended, destroyed, last := s.current, s.ended, s.destroyed, s.last
	s.mu.Unlock()
	switch {
	case destroyed:
		return engine.Stats{}, cove.Errorf(cove.NotFound, "sandbox %s has been destroyed", s.ID())
	case c == nil:
		return last, nil
	case ended:
		return s.obituary(ctx, c, last)
	}
	now, err := s.engine.measure(ctx, c)
	if err != nil || now.PIDs == 0 { // it has just ended
		return s.obituary(ctx, c, last)
	}
	limit := s.template.Limits.PIDs
	users := func(n int64) int64 {
		n = max(n-c.own, 0)
		if limit > 0 {
			n = min(n, limit)
		}
		return n
	}
	now.PIDs, now.PIDsPeak = users(now.PIDs), max(users(now.PIDsPeak), last.PIDsPeak)
	now.MemoryPeak, now.OOMKills = max(now.MemoryPeak, last.MemoryPeak), max(now.OOMKills, last.OOMKills)
	s.mu.Lock()
	now.Locks = s.last.Locks
	s.last = now
	s.mu.Unlock()
	return now, nil
}

func (s *sandbox) obituary(ctx context.Context, c *running, last engine.Stats) (engine.Stats, error) {
	made, err := s.engine.api.inspect(ctx, c.id)
	if err != nil {
		return engine.Stats{}, err
	}
	last.PIDs = 0
	if s.engine.groups != nil && c.group != nil { // it is there until the sandbox is destroyed
		if now, err := c.group.Stats(); err == nil {
			last.OOMKills, last.MemoryPeak = max(last.OOMKills, now.OOMKills), max(last.MemoryPeak, now.MemoryPeak)
		}
	}
	if made.State != nil && made.State.OOMKilled {
		last.OOMKills = max(last.OOMKills, 1)
	}
	return last, nil
}
