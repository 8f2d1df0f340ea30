package execution

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
)

// queue admits a bounded number of executions and lets a bounded number wait, as line shares the places. Others are
// refused at once.
type queue struct {
	grants  access.Grants
	clock   clock.Clock
	maxWait time.Duration // of any execution; zero is no bound

	mu      sync.Mutex
	line    line // guarded by mu
	waits   Waits
	closed  bool
	drained chan struct{} // closed when the queue is closed and empty
}

func newQueue(l line, maxWait time.Duration, grants access.Grants, clk clock.Clock) *queue {
	return &queue{grants: grants, clock: clk, maxWait: maxWait, line: l, drained: make(chan struct{})}
}

// enter waits for a place, for as long as an execution may run that has begun; leave must be called with its turn.
func (q *queue) enter(ctx context.Context, who cove.Principal, timeout time.Duration) (*turn, error) {
	patience := patience(timeout, q.maxWait)
	t, timeUp, err := q.join(who, patience)
	if err != nil || timeUp == nil {
		return t, err
	}
	defer timeUp.Stop()
	joined := q.clock.Monotonic()
	select {
	case <-t.given:
		q.began(q.clock.Since(joined))
		return t, nil
	case <-timeUp.C: // either: expire finds a place that was given
		if err := q.expire(t, patience); err != nil {
			return nil, err
		}
		return t, nil
	case <-ctx.Done():
		q.quit(t)
		return nil, cove.Errorf(cove.Canceled, "the caller went away while waiting: %w", ctx.Err())
	}
}

// patience is how long an execution waits at most. It is pure.
func patience(timeout, most time.Duration) time.Duration {
	if timeout <= 0 || most > 0 && most < timeout {
		return most
	}
	return timeout
}

// join takes a turn. Without a timer it was given at once; otherwise the timer ends the wait.
func (q *queue) join(who cove.Principal, patience time.Duration) (*turn, *clock.Timer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, nil, cove.ShuttingDown()
	}
	t, err := q.line.join(who, q.grants.Of(who).Concurrent, patience, q.clock.Monotonic())
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-t.given:
		q.waits.add(0)
		return t, nil, nil
	default:
	}
	if patience == 0 {
		return t, clock.NewTimer(nil, func() bool { return false }, nil), nil
	}
	return t, q.clock.NewTimer(patience), nil
}

func (q *queue) began(waited time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits.add(waited)
}

// expire takes a turn back that has waited for as long as it may. Without an error it was given meanwhile.
func (q *queue) expire(t *turn, patience time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Monotonic()
	if !q.line.quit(t, now) {
		q.waits.add(patience)
		return nil
	}
	p := q.line.party(t.who, q.grants.Of(t.who).Concurrent)
	err := q.line.refuse(refusedTimed, q.line.estimate(p, now),
		"the execution has waited %s for a place, and waits no longer", patience)
	q.line.forget()
	return err
}

// quit leaves the line, or the place that was given meanwhile.
func (q *queue) quit(t *turn) {
	q.mu.Lock()
	waited := q.line.quit(t, q.clock.Monotonic())
	q.mu.Unlock()
	if !waited {
		q.leave(t)
	}
}

// leave gives the place of an execution to the next in line.
func (q *queue) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.leave(t, q.clock.Monotonic())
	q.settle()
}

// rest gives the slot of an execution to the next in line.
func (q *queue) rest(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.rest(t, q.clock.Monotonic())
}

// watch gives the slot of an execution to the next in line once it need not hold others back. It returns then, or when
// the execution has left. cpu is the CPU time that it has used, 0 without a sandbox.
func (q *queue) watch(t *turn, cpu func() time.Duration) {
	began := q.clock.Monotonic()
	var u usage
	var known time.Duration // at the last look
	timer := q.clock.NewTimer(lookInterval)
	defer timer.Stop()
	for last := began; ; {
		select {
		case <-t.left:
			return
		case <-timer.C:
		}
		now, used := q.clock.Monotonic(), cpu()
		if u.past, u.used = 0, 0; known > 0 {
			u.past, u.used = now.Sub(last), used-known
		}
		u.age, u.cpu, known, last = now.Sub(began), u.cpu+u.used, used, now
		u.sandbox = used > 0
		if u.rests() {
			q.rest(t)
			return
		}
		timer.Reset(lookInterval)
	}
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
		q.line.drop(who, q.clock.Monotonic())
	}), nil
}

// close refuses newcomers; who waits is still served.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed, q.line.closing = true, true
		q.line.advance(q.clock.Monotonic())
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

// Load describes the executions that run and wait.
type Load struct {
	Running   int           // executions that have a place: a sandbox, or a wait for its engine
	Computing int           // of these, those that keep others waiting
	Waiting   int           // executions that wait for a place
	Wait      time.Duration // estimated, of one that would come last
	Waits     Waits         // of those that have begun
	Refused   map[string]int64
}

func (q *queue) load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := &q.line
	load := Load{Running: l.inside, Computing: l.computing, Waiting: l.waiting, Waits: q.waits,
		Refused: map[string]int64{}}
	if l.blocked {
		load.Wait = wait(l.waiting, l.pace.mean(), q.clock.Since(l.moved))
	}
	for _, why := range []refusal{refusedFull, refusedShare, refusedLate, refusedTimed} {
		load.Refused[string(why)] = l.refused[why]
	}
	return load
}

// WaitBounds are the upper bounds of the first of Waits' counts, in seconds.
var WaitBounds = [...]float64{0, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// Waits counts how long executions waited that have begun.
type Waits struct {
	Counts [len(WaitBounds) + 1]uint64 // by WaitBounds; the last counts what is longer
	Sum    time.Duration
}

func (w *Waits) add(d time.Duration) {
	i, _ := slices.BinarySearch(WaitBounds[:], d.Seconds())
	w.Counts[i]++
	w.Sum += d
}
