//go:build linux

package native

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/prewarm"
)

// newPool returns a pool of up to n guests that are not online; of as many that are online, after the first sandbox
// with a network; and of one guest for detached sandboxes, after the first of those.
func (e *Engine) newPool(n int) pool {
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
	detach := func(ctx context.Context) (*detached, error) {
		h, err := e.newDetached(ctx, cove.AgentUser, true)
		if err != nil && ctx.Err() == nil {
			e.o.Log.Debug("cannot prepare a guest", "error", err)
		}
		return h, err
	}
	return pool{offline: of(false), online: of(true),
		detached: prewarm.New(min(n, 1), detach, func(d *detached) { d.remove() })}
}

func (p pool) close() {
	p.offline.Close()
	p.online.Close()
	p.detached.Close()
}

// take returns a prewarmed guest for a sandbox with or without a network, or nil.
func (p pool) take(network bool) *blank {
	if network {
		if b := takeAlive(p.online); b != nil {
			return b
		}
	}
	return takeAlive(p.offline)
}

// takeAlive returns a guest that still waits, or nil.
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

// takeBlank returns a guest for a template, if possible a prewarmed one.
func (e *Engine) takeBlank(ctx context.Context, t engine.Template) (*blank, error) {
	network := t.Network != cove.NetworkNone
	// As root a blank's ids do for every user; else the map depends on the user.
	if e.root || t.User.UID == cove.CodeUser.UID {
		if b := e.pool.take(network); b != nil {
			return b, nil
		}
	}
	return e.newBlank(ctx, t.User, network, e.groupName(), e.ranges)
}

// takeDetached returns a guest for a detached sandbox, if possible the prewarmed one.
func (e *Engine) takeDetached(ctx context.Context, t engine.Template) (*detached, error) {
	network := t.Network != cove.NetworkNone
	if network && (e.root || t.User.UID == cove.AgentUser.UID) {
		if h := takeAlive(e.pool.detached); h != nil {
			return h, nil
		}
	}
	return e.newDetached(ctx, t.User, network)
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
			e.pool.detached.Refill()
		}
		return
	}
	e.pool.offline.Refill()
	if online {
		e.pool.online.Refill()
	}
}

// groupName names a new group.
func (e *Engine) groupName() string { return e.names.Group(e.o.Instance, e.serial.Add(1)) }
