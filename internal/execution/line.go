package execution

import (
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
)

// line shares a number of places between principals. It is pure: who may enter is told by turns that are given.
//
// A principal has one turn in each round while others wait, so that one that asks for much delays the others by one
// turn at most. A principal that comes anew has its turn in the round that is going on. Turns of one principal are
// given in the order of arrival, and a place that is free is given whenever a principal waits that may have it.
type line struct {
	limit, most int // places, and turns that may wait

	inside  int // places that are taken
	waiting int
	round   int64 // of the turn that was given last
	arrived int64
	parties map[cove.Principal]*party
	closing bool // what waits is served, whatever its owner may have at once
}

// party describes a principal that waits, or has had its turn in this round.
type party struct {
	most  int   // at once; zero is no bound
	busy  int   // executions inside, runs, commands and terminals
	round int64 // of its next turn at the earliest
	turns []*turn
}

// turn is a wait for a place. given is closed when the place is its owner's.
type turn struct {
	who     cove.Principal
	arrival int64
	given   chan struct{}
}

func newLine(limit, most int) line {
	return line{limit: max(limit, 1), most: max(most, 0), parties: map[cove.Principal]*party{}}
}

// shareFactor: a principal that leaves room may have so many times as many turns waiting as are left for others. The
// line of one alone is therefore three quarters of all.
const shareFactor = 3

// probes has the places of questions for versions, which are no executions: no caller's quota counts them.
var probes = cove.System("")

// leavesRoom reports whether a principal leaves a part of the line to others: all but the machine's owner do, also the
// questions for versions, which any caller may ask.
func leavesRoom(who cove.Principal) bool { return !who.IsOwner() }

// join takes a place, or waits for one. Its turn is given at once where there is one. Errors: Overloaded.
func (l *line) join(who cove.Principal, most int) (*turn, error) {
	p := l.party(who, most)
	t := &turn{who: who, arrival: l.arrived, given: make(chan struct{})}
	l.arrived++
	if l.inside < l.limit && l.may(p) && len(p.turns) == 0 {
		p.turns = append(p.turns, t)
		l.waiting++
		l.give(p)
		return t, nil
	}
	left := l.most - l.waiting - 1
	switch {
	case left < 0:
		l.forget()
		return nil, cove.Errorf(cove.Overloaded, "%d executions run and %d wait already", l.inside, l.waiting).
			WithHint("try again in a moment")
	case leavesRoom(who) && len(p.turns) > 0 && len(p.turns)+1 > shareFactor*left:
		return nil, cove.Errorf(cove.Overloaded,
			"%d executions of this caller wait already; the rest of the line is for others", len(p.turns)).
			WithHint("try again in a moment")
	}
	p.turns = append(p.turns, t)
	l.waiting++
	return t, nil
}

// leave gives a place back.
func (l *line) leave(who cove.Principal) {
	l.inside--
	l.parties[who].busy--
	l.advance()
}

// quit takes a turn back that waits, and reports whether it did: otherwise it was given.
func (l *line) quit(t *turn) bool {
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
func (l *line) drop(who cove.Principal) {
	l.parties[who].busy--
	l.advance()
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
func (l *line) advance() {
	for l.inside < l.limit {
		next := l.next()
		if next == nil {
			break
		}
		l.give(next)
	}
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
