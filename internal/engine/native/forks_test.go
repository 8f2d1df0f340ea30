//go:build linux

package native

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
)

// forkServer waits for the engine's fork server.
func forkServer(t *testing.T, e *Engine) *forkserver.Client {
	t.Helper()
	c, err := e.forks.server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestForkServersKilled: another fork server takes the place of one that has gone at once, however short its life was.
func TestForkServersKilled(t *testing.T) {
	e := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // with pauses that double it would take 31
	defer cancel()
	for range 6 {
		c, err := e.forks.server(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(c.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-c.Done()
	}
}

// TestForkServerKilled: sandboxes go on without the fork server that has started their guests, others are made
// meanwhile, and another fork server takes its place.
func TestForkServerKilled(t *testing.T) {
	e := open(t)
	root := engine.Rootfs{Kind: engine.RootfsHost}
	first := forkServer(t, e)
	e.prewarmed.close() // so that each guest is forked when it is asked for
	before := bound(t, e, root, engine.Binding{})
	defer before.Destroy(t.Context())
	if err := unix.Kill(first.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	says(t, e, root)
	if out, exit := output(t, before, "echo goes on"); out != "goes on\n" || exit.Code != 0 {
		t.Errorf("%q, %+v", out, exit)
	}
	if next := forkServer(t, e); next == first {
		t.Error("the fork server that was killed is the present one")
	}
	says(t, e, root)
}

func says(t *testing.T, e *Engine, root engine.Rootfs) {
	t.Helper()
	if out, exit := run(t, e, root, engine.Binding{}, "echo hello"); out != "hello\n" || exit.Code != 0 {
		t.Errorf("%q, %+v", out, exit)
	}
}

// TestGuestKilled: another guest takes the place of one that ends while it begins, whether it was prewarmed or not.
func TestGuestKilled(t *testing.T) {
	e := open(t)
	forkServer(t, e)
	e.prewarmed.close()
	for range 10 {
		ctx, stop := context.WithCancel(t.Context())
		var killing sync.WaitGroup
		killing.Go(func() {
			for ctx.Err() == nil {
				names, _ := e.hierarchy.List()
				for _, name := range names {
					if g := e.hierarchy.Group(name); !g.Empty() {
						g.Kill()
						return
					}
				}
			}
		})
		sb, err := e.Prepare(ctx, engine.Template{
			ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
			Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone,
		})
		if err != nil {
			t.Error(err)
		} else if err := sb.Destroy(ctx); err != nil {
			t.Error(err)
		}
		stop()
		killing.Wait()
	}
}

// TestForkServerOutlivesCallers: callers that leave while their sandboxes begin end nothing but those. What each has of
// a control group is killed with it, and the fork server is never in one.
func TestForkServerOutlivesCallers(t *testing.T) {
	e := open(t)
	root := engine.Rootfs{Kind: engine.RootfsHost}
	before := forkServer(t, e)
	e.prewarmed.close() // so that each guest is forked when it is asked for
	var leaving sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer leaving.Wait()
	defer stop()
	for range 6 {
		leaving.Go(func() {
			for ctx.Err() == nil {
				leave(t, e, root)
			}
		})
	}
	for range 20 {
		says(t, e, root)
	}
	stop()
	leaving.Wait()
	if now := forkServer(t, e); now != before {
		t.Errorf("the fork server %d has gone, and %d is in its place", before.PID(), now.PID())
	}
}

// leave begins a sandbox, and leaves it after a random time of up to 30 ms.
func leave(t *testing.T, e *Engine, root engine.Rootfs) {
	ctx, cancel := context.WithCancel(context.Background())
	defer time.AfterFunc(rand.N(30*time.Millisecond), cancel).Stop()
	sb, err := e.Prepare(ctx, engine.Template{
		ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
		Rootfs: root, Network: cove.NetworkNone,
	})
	if err == nil {
		<-ctx.Done()
		err = sb.Destroy(context.Background())
	}
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}
