package sandbox

import (
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/approval"
)

// Asked is an Output that is told of what waits for an answer: all of it,
// whenever it changes, until Execute returns. It is called beside Stdout and
// Stderr, not in turn with them.
type Asked interface {
	Holds([]approval.Hold)
}

// tellHolds tells the output of e what waits, until stop is called.
func (e *execution) tellHolds() (stop func()) {
	out, ok := e.output.to.(Asked)
	way := e.wayOut()
	if !ok || way == nil {
		return func() {}
	}
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		told := 0
		for {
			all, changed := way.Holds()
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

// mayTake notes that the program may take so long from now on: nothing waits longer.
func (e *execution) mayTake(d time.Duration) {
	if way := e.wayOut(); way != nil {
		way.EndBy(e.manager.o.Clock.Now().Add(d))
	}
}
