// Package prewarm keeps a small buffer of values ready, so that callers do not wait for work common to all.
package prewarm

import (
	"context"
	"sync"
)

// Buffer holds values that were made ahead, each for one caller.
type Buffer[T any] struct {
	produce func(context.Context) (T, error)
	discard func(T)
	ready   chan T
	wake    chan struct{}
	ended   <-chan struct{} // closed by Close
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu     sync.Mutex
	making chan struct{} // closed when the values that Refill has asked for are made; nil: none was asked for
}

// New returns a Buffer of up to n values, empty until the first Refill. One goroutine makes them in sequence, until
// Close ends its context; after an error it makes none until the next Refill. Close discards the remaining values.
func New[T any](n int, produce func(context.Context) (T, error), discard func(T)) *Buffer[T] {
	ctx, cancel := context.WithCancel(context.Background())
	b := &Buffer[T]{produce: produce, discard: discard, ready: make(chan T, n), wake: make(chan struct{}, 1),
		ended: ctx.Done(), cancel: cancel}
	b.done.Go(func() { b.fill(ctx) })
	return b
}

// fill makes values after each Refill, until the context ends.
func (b *Buffer[T]) fill(ctx context.Context) {
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			return
		}
		for range cap(b.ready) - len(b.ready) { // what is taken meanwhile waits for its Refill
			if ctx.Err() != nil {
				break
			}
			made, err := b.produce(ctx)
			if err != nil {
				break // a caller that needs a value makes it, and gets the error
			}
			b.ready <- made // never blocks: this is the only sender
		}
		b.mu.Lock()
		if len(b.wake) == 0 { // else Refill has asked again
			close(b.making)
			b.making = nil
		}
		b.mu.Unlock()
	}
}

// Take removes and returns a value, if one is ready.
func (b *Buffer[T]) Take() (value T, ok bool) {
	select {
	case value = <-b.ready:
		return value, true
	default:
		return value, false
	}
}

// Await is Take, and waits for a value that is being made.
func (b *Buffer[T]) Await(ctx context.Context) (value T, ok bool) {
	b.mu.Lock()
	making := b.making
	b.mu.Unlock()
	if making != nil {
		select {
		case value = <-b.ready:
			return value, true
		case <-making:
		case <-b.ended:
		case <-ctx.Done():
		}
	}
	return b.Take()
}

// Refill starts to replace the values that were taken, and does not wait.
func (b *Buffer[T]) Refill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.making == nil {
		b.making = make(chan struct{})
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Close stops the goroutine and discards the remaining values. It may be called again.
func (b *Buffer[T]) Close() {
	b.cancel()
	b.done.Wait()
	for {
		value, ok := b.Take()
		if !ok {
			return
		}
		b.discard(value)
	}
}
