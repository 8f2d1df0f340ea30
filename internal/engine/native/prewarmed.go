//go:build linux

package native

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/prewarm"
)

// newPrewarmed keeps up to n guests that are not online; as many that are, after the first sandbox with a network;
// and one for detached sandboxes, after the first of those.
func (e *Engine) newPrewarmed(n int) prewarmed {
	of := func(n int, u cove.User, online, detached bool) *prewarm.Buffer[*blank] {
		launch := func(ctx context.Context) (*blank, error) {
			b, err := e.start(ctx, u, online, detached)
			if err != nil && ctx.Err() == nil {
				e.o.Log.Debug("cannot prepare a guest", "error", err)
			}
			return b, err
		}
		return prewarm.New(n, launch, func(b *blank) { b.remove() })
	}
	return prewarmed{offline: of(n, cove.CodeUser, false, false), online: of(n, cove.CodeUser, true, false),
		detached: of(min(n, 1), cove.AgentUser, true, true)}
}

func (p prewarmed) close() {
	p.offline.Close()
	p.online.Close()
	p.detached.Close()
}

// suitable are the buffers of guests for a sandbox, the best first. As root a guest's ids do for every user; else the
// map depends on the user.
func (e *Engine) suitable(t engine.Template, online, detached bool) []*prewarm.Buffer[*blank] {
	switch u := mapped(t); {
	case detached && online && (e.root || sameIDs(u, cove.AgentUser)):
		return []*prewarm.Buffer[*blank]{e.prewarmed.detached}
	case detached, !e.root && !sameIDs(u, cove.CodeUser):
		return nil
	case online:
		return []*prewarm.Buffer[*blank]{e.prewarmed.online, e.prewarmed.offline}
	}
	return []*prewarm.Buffer[*blank]{e.prewarmed.offline}
}

// takeBlank returns a guest for a template, if possible a prewarmed one that still waits, and whether it is one.
func (e *Engine) takeBlank(ctx context.Context, t engine.Template) (b *blank, prewarmed bool, err error) {
	online, detached := t.Network != cove.NetworkNone, t.Lifetime == cove.LifetimeDetached
	for _, buffer := range e.suitable(t, online, detached) {
		take := buffer.Take
		if e.o.Single { // the one that is being made was begun sooner than another one would be
			take = func() (*blank, bool) { return buffer.Await(ctx) }
		}
		for b, ok := take(); ok; b, ok = take() {
			if b.alive() {
				return b, true, nil
			}
			b.remove()
		}
	}
	b, err = e.start(ctx, mapped(t), online, detached)
	return b, false, err
}

// start makes a blank, and another one where that or the fork server has ended meanwhile.
func (e *Engine) start(ctx context.Context, u cove.User, online, detached bool) (*blank, error) {
	begin := func() (*blank, error) {
		if detached {
			return e.newDetached(ctx, u, online)
		}
		return e.newBlank(ctx, u, online, e.groupName(), e.ranges)
	}
	b, err := begin()
	if err != nil && died(err) && ctx.Err() == nil {
		return begin()
	}
	return b, err
}

// refill replaces the guest that a sandbox has taken. It is called when the sandbox is ready, so that the next guest's
// start does not slow this sandbox's.
func (e *Engine) refill(t engine.Template) {
	if e.o.Single {
		return
	}
	online := t.Network != cove.NetworkNone
	if t.Lifetime == cove.LifetimeDetached {
		if online {
			e.prewarmed.detached.Refill()
		}
		return
	}
	e.prewarmed.offline.Refill()
	if online {
		e.prewarmed.online.Refill()
	}
}

func (e *Engine) groupName() string { return e.names.Group(e.o.Instance, e.serial.Add(1)) }
