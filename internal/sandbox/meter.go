package sandbox

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove/internal/engine"
)

// meterPause is the time between two counts of a sandbox in which no command ends.
const meterPause = time.Minute

// MeterCPU counts the CPU time of the running sandboxes until ctx ends. Close counts it once more.
func (ps *Processes) MeterCPU(ctx context.Context) {
	for {
		timer := ps.o.Clock.NewTimer(meterPause)
		select {
		case <-timer.C:
			ps.countCPU()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// meterPatience is how long a count of all running sandboxes may take.
const meterPatience = 10 * time.Second

// countCPU counts the CPU time of the running sandboxes.
func (v *supervisor) countCPU() {
	ctx, cancel := context.WithTimeout(context.Background(), meterPatience)
	defer cancel()
	for meter, sb := range v.metered() {
		meter.count(ctx, sb)
	}
}

// metered returns the sandboxes that run in this process.
func (v *supervisor) metered() map[*cpuMeter]engine.Sandbox {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[*cpuMeter]engine.Sandbox{}
	for _, r := range v.held {
		if r.box != nil {
			all[r.open.cpu] = r.box
		}
	}
	return all
}
