package execution

import (
	"context"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
)

// queue admits a bounded number of executions and lets a bounded number wait, as line shares the places. Others are
// refused at once.
type queue struct {
	grants access.Grants

	mu      sync.Mutex
	line    line // guarded by mu
	closed  bool
	drained chan struct{} // closed when the queue is closed and empty
}

func newQueue(limit, most int, grants access.Grants) *queue {
	return &queue{grants: grants, line: newLine(limit, most), drained: make(chan struct{})}
}

// enter waits for a place; leave must be called after it returns nil.
func (q *queue) enter(ctx context.Context, who cove.Principal) error {
	t, err := q.join(who)
	if err != nil {
		return err
	}
	select {
	case <-t.given:
		return nil
	case <-ctx.Done():
		q.quit(t)
		return cove.Errorf(cove.Canceled, "the caller went away while waiting: %w", ctx.Err())
	}
}

func (q *queue) join(who cove.Principal) (*turn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, cove.ShuttingDown()
	}
	return q.line.join(who, q.grants.Of(who).Concurrent)
}

// quit leaves the line, or the place that was given meanwhile.
func (q *queue) quit(t *turn) {
	q.mu.Lock()
	waited := q.line.quit(t)
	q.mu.Unlock()
	if !waited {
		q.leave(t.who)
	}
}

// leave gives the place of a principal's execution to the next in line.
func (q *queue) leave(who cove.Principal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.leave(who)
	q.settle()
}

// hold counts a run, a command or a terminal among what a principal has at once, until release is called. Errors:
// Overloaded.
func (q *queue) hold(who cove.Principal, already bool) (release func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.line.hold(who, q.grants.Of(who), already); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.line.drop(who)
	}), nil
}

// close refuses newcomers; who waits is still served.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed, q.line.closing = true, true
		q.line.advance()
		q.settle()
	}
}

func (q *queue) settle() {
	if q.closed && q.line.inside == 0 {
		close(q.drained)
	}
}

// empty returns a channel that is closed once the queue is closed and every place is free.
func (q *queue) empty() <-chan struct{} { return q.drained }

func (q *queue) active() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.line.inside
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.line.waiting
}
