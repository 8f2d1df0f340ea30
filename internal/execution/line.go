package execution

import (
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
)

// line shares a number of places between principals. It is pure: turns are given to the principals that wait, and the
// time is an argument.
//
// A principal has one turn in each round while others wait, so that one that asks for much delays the others by one
// turn at most. A principal that comes anew has its turn in the round that is going on. Turns of one principal are
// given in the order of arrival, and a place that is free is given whenever a principal waits that may have it.
//
// A turn begins with a place and one of the slots: there are as many slots as executions compute at once. An execution
// that only waits, or computes for long, rests: it keeps its place, and the next one has its slot.
type line struct {
	limit, most int // places, and turns that may wait when all are taken
	slots       int // turns that compute at once
	processors  int // that they share

	inside    int // places that are taken
	computing int // slots that are taken
	waiting   int
	round     int64 // of the turn that was given last
	arrived   int64
	parties   map[cove.Principal]*party
	closing   bool // what waits is served, whatever its owner may have at once

	pace    pace
	blocked bool          // a turn waits for nothing but a place or a slot
	moved   clock.Instant // the last step of the line since it is blocked
	refused map[refusal]int64
}

// refusal is why an execution is not taken into the line, or leaves it without a place.
type refusal string

const (
	refusedFull  refusal = "full"  // as many turns wait as may
	refusedShare refusal = "share" // the rest of the line is for other principals
	refusedLate  refusal = "late"  // the estimated wait is longer than the execution's patience
	refusedTimed refusal = "timed" // its patience has ended in the line
)

// party describes a principal that waits, or has had its turn in this round.
type party struct {
	most  int   // at once; zero is no bound
	busy  int   // executions inside, runs, commands and terminals
	round int64 // of its next turn at the earliest
	turns []*turn
}

// turn is a wait for a place, and then the place. given is closed when the place is its owner's.
type turn struct {
	who      cove.Principal
	arrival  int64
	given    chan struct{}
	left     chan struct{}
	computes bool          // it has a slot; the line's
	cpu      time.Duration // that its execution used, if it is known; set before the turn ends
}

func newLine(limit, most, slots, processors int) line {
	limit = max(limit, 1)
	if slots < 1 {
		slots = limit
	}
	return line{limit: limit, most: max(most, 0), slots: min(slots, limit), processors: max(processors, 1),
		parties: map[cove.Principal]*party{}, refused: map[refusal]int64{}}
}

// shareFactor: a principal that leaves room may have so many times as many turns waiting as are left for others. The
// line of one alone is therefore three quarters of all.
const shareFactor = 3

// probes has the places of questions for versions, which are no executions: no caller's quota counts them.
var probes = cove.System("")

// leavesRoom reports whether a principal leaves a part of the line to others: all but the machine's owner do, also the
// questions for versions, which any caller may ask.
func leavesRoom(who cove.Principal) bool { return !who.IsOwner() }

// join takes a place, or waits for one. Its turn is given at once where there is one. An execution whose estimated wait
// is longer than its patience does not wait; zero is patience without end. Errors: Overloaded.
func (l *line) join(who cove.Principal, most int, patience time.Duration, now clock.Instant) (*turn, error) {
	p := l.party(who, most)
	t := &turn{who: who, arrival: l.arrived, given: make(chan struct{}), left: make(chan struct{})}
	l.arrived++
	if l.free() && l.may(p) && len(p.turns) == 0 {
		p.turns = append(p.turns, t)
		l.waiting++
		l.give(p)
		return t, nil
	}
	wait := l.estimate(p, now)
	left := l.limit + l.most - l.inside - l.waiting - 1 // a free place without a slot is waited for in the line
	switch {
	case left < 0:
		l.forget()
		return nil, l.refuse(refusedFull, wait, "%d executions run and %d wait already", l.inside, l.waiting)
	case leavesRoom(who) && len(p.turns) > 0 && len(p.turns)+1 > shareFactor*left:
		return nil, l.refuse(refusedShare, wait,
			"%d executions of this caller wait already; the rest of the line is for others", len(p.turns))
	case patience > 0 && wait > patience:
		l.forget()
		return nil, l.refuse(refusedLate, wait,
			"%d executions wait already: this one would begin in about %s, and waits %s at most",
			l.waiting, shown(wait), patience)
	}
	p.turns = append(p.turns, t)
	l.waiting++
	l.look(now)
	return t, nil
}

// refuse counts a refusal, and returns the error of it, which says when the wait is over that is estimated.
func (l *line) refuse(why refusal, wait time.Duration, format string, args ...any) error {
	l.refused[why]++
	return cove.Errorf(cove.Overloaded, format, args...).WithRetry(retryAfter(wait))
}

// free reports whether there is a place, and a slot for it.
func (l *line) free() bool { return l.inside < l.limit && l.computing < l.slots }

// estimate returns how long a turn would wait that a principal took now; zero where nothing is known.
func (l *line) estimate(p *party, now clock.Instant) time.Duration {
	if !l.blocked || !l.may(p) {
		return 0
	}
	return wait(l.ahead(p), l.pace.mean(), now.Sub(l.moved))
}

// ahead counts the turns that wait and are given before the next one of a principal, if no other comes.
func (l *line) ahead(p *party) int {
	n, last := len(p.turns), max(p.round, l.round)+int64(len(p.turns))
	for _, q := range l.parties {
		if q != p && l.may(q) {
			n += int(min(max(last-max(q.round, l.round)+1, 0), int64(len(q.turns))))
		}
	}
	return n
}

// look notes whether a turn waits for a place or a slot, after what has changed that.
func (l *line) look(now clock.Instant) {
	blocked := l.waiting > 0 && l.next() != nil
	if blocked && !l.blocked {
		l.moved = now
	}
	l.blocked = blocked
}

// leave gives a place back.
func (l *line) leave(t *turn, now clock.Instant) {
	l.inside--
	if t.computes {
		t.computes = false
		l.computing--
	}
	if t.cpu > 0 && !l.blocked {
		l.pace.add(t.cpu / time.Duration(l.processors))
	}
	l.parties[t.who].busy--
	l.advance(now)
	close(t.left)
}

// rest gives the slot of a turn to the next one; its place stays its own.
func (l *line) rest(t *turn, now clock.Instant) {
	if t.computes {
		t.computes = false
		l.computing--
		l.advance(now)
	}
}

// quit takes a turn back that waits, and reports whether it did: otherwise it was given.
func (l *line) quit(t *turn, now clock.Instant) bool {
	p := l.parties[t.who]
	if p == nil {
		return false
	}
	i := slices.Index(p.turns, t)
	if i < 0 {
		return false
	}
	p.turns = slices.Delete(p.turns, i, i+1)
	l.waiting--
	l.look(now)
	l.forget()
	return true
}

// hold counts what has no place here among what a principal has at once, a run, a command or a terminal; one that goes
// on already is counted in any case. Errors: Overloaded.
func (l *line) hold(who cove.Principal, g access.Grant, already bool) error {
	p := l.party(who, g.Concurrent)
	if !already && !l.may(p) {
		return g.TooManyAtOnce()
	}
	p.busy++
	return nil
}

// drop ends what hold counts.
func (l *line) drop(who cove.Principal, now clock.Instant) {
	l.parties[who].busy--
	l.advance(now)
}

func (l *line) party(who cove.Principal, most int) *party {
	p := l.parties[who]
	if p == nil {
		p = &party{}
		l.parties[who] = p
	}
	p.most = most
	return p
}

// may reports whether a principal may have one more at once.
func (l *line) may(p *party) bool { return l.closing || p.most == 0 || p.busy < p.most }

// advance gives the places that are free.
func (l *line) advance(now clock.Instant) {
	for l.free() {
		next := l.next()
		if next == nil {
			break
		}
		if l.blocked {
			l.pace.add(now.Sub(l.moved))
			l.moved = now
		}
		l.give(next)
	}
	l.look(now)
	l.forget()
}

// next returns the principal whose turn it is: of those in the earliest round the one that waits longest.
func (l *line) next() (best *party) {
	for _, p := range l.parties {
		if len(p.turns) == 0 || !l.may(p) {
			continue
		}
		if best == nil {
			best = p
			continue
		}
		mine, first := max(p.round, l.round), max(best.round, l.round)
		if mine < first || mine == first && p.turns[0].arrival < best.turns[0].arrival {
			best = p
		}
	}
	return best
}

// give gives a place to the first turn of a principal.
func (l *line) give(p *party) {
	t := p.turns[0]
	p.turns = slices.Delete(p.turns, 0, 1)
	l.waiting--
	l.inside++
	l.computing++
	t.computes = true
	p.busy++
	l.round = max(l.round, p.round)
	p.round = l.round + 1
	close(t.given)
}

// forget drops what need not be remembered: principals without anything, whose last turn was in an earlier round.
func (l *line) forget() {
	for who, p := range l.parties {
		if len(p.turns) == 0 && p.busy == 0 && p.round <= l.round {
			delete(l.parties, who)
		}
	}
}
