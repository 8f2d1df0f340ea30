package execution

import (
	"math"
	"time"
)

// pace is how long the line takes to move by one turn: the mean of its last steps.
//
// While executions wait for a place or a slot, a step is measured, from one beginning to the next. Otherwise an
// execution that ends counts with what the step would be if the processors did nothing but run its like: its CPU time
// by the number of processors. That is too little by what Cove itself needs for an execution, so nothing is refused on
// the strength of it that could have been served.
type pace struct {
	steps [paceSteps]time.Duration
	n     int // steps that were ever added
	sum   time.Duration
}

// paceSteps is a second or two of short executions on two processors.
const paceSteps = 64

func (p *pace) add(step time.Duration) {
	at := &p.steps[p.n%paceSteps]
	p.sum += step - *at
	*at = step
	p.n++
}

// mean is zero where nothing has been measured.
func (p *pace) mean() time.Duration {
	if p.n == 0 {
		return 0
	}
	return p.sum / time.Duration(min(p.n, paceSteps))
}

// wait estimates how long a turn waits with so many ahead of it: a step for each, and one that the line takes already,
// still is for how long. A line that does not move is so taken to stand for as long as it has stood. It is pure.
func wait(ahead int, step, still time.Duration) time.Duration {
	return time.Duration(ahead)*step + max(step, still)
}

// longestRetry bounds the estimate of a line that does not move.
const longestRetry = 5 * time.Minute

// retryAfter returns an estimated wait as a caller is told it: in whole seconds, one at least. It is pure.
func retryAfter(wait time.Duration) time.Duration {
	whole := time.Duration(math.Ceil(wait.Seconds())) * time.Second
	return min(max(whole, time.Second), longestRetry)
}

// shown rounds an estimate to what it is worth. It is pure.
func shown(wait time.Duration) time.Duration {
	if wait < 10*time.Second {
		return wait.Round(100 * time.Millisecond)
	}
	return wait.Round(time.Second)
}

// usage describes an execution that computes, a while after the last look at it.
type usage struct {
	age     time.Duration // since its turn was given
	sandbox bool          // it has one
	cpu     time.Duration // used since the first look at the sandbox, which may have been prepared before
	used    time.Duration // of this since the last look
	past    time.Duration // since the last look; 0 at the first look at a sandbox
}

const (
	lookInterval = 50 * time.Millisecond
	// An execution that has had computeMost of CPU time is a long one: it shares the processors with those that begin, as
	// the kernel sees to it, rather than keeping them waiting.
	computeMost = 250 * time.Millisecond
	// One that has used less than this part of one processor since the last look waits for something.
	idlePart = 50
	// One without a sandbox after this time waits for an image or for an engine.
	prepareMost = time.Second
)

// rests reports whether an execution gives its slot to the next one. It is pure.
func (u usage) rests() bool {
	if !u.sandbox {
		return u.age >= prepareMost
	}
	return u.cpu >= computeMost || u.past > 0 && u.used*idlePart < u.past
}
