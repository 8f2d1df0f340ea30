// Package stock makes things before anybody needs them, each for one taker: who
// asks for one does not wait for what is the same for everybody.
package stock

import (
	"context"
	"sync"
)

// Stock keeps a few things ready.
type Stock[T any] struct {
	produce func(context.Context) (T, error)
	discard func(T)
	ready   chan T
	wake    chan struct{}
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// New keeps up to n things, from the first Refill on. They are made one after
// the other, until Close ends the context; after an error none is made until the
// next Refill. What nobody has taken is discarded at the end.
func New[T any](n int, produce func(context.Context) (T, error), discard func(T)) *Stock[T] {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stock[T]{produce: produce, discard: discard, ready: make(chan T, n), wake: make(chan struct{}, 1), cancel: cancel}
	s.done.Go(func() { s.fill(ctx) })
	return s
}

// fill refills, whenever it is asked to, until stopped.
func (s *Stock[T]) fill(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		for len(s.ready) < cap(s.ready) && ctx.Err() == nil {
			made, err := s.produce(ctx)
			if err != nil {
				break // whoever needs one makes it, and has the error
			}
			s.ready <- made // never blocks: nobody else sends
		}
	}
}

// Take gives out what nobody else has been given, if anything is ready.
func (s *Stock[T]) Take() (thing T, ok bool) {
	select {
	case thing = <-s.ready:
		return thing, true
	default:
		return thing, false
	}
}

// Refill makes up for what has been taken, without waiting for it.
func (s *Stock[T]) Refill() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close stops making and discards what is left. It may be called again.
func (s *Stock[T]) Close() {
	s.cancel()
	s.done.Wait()
	for {
		thing, ok := s.Take()
		if !ok {
			return
		}
		s.discard(thing)
	}
}
