package enginetest

import (
	"bufio"
	"context"
	"io"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

var pausingTests = []test{
	{name: "nothing runs while it is paused", kernel: true, run: pauseStops},
	{name: "twice is as once", run: pauseTwice},
	{name: "one that is paused can be destroyed", run: pausedIsDestroyed},
	{name: "one that is paused can be killed", run: pausedIsKilled},
	{name: "one that is paused lasts, and goes on with its next process", run: pausedLasts},
}

// pauser is a bound sandbox, as a Pauser too.
func (x *env) pauser(t *testing.T, sb engine.Sandbox) engine.Pauser {
	t.Helper()
	if !x.caps.Pause {
		t.Skip("the engine cannot pause: " + x.caps.Missing["pause"])
	}
	p, ok := sb.(engine.Pauser)
	if !ok {
		t.Fatal("it says that it can pause, and its sandboxes are no Pausers")
	}
	return p
}

func (x *env) pause(t *testing.T, p engine.Pauser) {
	t.Helper()
	if err := p.Pause(x.ctx); err != nil {
		t.Fatalf("Pause: %v", err)
	}
}

func (x *env) resume(t *testing.T, p engine.Pauser) {
	t.Helper()
	if err := p.Resume(x.ctx); err != nil {
		t.Fatalf("Resume: %v", err)
	}
}

// cpuTime is what a sandbox has used.
func (x *env) cpuTime(t *testing.T, sb engine.Sandbox) time.Duration {
	t.Helper()
	stats, err := sb.Stats(x.ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stats.CPUTime
}

func pauseStops(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.pauser(t, sb)
	process := x.start(t, sb, shell("i=0; while :; do i=$((i+1)); echo $i; done"))
	out := bufio.NewReader(process.Stdout())
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out)
	for range 3 {
		x.pause(t, p)
		var before time.Duration
		eventually(t, "what it has used is accounted for", func() bool {
			last := before
			before = x.cpuTime(t, sb)
			return before == last
		})
		time.Sleep(50 * time.Millisecond) // in which it would have counted on
		if after := x.cpuTime(t, sb); after != before {
			t.Errorf("paused, it has used %s", after-before)
		}
		asking, cancel := context.WithTimeout(x.ctx, 50*time.Millisecond)
		if err := sb.Guest().SignalAll(asking, 0); err == nil {
			t.Error("paused, its guest answers")
		}
		cancel()
		x.resume(t, p)
		eventually(t, "it goes on", func() bool { return x.cpuTime(t, sb) > before })
	}
	if err := process.Signal(x.ctx, 9); err != nil {
		t.Fatal(err)
	}
	if exit, err := process.Wait(x.ctx); err != nil || exit.Signal != 9 {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
}

func pauseTwice(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.pauser(t, sb)
	x.resume(t, p)
	x.pause(t, p)
	x.pause(t, p)
	x.resume(t, p)
	x.resume(t, p)
	x.want(t, sb, shell("echo here"), "here\n")
	x.destroy(t, sb)
	wantCode(t, "pausing one that has been destroyed", p.Pause(x.ctx), cove.NotFound)
	wantCode(t, "resuming one that has been destroyed", p.Resume(x.ctx), cove.NotFound)
}

func pausedIsDestroyed(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.pauser(t, sb)
	x.start(t, sb, shell("sleep 1000"))
	x.pause(t, p)
	x.destroy(t, sb)
	within(t, "its end", time.Minute, sb.Done())
}

func pausedIsKilled(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.pauser(t, sb)
	x.start(t, sb, shell("sleep 1000"))
	x.pause(t, p)
	if err := sb.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, "its end", time.Minute, sb.Done())
}

func pausedLasts(t *testing.T, x *env) {
	sb := x.lasting(t, engine.Binding{Hostname: "sandbox"})
	p := x.pauser(t, sb)
	spec := shell("read a; echo $a; read b; exit 7")
	spec.Stdin = true
	process := x.start(t, sb, spec)
	x.pause(t, p)
	_, sb = x.next(t, x.eng, sb.ID())
	process, err := sb.Guest().Attach(x.ctx, process.ID(), 0, 0)
	if err != nil {
		t.Fatalf("Attach: %v", err)
	}
	if _, err := io.WriteString(process.Stdin(), "still here\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(process.Stdout()).ReadString('\n'); err != nil || got != "still here\n" {
		t.Errorf("it answers %q, %v", got, err)
	}
	process.Stdin().Close()
	if exit, err := process.Wait(x.ctx); err != nil || exit.Code != 7 {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
	x.pause(t, x.pauser(t, sb)) // its next process pauses it as well
	x.destroy(t, sb)
}
