//go:build linux

package cgroup

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"
)

// TestFreeze: a frozen group stops with all its children, zombies among them; a thawed one continues; a frozen one can
// be killed.
func TestFreeze(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := find(t)
	if !h.Has(Freezer) {
		t.Skip("this machine has no freezer: " + h.Missing(Freezer))
	}
	g := create(t, h, Limits{PIDs: 50})
	// A zombie whose parent never waits, shells that fork, and one that counts.
	cmd, out := start(t, h, g, `
		sh -c 'true & exec sleep 1000' &
		(while :; do /bin/true; done) & (while :; do (:); done) &
		while :; do echo; done`)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := out.ReadByte(); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out) // the script blocks without a reader
	for range 3 {
		if err := g.Freeze(ctx); err != nil {
			t.Fatal(err)
		}
		if err := g.Freeze(ctx); err != nil {
			t.Fatalf("again: %v", err)
		}
		// CPU time may be accounted a moment late; running loops would use more in every interval.
		before, still := stats(t, g).CPUTime, false
		for range 10 {
			time.Sleep(100 * time.Millisecond) // sleep: a frozen group does nothing, of which no event can tell
			after := stats(t, g).CPUTime
			if still = after == before; still {
				break
			}
			before = after
		}
		if !still {
			t.Errorf("frozen, it goes on: it has used %s", before)
		}
		if err := g.Thaw(); err != nil {
			t.Fatal(err)
		}
		await.That(t, "thawed, it goes on", func() bool { return stats(t, g).CPUTime != before })
	}
	if err := g.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := g.Remove(5 * time.Second); err != nil {
		t.Errorf("killed while it was frozen: %v", err)
	}
}

// TestFreezeNotItself: Freeze waits for a thread of this process in the group, and does not freeze this process.
func TestFreezeNotItself(t *testing.T) {
	h := find(t)
	if h.Version() == 2 || !h.Has(Freezer) {
		t.Skip("threads are in groups of version 1 alone, and there is no freezer or none of these")
	}
	g := create(t, h, Limits{})
	leave := enterAWhile(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.Freeze(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a thread of this process in it: %v", err)
	}
	leave()
	if err := g.Freeze(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestThawWhatWasNeverFrozen(t *testing.T) {
	h := find(t)
	if err := create(t, h, Limits{}).Thaw(); err != nil {
		t.Error(err)
	}
}

// enterAWhile puts a thread of this process into a group of version 1, until leave is called.
func enterAWhile(t *testing.T, g *Group) (leave func()) {
	t.Helper()
	door, err := g.Door()
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	entered, end, left := make(chan error), make(chan struct{}), make(chan struct{})
	var hold func()
	hold = func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // the main thread cannot end
			defer runtime.UnlockOSThread()
			done := make(chan struct{})
			go func() { defer close(done); hold() }()
			<-done
			return
		}
		entered <- door.Enter()
		<-end
	}
	go func() { defer close(left); hold() }()
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	return func() { close(end); <-left }
}
