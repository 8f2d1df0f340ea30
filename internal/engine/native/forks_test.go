//go:build linux

package native

import (
	"testing"

	"golang.org/x/sys/unix"

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
