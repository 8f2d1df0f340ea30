package sandbox

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove/internal/engine"
)

// meterPause is the time between two counts of a sandbox in which no command ends.
const meterPause = time.Minute

// MeterCPU counts the CPU time of the running sandboxes until ctx ends.
func (ps *Processes) MeterCPU(ctx context.Context) {
	for ctx.Err() == nil {
		timer := ps.o.Clock.NewTimer(meterPause)
		select {
		case <-timer.C:
		case <-ctx.Done(): // and once more, for the next server begins with what it finds
			timer.Stop()
		}
		for meter, sb := range ps.metered() {
			meter.count(context.WithoutCancel(ctx), sb)
		}
	}
}

// metered returns the sandboxes that run in this process.
func (ps *Processes) metered() map[*cpuMeter]engine.Sandbox {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := map[*cpuMeter]engine.Sandbox{}
	for _, r := range ps.held {
		if r.box != nil {
			all[r.open.cpu] = r.box
		}
	}
	return all
}
