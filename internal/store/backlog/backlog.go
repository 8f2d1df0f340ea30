// Package backlog holds records that the store cannot take now, and writes them once it can.
package backlog

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/cove-sandbox/cove"
)

// Options of a Backlog of records V, which K names.
type Options[K cmp.Ordered, V any] struct {
	// Name is how the log calls a record, such as "the end of a run".
	Name string
	Log  *slog.Logger
	// Write writes a record to the store. NotFound and Conflict mean that the store never takes it.
	Write func(context.Context, V) error
	// Size returns how many bytes of memory a record takes, and Shorten a record that takes few. Both are pure.
	Size    func(V) int
	Shorten func(V) V
	// Most is how many records wait at most. A record that would make all of them larger than MostBytes is shortened.
	Most, MostBytes int
}

// A Backlog writes records to the store. One that cannot be written waits in memory for the next attempt.
type Backlog[K cmp.Ordered, V any] struct {
	o       Options[K, V]
	writing sync.Mutex // held while those that wait are written; taken before mu

	mu      sync.Mutex
	waiting map[K]V // guarded by mu
}

// New returns an empty Backlog.
func New[K cmp.Ordered, V any](o Options[K, V]) *Backlog[K, V] {
	return &Backlog[K, V]{o: o, waiting: map[K]V{}}
}

// Record writes a record, and reports whether it is in the store. If not, it waits, unless the store never takes it.
func (b *Backlog[K, V]) Record(ctx context.Context, key K, value V) bool {
	err := b.o.Write(ctx, value)
	if err == nil {
		return true
	}
	b.o.Log.Error(b.o.Name+" cannot be recorded", "id", key, "error", err)
	if !final(err) {
		b.wait(key, value)
	}
	return false
}

// final reports whether the store never takes a record: what it belongs to is not there, or has ended otherwise.
func final(err error) bool {
	code := cove.ErrorCode(err)
	return code == cove.NotFound || code == cove.Conflict
}

func (b *Backlog[K, V]) wait(key K, value V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= b.o.Most {
		b.o.Log.Error("too many records wait for the history, which will not have this one: "+b.o.Name, "id", key,
			"waiting", len(b.waiting))
		return
	}
	size := b.o.Size(value)
	for _, other := range b.waiting {
		size += b.o.Size(other)
	}
	if size > b.o.MostBytes {
		value = b.o.Shorten(value)
	}
	b.waiting[key] = value
}

// Retry writes the records that wait. It stops with the error of a store that cannot be written to; a record that the
// store refuses for another reason goes on waiting.
func (b *Backlog[K, V]) Retry(ctx context.Context) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.retry(ctx)
}

// RetryBeside has beside, which runs a function beside its caller, retry, unless that is under way or nothing waits.
func (b *Backlog[K, V]) RetryBeside(ctx context.Context, beside func(func())) {
	b.mu.Lock()
	none := len(b.waiting) == 0
	b.mu.Unlock()
	if none || !b.writing.TryLock() {
		return
	}
	beside(func() {
		defer b.writing.Unlock()
		b.retry(ctx)
	})
}

// retry is Retry, with b.writing held.
func (b *Backlog[K, V]) retry(ctx context.Context) error {
	b.mu.Lock()
	all := maps.Clone(b.waiting)
	b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch err := b.o.Write(ctx, all[key]); {
		case err == nil, final(err):
		case cove.ErrorCode(err) == cove.StorageFull, cove.ErrorCode(err) == cove.Unavailable:
			return err
		default:
			b.o.Log.Error(b.o.Name+" cannot be recorded", "id", key, "error", err)
			continue
		}
		b.mu.Lock()
		delete(b.waiting, key)
		b.mu.Unlock()
	}
	return nil
}

// Waiting returns a record that waits for the store.
func (b *Backlog[K, V]) Waiting(key K) (value V, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	value, waits = b.waiting[key]
	return value, waits
}
