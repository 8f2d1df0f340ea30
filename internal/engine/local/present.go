package local

import (
	"errors"
	"sync"

	"github.com/cove-sandbox/cove"
)

// Present holds the sandboxes of an engine in this process, by their ids. The zero Present is empty and open.
type Present[S interface {
	comparable
	ID() cove.SandboxID
}] struct {
	mu     sync.Mutex
	all    map[cove.SandboxID]S
	closed bool
}

// Add adds a sandbox. Errors: Conflict when its id is taken, Unavailable after Close.
func (p *Present[S]) Add(s S) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return cove.Errorf(cove.Unavailable, "the engine is shutting down")
	}
	if _, taken := p.all[s.ID()]; taken {
		return cove.Errorf(cove.Conflict, "sandbox %s exists already", s.ID())
	}
	if p.all == nil {
		p.all = map[cove.SandboxID]S{}
	}
	p.all[s.ID()] = s
	return nil
}

// Remove removes a sandbox, unless its id belongs to a later one.
func (p *Present[S]) Remove(s S) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[s.ID()] == s {
		delete(p.all, s.ID())
	}
}

// Close admits no more sandboxes, and ends each that is left. It reports whether it was called before.
func (p *Present[S]) Close(end func(S) error) (again bool, err error) {
	p.mu.Lock()
	again, p.closed = p.closed, true
	errs := make(chan error, len(p.all))
	var wait sync.WaitGroup
	for _, s := range p.all {
		wait.Go(func() { errs <- end(s) })
	}
	p.mu.Unlock()
	wait.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return again, err
}
