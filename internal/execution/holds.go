package execution

import (
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/approval"
)

// Asked is an Output that receives the requests that wait for an answer: all of them, whenever they change, until
// Execute returns. It is called beside Stdout and Stderr, not in turn with them.
type Asked interface {
	Holds([]approval.Hold)
}

// tellHolds tells the output of e the requests that wait, until stop is called.
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

// mayTake limits the program, and the requests that wait in it, to a duration from now on.
func (e *execution) mayTake(d time.Duration) {
	if way := e.wayOut(); way != nil {
		way.EndBy(e.executions.o.Clock.Now().Add(d))
	}
}
