package doctor

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// atOnce bounds concurrent checks, which mostly wait for processes.
const atOnce = 4

// patience bounds one check.
const patience = 20 * time.Second

// Run makes every check. It does not fail: an unknown outcome is a finding too.
func Run(ctx context.Context, o Options) Report {
	if o.Engine == "" || o.Engine == "auto" {
		o.Engine = native
	}
	h := newHost(o)
	defer h.close()
	all := append(checks(), engineChecks(o)...)
	findings := make([]Finding, len(all))
	gate := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i, c := range all {
		gate <- struct{}{}
		wait.Go(func() {
			defer func() { <-gate }()
			// Children die with the thread that started them (Pdeathsig), and threads that have entered a control group end.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			findings[i] = c.finding(c.run(ctx, h), o.Engine)
		})
	}
	wait.Wait()
	return Report{
		Version: o.Version, Kernel: h.kernel(), User: h.user(), Engine: o.Engine,
		Healthy: healthy(findings), Findings: findings,
	}
}
