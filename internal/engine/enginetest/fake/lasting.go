package fake

import (
	"context"
	"maps"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

func (h *Host) has(id cove.SandboxID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lasting[id] != nil
}

func (h *Host) add(sb *Sandbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lasting[sb.tmpl.ID] = sb
}

func (h *Host) drop(sb *Sandbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lasting[sb.tmpl.ID] == sb {
		delete(h.lasting, sb.tmpl.ID)
	}
}

// leave lets a long-lived sandbox go on without its engine.
func (sb *Sandbox) leave() bool {
	select {
	case <-sb.done:
		return false
	default:
	}
	if !sb.host.has(sb.tmpl.ID) {
		return false
	}
	sb.mu.Lock()
	e := sb.engine
	sb.engine = nil
	sb.mu.Unlock()
	e.leave(sb)
	sb.disconnect()
	return true
}

// disconnect ends the connection of the engine that had it.
func (sb *Sandbox) disconnect() {
	sb.mu.Lock()
	client, conn := sb.client, sb.hostConn
	sb.mu.Unlock()
	client.Close()
	conn.Close()
}

// Left implements engine.Adopter.
func (e *Engine) Left(ctx context.Context) ([]cove.SandboxID, error) {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	var left []cove.SandboxID
	for _, id := range slices.Sorted(maps.Keys(e.host.lasting)) {
		if e.host.lasting[id].goesOn() {
			left = append(left, id)
		}
	}
	return left, ctx.Err()
}

// Runs implements engine.Adopter.
func (e *Engine) Runs(ctx context.Context, id cove.SandboxID) (bool, error) {
	e.host.mu.Lock()
	defer e.host.mu.Unlock()
	return e.host.lasting[id] != nil, ctx.Err()
}

// Adopt implements engine.Adopter.
func (e *Engine) Adopt(ctx context.Context, id cove.SandboxID) (engine.Sandbox, error) {
	if err := e.fault().Adopt; err != nil {
		return nil, err
	}
	e.host.mu.Lock()
	sb := e.host.lasting[id]
	if sb == nil {
		e.host.mu.Unlock()
		return nil, cove.Errorf(cove.NotFound, "no long-lived sandbox %s runs", id)
	}
	if !sb.goesOn() {
		e.host.mu.Unlock()
		return nil, cove.Errorf(cove.Conflict, "another engine has sandbox %s", id)
	}
	sb.serving.Wait() // of the connection before
	sb.serve(e)
	e.host.mu.Unlock()
	sb.Resume(ctx)
	if err := sb.connect(ctx); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sandboxes[id] = sb
	return sb, nil
}

// Pause implements engine.Pauser: the guest does not answer any more. Programs in memory run on.
func (sb *Sandbox) Pause(ctx context.Context) error {
	if err := sb.fault().Pause; err != nil {
		return err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.destroyed {
		return cove.Errorf(cove.NotFound, "sandbox %s has been destroyed", sb.tmpl.ID)
	}
	if sb.resumed == nil {
		sb.resumed = make(chan struct{})
	}
	return ctx.Err()
}

// Resume implements engine.Pauser.
func (sb *Sandbox) Resume(ctx context.Context) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.destroyed {
		return cove.Errorf(cove.NotFound, "sandbox %s has been destroyed", sb.tmpl.ID)
	}
	if sb.resumed != nil {
		close(sb.resumed)
		sb.resumed = nil
	}
	return nil
}

// Paused reports whether it is.
func (sb *Sandbox) Paused() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.resumed != nil
}

// whilePaused waits until the sandbox is not paused, or has ended.
func (sb *Sandbox) whilePaused() {
	sb.mu.Lock()
	resumed := sb.resumed
	sb.mu.Unlock()
	if resumed == nil {
		return
	}
	select {
	case <-resumed:
	case <-sb.done:
	}
}
