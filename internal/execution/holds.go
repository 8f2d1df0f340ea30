package execution

import (
	"sync"
	"time"
)

// tellHolds tells the output of e the requests that wait, until stop is called.
func (e *execution) tellHolds() (stop func()) {
	out, ok := e.output.to.(Asked)
	route := e.currentRoute()
	if !ok || route == nil {
		return func() {}
	}
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		told := 0
		for {
			all, changed := route.Holds()
			if len(all)+told > 0 {
				out.Holds(all)
			}
			told = len(all)
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		telling.Wait()
	}
}

// mayTake limits the program, and the requests that wait in it, to a duration from now on.
func (e *execution) mayTake(d time.Duration) {
	if route := e.currentRoute(); route != nil {
		route.EndBy(e.executions.o.Clock.Now().Add(d))
	}
}
