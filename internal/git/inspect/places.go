package inspect

import (
	"context"
	"slices"
	"sync"

	"github.com/cove-sandbox/cove"
)

// places bound how much is looked into at a time. A sandbox has no more than a share of them, and those that wait for
// one take turns, so that slow packs of one sandbox do not hold up the pushes of others.
type places struct {
	all, share int

	mu    sync.Mutex
	taken map[cove.SandboxID]int
	lines []line // of sandboxes; the first that may have a place gets the next one
}

// line holds the pushes that wait for one sandbox.
type line struct {
	sandbox cove.SandboxID
	turns   []chan struct{} // closed when it is theirs
}

// newPlaces lets so many, of which a sandbox has at most half.
func newPlaces(all int) *places {
	return &places{all: all, share: max(all/2, 1), taken: map[cove.SandboxID]int{}}
}

// enter waits for a place; leave must be called after it returns nil.
func (p *places) enter(ctx context.Context, sandbox cove.SandboxID) error {
	turn := make(chan struct{})
	p.mu.Lock()
	i := p.lineOf(sandbox)
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, line{sandbox: sandbox})
	}
	p.lines[i].turns = append(p.lines[i].turns, turn)
	p.admit()
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		p.quit(sandbox, turn)
		return ctx.Err()
	}
}

func (p *places) leave(sandbox cove.SandboxID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[sandbox]--; p.taken[sandbox] == 0 {
		delete(p.taken, sandbox)
	}
	p.admit()
}

// quit takes a turn out of its line; whose it is already leaves.
func (p *places) quit(sandbox cove.SandboxID, turn chan struct{}) {
	p.mu.Lock()
	i := p.lineOf(sandbox)
	if i < 0 || !slices.Contains(p.lines[i].turns, turn) {
		p.mu.Unlock()
		p.leave(sandbox)
		return
	}
	defer p.mu.Unlock()
	l := &p.lines[i]
	if l.turns = slices.DeleteFunc(l.turns, func(t chan struct{}) bool { return t == turn }); len(l.turns) == 0 {
		p.lines = slices.Delete(p.lines, i, i+1)
	}
}

func (p *places) lineOf(sandbox cove.SandboxID) int {
	return slices.IndexFunc(p.lines, func(l line) bool { return l.sandbox == sandbox })
}

// admit gives away the places that are free. mu must be held.
func (p *places) admit() {
	used := 0
	for _, n := range p.taken {
		used += n
	}
	for ; used < p.all; used++ {
		i := slices.IndexFunc(p.lines, func(l line) bool { return p.taken[l.sandbox] < p.share })
		if i < 0 {
			return
		}
		l := p.lines[i]
		p.lines = slices.Delete(p.lines, i, i+1)
		p.taken[l.sandbox]++
		close(l.turns[0])
		if l.turns = l.turns[1:]; len(l.turns) > 0 {
			p.lines = append(p.lines, l) // after the others
		}
	}
}
