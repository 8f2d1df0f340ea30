package enginetest

import (
	"io"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/internal/guest"
)

var terminalTests = []test{
	{name: "a terminal has a size", run: withTTY(terminalSize)},
	{name: "a terminal can be resized", run: withTTY(terminalResize)},
	{name: "all output is one stream", run: withTTY(terminalOutput)},
	{name: "a program ends without reading what was typed", run: withTTY(terminalUnread)},
	{name: "what is typed after its program has closed a terminal is dropped", run: withTTY(terminalClosed)},
}

func withTTY(f func(*testing.T, *env)) func(*testing.T, *env) {
	return func(t *testing.T, x *env) {
		if x.suite.NoTTY {
			t.Skip("the guest gives no terminals")
		}
		f(t, x)
	}
}

func terminalSize(t *testing.T, x *env) {
	spec := command("stty", "size")
	spec.TTY, spec.Stdin, spec.Rows, spec.Cols = true, true, 31, 117
	if r := x.output(t, x.bound(t), spec); r.stdout != "31 117\r\n" || r.exit.Code != 0 {
		t.Errorf("%+v", r)
	}
}

func terminalResize(t *testing.T, x *env) {
	spec := shell("stty -echo; echo ready; read line; stty size")
	spec.TTY, spec.Stdin, spec.Rows, spec.Cols = true, true, 24, 80
	p := x.start(t, x.bound(t), spec)
	ready := make([]byte, len("ready\r\n"))
	if _, err := io.ReadFull(p.Stdout(), ready); err != nil || string(ready) != "ready\r\n" {
		t.Fatalf("%q, %v", ready, err)
	}
	if err := p.Resize(x.ctx, 43, 132); err != nil {
		t.Fatalf("Resize: %v", err)
	}
	io.WriteString(p.Stdin(), "go\n")
	if r := x.finish(t, p); r.stdout != "43 132\r\n" {
		t.Errorf("%+v", r)
	}
}

// moreThanHeld is more input than a terminal and all windows on the way to it hold, in bytes.
const moreThanHeld = 1 << 20

// typing starts a script at a terminal in raw mode, and types more than is held once the script has begun.
func typing(t *testing.T, x *env, script string) (p *guest.RemoteProcess, typed <-chan error) {
	if x.suite.InMemory {
		t.Skip("a terminal in memory has no raw mode")
	}
	spec := shell("stty raw -echo; echo ready; " + script)
	spec.TTY, spec.Stdin, spec.Rows, spec.Cols = true, true, 24, 80
	p = x.start(t, x.bound(t), spec)
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(p.Stdout(), ready); err != nil || string(ready) != "ready\n" {
		t.Fatalf("%q, %v", ready, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.Stdin().Write(make([]byte, moreThanHeld))
		done <- err
	}()
	return p, done
}

func terminalUnread(t *testing.T, x *env) {
	p, _ := typing(t, x, "dd bs=1 count=1 of=/dev/null 2>/dev/null; exit 3")
	if r := x.finish(t, p); r.exit.Code != 3 {
		t.Errorf("%+v", r)
	}
}

func terminalClosed(t *testing.T, x *env) {
	p, typed := typing(t, x, "exec sleep 1000 </dev/null >/dev/null 2>&1")
	select {
	case err := <-typed:
		if err != nil {
			t.Errorf("typing: %v", err)
		}
	case <-x.ctx.Done():
		t.Error("what is typed waits for a program that cannot read it")
	}
	if err := p.Signal(x.ctx, int(syscall.SIGKILL)); err != nil {
		t.Errorf("Signal: %v", err)
	}
	if r := x.finish(t, p); r.exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", r)
	}
}

func terminalOutput(t *testing.T, x *env) {
	spec := shell("echo one; echo two >&2")
	spec.TTY, spec.Rows, spec.Cols = true, 24, 80
	if r := x.output(t, x.bound(t), spec); r.stdout != "one\r\ntwo\r\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
}
