package enginetest

import (
	"io"
	"testing"
)

var terminalTests = []test{
	{name: "a terminal has a size", run: withTTY(terminalSize)},
	{name: "a terminal can be resized", run: withTTY(terminalResize)},
	{name: "all output is one stream", run: withTTY(terminalOutput)},
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

func terminalOutput(t *testing.T, x *env) {
	spec := shell("echo one; echo two >&2")
	spec.TTY, spec.Rows, spec.Cols = true, 24, 80
	if r := x.output(t, x.bound(t), spec); r.stdout != "one\r\ntwo\r\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
}
