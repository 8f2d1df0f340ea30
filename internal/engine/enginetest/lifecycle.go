package enginetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

var lifecycleTests = []test{
	{name: "a process runs from prepare to destroy", run: wholeLife},
	{name: "nothing runs before Bind", run: nothingBeforeBind},
	{name: "a second Bind is a conflict", run: secondBind},
	{name: "an id in use is a conflict", run: idInUse},
	{name: "an id is free again after Destroy", run: idAgain},
	{name: "Destroy before Bind", run: func(t *testing.T, x *env) { x.destroyed(t, x.prepare(t)) }},
	{name: "Destroy after Bind", run: func(t *testing.T, x *env) { x.destroyed(t, x.bound(t)) }},
	{name: "Destroy while a process runs", run: destroyWhileRunning},
	{name: "Destroy by many at once", run: destroyByMany},
	{name: "Destroy during Bind", run: destroyDuringBind},
	{name: "Destroy with a cancelled context comes back", run: destroyCancelled},
	{name: "Kill ends everything and removes nothing", run: kill},
	{name: "Prepare cancelled at any moment leaves nothing", run: prepareCancelled},
	{name: "Close destroys what is there", run: closeDestroys},
	{name: "Sweep touches nothing that lives", run: sweepSparesTheLiving},
	{name: "stats are there from Bind to Destroy", run: stats},
}

func wholeLife(t *testing.T, x *env) {
	sb := x.prepare(t)
	h, err := sb.Guest().Health(x.ctx)
	if err != nil || h.Bound || h.Processes != 0 {
		t.Fatalf("health before Bind: %+v, %v", h, err)
	}
	x.bind(t, sb)
	if h, err = sb.Guest().Health(x.ctx); err != nil || !h.Bound {
		t.Fatalf("health after Bind: %+v, %v", h, err)
	}
	x.want(t, sb, command("echo", "hello"), "hello\n")
	select {
	case <-sb.Done():
		t.Error("the sandbox has ended although nobody ended it")
	default:
	}
	x.destroyed(t, sb)
}

// destroyed destroys sb and checks that it is as gone as can be seen from here.
func (x *env) destroyed(t *testing.T, sb engine.Sandbox) {
	t.Helper()
	x.destroy(t, sb)
	within(t, "Done after Destroy", 10*time.Second, sb.Done())
	x.destroy(t, sb) // idempotent
	if err := sb.Bind(x.ctx, engine.Binding{Hostname: "late"}); err == nil {
		t.Error("Bind works after Destroy")
	}
	if _, err := sb.Guest().Health(x.ctx); err == nil {
		t.Error("the guest answers after Destroy")
	}
	if err := sb.Kill(); err != nil {
		t.Errorf("Kill after Destroy: %v", err)
	}
}

func nothingBeforeBind(t *testing.T, x *env) {
	sb := x.prepare(t)
	g := sb.Guest()
	_, err := g.Start(x.ctx, command("true"))
	wantFailure(t, "Start before Bind", err, guest.FailState)
	wantFailure(t, "WriteFile before Bind", g.WriteFile(x.ctx, cove.WorkDir+"/f", 0o644, []byte("x")), guest.FailState)
	_, err = g.ReadFile(x.ctx, "/etc/passwd", 1<<20)
	wantFailure(t, "ReadFile before Bind", err, guest.FailState)
	x.bind(t, sb)
	x.want(t, sb, command("echo", "now"), "now\n")
}

func secondBind(t *testing.T, x *env) {
	sb := x.bound(t)
	wantCode(t, "second Bind", sb.Bind(x.ctx, engine.Binding{Hostname: "again"}), cove.Conflict)
	x.want(t, sb, command("echo", "still"), "still\n")
}

func idInUse(t *testing.T, x *env) {
	sb := x.bound(t)
	tmpl := x.template()
	tmpl.ID = sb.ID()
	_, err := x.eng.Prepare(x.ctx, tmpl)
	wantCode(t, "Prepare with an id in use", err, cove.Conflict)
	x.want(t, sb, command("echo", "unharmed"), "unharmed\n")
}

func idAgain(t *testing.T, x *env) {
	first := x.bound(t)
	x.destroy(t, first)
	again := x.bound(t, func(tmpl *engine.Template) { tmpl.ID = first.ID() })
	x.destroy(t, first) // must not touch its successor
	x.want(t, again, command("echo", "reborn"), "reborn\n")
}

func destroyWhileRunning(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.start(t, sb, command("sleep", "600"))
	x.destroyed(t, sb)
	if _, err := p.Wait(x.ctx); err == nil {
		t.Error("Wait reports a clean exit of a process whose sandbox was destroyed")
	}
}

func destroyByMany(t *testing.T, x *env) {
	sb := x.bound(t)
	x.start(t, sb, command("sleep", "600"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { x.destroy(t, sb) })
	}
	all.Wait()
	x.destroyed(t, sb)
}

func destroyDuringBind(t *testing.T, x *env) {
	for _, delay := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		sb := x.prepare(t)
		bound := make(chan struct{})
		go func() {
			defer close(bound)
			sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox"}) // may or may not win
		}()
		time.Sleep(delay)
		x.destroy(t, sb)
		within(t, "Bind returns when its sandbox is destroyed", 30*time.Second, bound)
		x.destroyed(t, sb)
	}
}

func destroyCancelled(t *testing.T, x *env) {
	sb := x.bound(t)
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	came := make(chan struct{})
	go func() {
		defer close(came)
		sb.Destroy(ctx) // may fail, must not hang
	}()
	within(t, "Destroy with a cancelled context", 30*time.Second, came)
	x.destroyed(t, sb)
}

func kill(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.start(t, sb, command("sleep", "600"))
	if err := sb.Kill(); err != nil {
		t.Fatalf("Kill: %v", err)
	}
	within(t, "Done after Kill", 10*time.Second, sb.Done())
	within(t, "the process's end after Kill", 10*time.Second, p.Exited())
	if _, err := sb.Guest().Start(x.ctx, command("true")); !errors.Is(err, guest.ErrClosed) {
		t.Errorf("Start after Kill: %v, want %v", err, guest.ErrClosed)
	}
	if _, err := sb.Stats(x.ctx); err != nil {
		t.Errorf("Stats after Kill: %v", err)
	}
	if err := sb.Kill(); err != nil {
		t.Errorf("second Kill: %v", err)
	}
	x.destroyed(t, sb)
}

func prepareCancelled(t *testing.T, x *env) {
	began := time.Now()
	x.destroy(t, x.prepare(t))
	whole := time.Since(began)
	const steps = 10
	for i := range steps {
		ctx, cancel := context.WithTimeout(x.ctx, whole*time.Duration(i)/steps)
		sb, err := x.eng.Prepare(ctx, x.template())
		if err == nil {
			x.destroyed(t, sb)
		} else if ctx.Err() == nil {
			t.Errorf("Prepare failed for another reason than its context: %v", err)
		}
		cancel()
	}
	x.want(t, x.bound(t), command("echo", "fine"), "fine\n")
}

func closeDestroys(t *testing.T, x *env) {
	if x.suite.Lifetime == cove.LifetimeDetached {
		t.Skip("a long-lived sandbox goes on: see the group lasting")
	}
	prepared, bound := x.prepare(t), x.bound(t)
	if err := x.eng.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	within(t, "Done of a prepared sandbox after Close", 10*time.Second, prepared.Done())
	within(t, "Done of a bound sandbox after Close", 10*time.Second, bound.Done())
	if sb, err := x.eng.Prepare(x.ctx, x.template()); err == nil {
		x.destroy(t, sb)
		t.Error("Prepare works after Close")
	}
}

func sweepSparesTheLiving(t *testing.T, x *env) {
	bound, prepared := x.bound(t), x.prepare(t)
	p := x.start(t, bound, command("cat"))
	stop, swept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swept)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := x.eng.Sweep(x.ctx); err != nil {
				t.Errorf("Sweep: %v", err)
				return
			}
		}
	}()
	for range 3 {
		x.want(t, x.bound(t), command("echo", "made beside a sweep"), "made beside a sweep\n")
	}
	close(stop)
	<-swept
	x.finish(t, p)
	x.bind(t, prepared)
	x.want(t, prepared, command("echo", "spared"), "spared\n")
}

func stats(t *testing.T, x *env) {
	sb := x.bound(t)
	if _, err := sb.Stats(x.ctx); err != nil {
		t.Fatalf("Stats before any process: %v", err)
	}
	x.output(t, sb, command("head", "-c", "4194304", "/dev/zero"))
	s, err := sb.Stats(x.ctx)
	if err != nil {
		t.Fatalf("Stats after the process: %v", err)
	}
	if s.CPUTime <= 0 || s.MemoryPeak <= 0 || s.PIDsPeak <= 0 {
		t.Errorf("nothing was counted: %+v", s)
	}
	if s.OOMKills != 0 || s.PIDsDenied != 0 {
		t.Errorf("limits that nobody reached are reported: %+v", s)
	}
}
