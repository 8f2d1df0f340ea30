// Package share divides an amount among principals, such as requests in progress or bytes of memory, so that one that
// floods leaves room for the others.
package share

import (
	"sync"

	"github.com/cove-sandbox/cove"
)

// ownersPart is the part of an amount that is for the machine's owner alone: one in so many.
const ownersPart = 8

// Room returns how much more a principal may take of most, where it takes own of the amount that all take. A caller of
// the API takes half at most of what the other principals leave, and nothing of the owner's part. The machine's owner,
// and Cove itself, may take all that is left.
func Room(most, all, own int64, caller bool) int64 {
	left := most - (all - own)
	if caller {
		left = (left - most/ownersPart) / 2
	}
	return max(0, left-own)
}

// Pool is an amount that principals take of and give back to. Its methods may be called concurrently.
type Pool struct {
	most int64

	mu   sync.Mutex
	all  int64                    // taken
	each map[cove.Principal]int64 // of it; of those that have taken any
}

// New returns a Pool of an amount.
func New(most int64) *Pool { return &Pool{most: most, each: map[cove.Principal]int64{}} }

// Take takes n for a principal, and reports whether there was room for it; otherwise it takes nothing.
func (p *Pool) Take(who cove.Principal, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.room(who) {
		return false
	}
	p.count(who, n)
	return true
}

// TakeUpTo takes n for a principal, or what there is room for, and returns how much that is.
func (p *Pool) TakeUpTo(who cove.Principal, n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = max(0, min(n, p.room(who)))
	p.count(who, n)
	return n
}

// Give gives back n that a principal has taken.
func (p *Pool) Give(who cove.Principal, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(who, -n)
}

// Room returns how much a principal could take now.
func (p *Pool) Room(who cove.Principal) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.room(who)
}

// Taken returns how much all principals have taken.
func (p *Pool) Taken() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

// room is Room for a holder of p.mu.
func (p *Pool) room(who cove.Principal) int64 {
	return Room(p.most, p.all, p.each[who], who.IsCaller())
}

// count adds to what a principal has taken; p.mu must be held.
func (p *Pool) count(who cove.Principal, n int64) {
	p.all += n
	if own := p.each[who] + n; own == 0 {
		delete(p.each, who)
	} else {
		p.each[who] = own
	}
}
