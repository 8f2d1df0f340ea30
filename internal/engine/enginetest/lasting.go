package enginetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

var lastingTests = []test{
	{name: "goes on without its process of Cove", run: lastsOn},
	{name: "one process has it at a time", run: hadByOne},
	{name: "its sockets come with it", kernel: true, run: lastingListener},
	{name: "the next server connects into it", kernel: true, run: lastingReach},
	{name: "a socket among its files comes with it", kernel: true, run: lastingUnixListener},
	{name: "one that was never bound does not last", run: unboundDoesNotLast},
	{name: "one that has ended does not last", run: endedDoesNotLast},
}

// lasting is a long-lived sandbox, bound.
func (x *env) lasting(t *testing.T, b engine.Binding) engine.Sandbox {
	t.Helper()
	if !x.caps.Lasting || x.suite.Reopen == nil {
		t.Skip("the engine's sandboxes do not outlive it")
	}
	sb := x.prepare(t, func(t *engine.Template) { t.Lifetime = cove.LifetimeDetached })
	if err := sb.Bind(x.ctx, b); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	return sb
}

// reopen is the engine as the next process of Cove has it.
func (x *env) reopen(t *testing.T) (engine.Engine, engine.Adopter) {
	t.Helper()
	e := x.suite.Reopen(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("closing the engine: %v", err)
		}
	})
	return e, e.(engine.Adopter)
}

// next closes the engine and adopts a sandbox with another.
func (x *env) next(t *testing.T, e engine.Engine, id cove.SandboxID) (engine.Engine, engine.Sandbox) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatalf("closing the engine: %v", err)
	}
	e, adopter := x.reopen(t)
	left, err := adopter.Left(x.ctx)
	if err != nil || !slices.Equal(left, []cove.SandboxID{id}) {
		t.Errorf("left are %v, %v; want %s", left, err, id)
	}
	sb, err := adopter.Adopt(x.ctx, id)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	t.Cleanup(func() { x.destroy(t, sb) })
	return e, sb
}

func lastsOn(t *testing.T, x *env) {
	sb := x.lasting(t, engine.Binding{Hostname: "sandbox"})
	spec := shell("echo $$; read a; echo $a; read b; echo $b; read c; exit 7")
	spec.Stdin, spec.Label = true, []byte("a label")
	p := x.start(t, sb, spec)
	out := bufio.NewReader(p.Stdout())
	pid, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	seen, e := len(pid), x.eng
	// The first time the guest is a child of this process, the second time of PID 1.
	for _, line := range []string{"first\n", "second\n"} {
		e, sb = x.next(t, e, sb.ID())
		if ids := sb.Guest().Processes(); !slices.Equal(ids, []uint32{p.ID()}) {
			t.Fatalf("processes %v, want %d", ids, p.ID())
		}
		if all, err := sb.Guest().Listed(x.ctx); err != nil || len(all) != 1 || string(all[0].Label) != "a label" ||
			all[0].Stdout > uint64(seen) {
			t.Fatalf("listed are %+v, %v", all, err)
		}
		if p, err = sb.Guest().Attach(x.ctx, p.ID(), uint64(seen), 0); err != nil {
			t.Fatalf("Attach: %v", err)
		}
		if _, err := io.WriteString(p.Stdin(), line); err != nil {
			t.Fatal(err)
		}
		got, err := bufio.NewReader(p.Stdout()).ReadString('\n')
		if err != nil || got != line {
			t.Fatalf("it answers %q, %v; want %q", got, err, line)
		}
		seen += len(line)
		stats, err := sb.Stats(x.ctx)
		if err != nil || !x.suite.InMemory && stats.PIDs != 1 {
			t.Errorf("stats %+v, %v", stats, err)
		}
	}
	p.Stdin().Close()
	exit, err := p.Wait(x.ctx)
	if err != nil || exit.Code != 7 {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
	x.want(t, sb, shell("echo new"), "new\n")
	x.destroy(t, sb)
	within(t, "the end of an adopted sandbox", time.Minute, sb.Done())
	_, err = e.(engine.Adopter).Adopt(x.ctx, sb.ID())
	wantCode(t, "adopting one that was destroyed", err, cove.NotFound)
}

func hadByOne(t *testing.T, x *env) {
	sb := x.lasting(t, engine.Binding{})
	e, adopter := x.reopen(t)
	_, err := adopter.Adopt(x.ctx, sb.ID())
	wantCode(t, "adopting one that a process has", err, cove.Conflict)
	_, err = adopter.Adopt(x.ctx, cove.NewSandboxID())
	wantCode(t, "adopting one that never was", err, cove.NotFound)
	if left, err := adopter.Left(x.ctx); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v; want none", left, err)
	}
	if swept, err := e.Sweep(x.ctx); err != nil || swept.Sandboxes > 0 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	x.want(t, sb, shell("echo here"), "here\n")
	tmpl := x.template()
	tmpl.ID, tmpl.Lifetime = sb.ID(), cove.LifetimeDetached
	_, err = e.Prepare(x.ctx, tmpl)
	wantCode(t, "preparing another of that id", err, cove.Conflict)
}

func lastingReach(t *testing.T, x *env) {
	sb := x.lasting(t, engine.Binding{Listeners: []guest.Listen{{Network: "tcp4", Address: "127.0.0.1:8080"}}})
	for _, f := range sb.Listeners() {
		f.Close()
	}
	_, sb = x.next(t, x.eng, sb.ID())
	x.reaches(t, sb, 8080, sb.Listeners())
}

func lastingListener(t *testing.T, x *env) {
	const port = 8080
	sb := x.lasting(t, engine.Binding{Listeners: []guest.Listen{{Network: "tcp4", Address: fmt.Sprint("127.0.0.1:",
		port)}}})
	for _, f := range sb.Listeners() {
		f.Close()
	}
	_, sb = x.next(t, x.eng, sb.ID())
	if n := len(sb.Listeners()); n != 1 {
		t.Fatalf("%d listeners, want 1", n)
	}
	f := sb.Listeners()[0]
	ln, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "still here\n")
			c.Close()
		}
	}()
	x.want(t, sb, command("bash", "-c", fmt.Sprintf("cat < /dev/tcp/127.0.0.1/%d", port)), "still here\n")
}

func lastingUnixListener(t *testing.T, x *env) {
	const place = rootfs.Own + "/own.sock"
	sb := x.lasting(t, engine.Binding{Listeners: []guest.Listen{{Network: guest.UnixNetwork, Address: place}}})
	for range 2 {
		if n := len(sb.Listeners()); n != 1 {
			t.Fatalf("%d listeners, want 1", n)
		}
		f := sb.Listeners()[0]
		ln, err := net.FileListener(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, "here\n")
				c.Close()
			}
		}()
		x.want(t, sb, command("perl", "-MSocket", "-e",
			`socket(S, PF_UNIX, SOCK_STREAM, 0) and connect(S, sockaddr_un($ARGV[0])) or die $!; print <S>`, place), "here\n")
		ln.Close()
		x.eng, sb = x.next(t, x.eng, sb.ID())
	}
}

func unboundDoesNotLast(t *testing.T, x *env) {
	if !x.caps.Lasting || x.suite.Reopen == nil {
		t.Skip("the engine's sandboxes do not outlive it")
	}
	sb := x.prepare(t, func(t *engine.Template) { t.Lifetime = cove.LifetimeDetached })
	if err := x.eng.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "its end", time.Minute, sb.Done())
	_, adopter := x.reopen(t)
	_, err := adopter.Adopt(x.ctx, sb.ID())
	wantCode(t, "adopting it", err, cove.NotFound)
}

func endedDoesNotLast(t *testing.T, x *env) {
	sb := x.lasting(t, engine.Binding{})
	e, sb := x.next(t, x.eng, sb.ID())
	if err := sb.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, "its end", time.Minute, sb.Done())
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	_, adopter := x.reopen(t)
	_, err := adopter.Adopt(x.ctx, sb.ID())
	wantCode(t, "adopting it", err, cove.NotFound)
}
