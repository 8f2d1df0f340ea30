//go:build linux

package native

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cove-sandbox/cove"
)

// nursery keeps blanks ready, so that a request does not wait for a process to
// be born: half of a cold start.
type nursery struct {
	log    *slog.Logger
	launch func(context.Context) (*blank, error)
	ready  chan *blank
	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// newNursery keeps up to n blanks.
func newNursery(n int, log *slog.Logger, launch func(context.Context) (*blank, error)) *nursery {
	ctx, cancel := context.WithCancel(context.Background())
	u := &nursery{log: log, launch: launch, ready: make(chan *blank, n), wake: make(chan struct{}, 1), cancel: cancel}
	u.done.Go(func() { u.grow(ctx) })
	return u
}

// grow refills until stopped.
func (u *nursery) grow(ctx context.Context) {
	for {
		for len(u.ready) < cap(u.ready) && ctx.Err() == nil {
			b, err := u.launch(ctx)
			if err != nil {
				if ctx.Err() == nil {
					u.log.Debug("cannot prepare a guest", "error", err)
				}
				break // whoever needs one tries again and has the error
			}
			u.ready <- b // never blocks: nobody else sends
		}
		select {
		case <-u.wake:
		case <-ctx.Done():
			return
		}
	}
}

// take returns a ready blank, or nil.
func (u *nursery) take() *blank {
	for {
		select {
		case b := <-u.ready:
			if b.alive() {
				return b
			}
			b.remove()
		default:
			return nil
		}
	}
}

// refill makes up for what has been taken. It is called when a sandbox is
// ready, so that the next one's birth does not slow this one's.
func (u *nursery) refill() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// close removes what is left.
func (u *nursery) close() {
	u.cancel()
	u.done.Wait()
	for {
		select {
		case b := <-u.ready:
			b.remove()
		default:
			return
		}
	}
}

// takeBlank returns a blank for a class of users: a ready one, if the nursery
// has one of that class.
func (e *Engine) takeBlank(ctx context.Context, u cove.User) (*blank, error) {
	// As root a blank's ids do for everybody; else the map depends on the user.
	if e.nursery != nil && (e.root || u == cove.UserCode) {
		if b := e.nursery.take(); b != nil {
			return b, nil
		}
	}
	return e.newBlank(ctx, u, e.groupName(), &e.slots)
}

func (e *Engine) refill() {
	if e.nursery != nil {
		e.nursery.refill()
	}
}

// groupName is the name of a new group: the run directory, the owner's instance
// and a number, by which Sweep knows it.
func (e *Engine) groupName() string {
	return fmt.Sprintf("%s.%s.%d", e.realm, e.o.Instance, e.serial.Add(1))
}
