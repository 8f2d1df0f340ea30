package pool

import (
	"context"
	"maps"
	"sync"

	"github.com/cove-sandbox/cove"
)

// destructions holds those of sandboxes that are under way.
type destructions struct {
	group sync.WaitGroup
	mu    sync.Mutex
	all   map[*destruction]bool
}

// destruction is that of one sandbox.
type destruction struct {
	done chan struct{}
	err  error // of a sandbox that is left, once done is closed
}

// begin has a sandbox torn down beside the caller.
func (d *destructions) begin(one *Prepared, failed func(error)) {
	gone := &destruction{done: make(chan struct{})}
	d.mu.Lock()
	if d.all == nil {
		d.all = map[*destruction]bool{}
	}
	d.all[gone] = true
	d.mu.Unlock()
	d.group.Go(func() {
		if gone.err = one.TearDown(); gone.err != nil {
			failed(gone.err)
		}
		d.mu.Lock()
		delete(d.all, gone)
		d.mu.Unlock()
		close(gone.done)
	})
}

// underWay returns those that have not ended.
func (d *destructions) underWay() map[*destruction]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.all)
}

// discard destroys sandboxes beside the caller.
func (p *Pool) discard(all ...*Prepared) {
	for _, one := range all {
		p.clean.begin(one, func(err error) {
			p.o.Log.Error("cannot destroy a prepared sandbox; the reaper will try again", "sandbox", one.ID(), "error", err)
		})
	}
}

// Drain forgets what was asked for, stops the preparation under way, and destroys what is ready. It returns when all
// that is gone, or when the context ends. Errors: Unavailable for sandboxes that are left.
func (p *Pool) Drain(ctx context.Context) error {
	making, ends := p.forgetAll()
	if making != nil {
		select {
		case <-making.done:
			maps.Copy(ends, p.clean.underWay()) // what was made by then
		case <-ctx.Done():
			return unfinished(1 + len(ends))
		}
	}
	left := len(ends)
	var failed []error
	for end := range ends {
		select {
		case <-end.done:
			left--
		case <-ctx.Done():
			return unfinished(left + len(failed))
		}
		if end.err != nil {
			failed = append(failed, end.err)
		}
	}
	if len(failed) > 0 {
		return cove.Errorf(cove.Unavailable, "%d of the prepared sandboxes cannot be destroyed: %w", len(failed), failed[0]).
			WithHint("the server tries again by itself, and its log names them")
	}
	return nil
}

func unfinished(n int) error {
	return cove.Errorf(cove.Unavailable, "%d of the prepared sandboxes are still being destroyed", n).
		WithHint("drain the pool again to wait for them")
}

// forgetAll forgets every kind. It returns the preparation that it stops, of none if nil, and the destructions that it
// and others have begun.
func (p *Pool) forgetAll() (*preparation, map[*destruction]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.kinds {
		p.forget(key)
	}
	ends := p.clean.underWay()
	if ends == nil {
		ends = map[*destruction]bool{}
	}
	return p.making, ends
}
