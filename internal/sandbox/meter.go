package sandbox

import (
	"context"
	"time"
)

// meterPause is the time between two counts of a sandbox in which no command ends.
const meterPause = time.Minute

// MeterCPU counts the CPU time of the running sandboxes until ctx ends. Close counts it once more.
func (ps *Processes) MeterCPU(ctx context.Context) {
	for {
		timer := ps.o.Clock.NewTimer(meterPause)
		select {
		case <-timer.C:
			countCPU(ps.residents)
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
