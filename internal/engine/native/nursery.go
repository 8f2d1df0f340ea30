//go:build linux

package native

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/prewarm"
)

// nursery holds prewarmed guests, so that a request does not wait for a process
// to start: half of a cold start. Those that are online become no sandbox
// without a network; those that are not do for every sandbox. Lasting sandboxes
// begin as heirs.
type nursery struct {
	offline, online *prewarm.Buffer[*blank]
	lasting         *prewarm.Buffer[*heir] // online
}

// newNursery keeps up to n blanks that are not online and, from the first
// sandbox on that has a network, as many that are; and from the first one on that
// lasts, one heir.
func (e *Engine) newNursery(n int) nursery {
	of := func(online bool) *prewarm.Buffer[*blank] {
		launch := func(ctx context.Context) (*blank, error) {
			b, err := e.newBlank(ctx, cove.CodeUser, online, e.groupName(), e.ranges)
			if err != nil && ctx.Err() == nil {
				e.o.Log.Debug("cannot prepare a guest", "error", err)
			}
			return b, err
		}
		return prewarm.New(n, launch, func(b *blank) { b.remove() })
	}
	bear := func(ctx context.Context) (*heir, error) {
		h, err := e.newHeir(ctx, cove.AgentUser, true)
		if err != nil && ctx.Err() == nil {
			e.o.Log.Debug("cannot prepare a guest", "error", err)
		}
		return h, err
	}
	return nursery{offline: of(false), online: of(true),
		lasting: prewarm.New(min(n, 1), bear, func(h *heir) { h.remove() })}
}

func (u nursery) close() {
	u.offline.Close()
	u.online.Close()
	u.lasting.Close()
}

// take returns a ready blank that does for a sandbox with a network or one
// without, or nil.
func (u nursery) take(network bool) *blank {
	if network {
		if b := takeAlive(u.online); b != nil {
			return b
		}
	}
	return takeAlive(u.offline)
}

// takeAlive returns one whose guest still waits, or nil.
func takeAlive[B interface {
	alive() bool
	remove() error
}](s *prewarm.Buffer[B]) B {
	for {
		b, ok := s.Take()
		if !ok || b.alive() {
			return b
		}
		b.remove()
	}
}

// takeBlank returns a blank that does for a template: a ready one, if there is
// one.
func (e *Engine) takeBlank(ctx context.Context, t engine.Template) (*blank, error) {
	network := t.Network != cove.NetworkNone
	// As root a blank's ids do for every user; else the map depends on the user.
	if e.root || t.User.UID == cove.CodeUser.UID {
		if b := e.nursery.take(network); b != nil {
			return b, nil
		}
	}
	return e.newBlank(ctx, t.User, network, e.groupName(), e.ranges)
}

// takeHeir returns an heir that does for a template: the ready one, if there is
// one.
func (e *Engine) takeHeir(ctx context.Context, t engine.Template) (*heir, error) {
	network := t.Network != cove.NetworkNone
	if network && (e.root || t.User.UID == cove.AgentUser.UID) {
		if h := takeAlive(e.nursery.lasting); h != nil {
			return h, nil
		}
	}
	return e.newHeir(ctx, t.User, network)
}

// refill makes up for what a sandbox has taken. It is called when that is
// ready, so that the next one's birth does not slow this one's.
func (e *Engine) refill(t engine.Template) {
	if e.o.Single {
		return
	}
	online := t.Network != cove.NetworkNone
	if t.Lifetime == cove.LifetimeDetached {
		if online {
			e.nursery.lasting.Refill()
		}
		return
	}
	e.nursery.offline.Refill()
	if online {
		e.nursery.online.Refill()
	}
}

// groupName names a new group.
func (e *Engine) groupName() string { return e.names.Group(e.o.Instance, e.serial.Add(1)) }
