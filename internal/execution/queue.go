package execution

import (
	"context"
	"sync"

	"github.com/cove-sandbox/cove"
)

// queue admits a bounded number of executions and lets a bounded number wait, in the order of their arrival. Others are
// refused at once.
type queue struct {
	limit, most int

	mu      sync.Mutex
	inside  int
	line    []chan struct{} // closed when its owner may enter
	closed  bool
	drained chan struct{} // closed when the queue is closed and empty
}

func newQueue(limit, most int) *queue {
	return &queue{limit: max(limit, 1), most: max(most, 0), drained: make(chan struct{})}
}

// enter waits for a place; leave must be called after it returns nil.
func (q *queue) enter(ctx context.Context) error {
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return cove.Errorf(cove.Unavailable, "Cove is shutting down")
	case q.inside < q.limit:
		q.inside++
		q.mu.Unlock()
		return nil
	case len(q.line) >= q.most:
		q.mu.Unlock()
		return cove.Errorf(cove.Overloaded, "%d executions run and %d wait already", q.limit, q.most).
			WithHint("try again in a moment")
	}
	turn := make(chan struct{})
	q.line = append(q.line, turn)
	q.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		q.quit(turn)
		return cove.Errorf(cove.Canceled, "the caller went away while waiting: %w", ctx.Err())
	}
}

// quit leaves the line, or the place that was given meanwhile.
func (q *queue) quit(turn chan struct{}) {
	q.mu.Lock()
	for i, t := range q.line {
		if t == turn {
			q.line = append(q.line[:i], q.line[i+1:]...)
			q.mu.Unlock()
			return
		}
	}
	q.mu.Unlock()
	q.leave()
}

// leave gives the place to the next in line.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.line) > 0 {
		close(q.line[0])
		q.line = q.line[1:]
		return
	}
	q.inside--
	q.settle()
}

// close refuses newcomers; who waits is still served.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.settle()
	}
}

func (q *queue) settle() {
	if q.closed && q.inside == 0 {
		close(q.drained)
	}
}

// empty returns a channel that is closed once the queue is closed and every place is free.
func (q *queue) empty() <-chan struct{} { return q.drained }

func (q *queue) active() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inside
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.line)
}
