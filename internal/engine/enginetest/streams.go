package enginetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/guest"
)

var streamTests = []test{
	{name: "output and errors are two streams", run: twoStreams},
	{name: "everything written arrives before the exit", run: nothingLost},
	{name: "no input is empty input", run: noInput},
	{name: "streams can be opened by their names", kernel: true, run: named},
	{name: "input streams through and ends", run: inputStreams},
	{name: "a large input comes back whole", run: largeEcho},
	{name: "input that nobody reads", run: unreadInput},
	{name: "a reader that stalls stalls the program", run: stalledReader},
	{name: "a stalled reader holds up nobody else", run: stalledBeside},
	{name: "a slow reader gets every byte", run: slowReader},
	{name: "a limit drops the rest and says how much", run: streamLimits},
	{name: "a cap ends the program", run: outputCap},
	{name: "a process left behind does not hold the exit", run: lingering},
	{name: "a late reader gets what was written before the exit", run: lateReader},
	{name: "bytes stay bytes", run: binary},
}

func twoStreams(t *testing.T, x *env) {
	sb := x.bound(t)
	r := x.output(t, sb, shell("echo to the reader; echo to the operator >&2"))
	if r.stdout != "to the reader\n" || r.stderr != "to the operator\n" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
}

func nothingLost(t *testing.T, x *env) {
	sb := x.bound(t)
	for i := range 50 {
		x.want(t, sb, command("echo", strconv.Itoa(i)), fmt.Sprintln(i))
	}
}

func noInput(t *testing.T, x *env) {
	x.want(t, x.bound(t), command("cat"), "")
}

func named(t *testing.T, x *env) {
	sb := x.bound(t)
	spec := shell("cat /dev/stdin > /dev/stdout; echo error > /dev/stderr")
	spec.Stdin = true
	p := x.start(t, sb, spec)
	io.WriteString(p.Stdin(), "input\n")
	p.Stdin().Close()
	if r := x.finish(t, p); r.stdout != "input\n" || r.stderr != "error\n" || r.exit.Code != 0 {
		t.Errorf("%+v", r)
	}
}

func inputStreams(t *testing.T, x *env) {
	sb := x.bound(t)
	spec := command("cat")
	spec.Stdin = true
	p := x.start(t, sb, spec)
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		if _, err := io.WriteString(p.Stdin(), line); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(line))
		if _, err := io.ReadFull(p.Stdout(), got); err != nil || string(got) != line {
			t.Fatalf("%q came back as %q, %v", line, got, err)
		}
	}
	p.Stdin().Close()
	p.Stdin().Close() // harmless
	if r := x.finish(t, p); r.exit.Code != 0 || r.stdout != "" {
		t.Errorf("after the end of input: %+v", r)
	}
	if _, err := p.Stdin().Write([]byte("x")); err == nil {
		t.Error("input is accepted after its end")
	}
}

// noise is n bytes without a pattern that a lost or doubled chunk would keep.
func noise(n int) []byte {
	b := make([]byte, 0, n+sha256.Size)
	for i := uint64(0); len(b) < n; i++ {
		h := sha256.Sum256(strconv.AppendUint(nil, i, 10))
		b = append(b, h[:]...)
	}
	return b[:n]
}

func largeEcho(t *testing.T, x *env) {
	sb := x.bound(t)
	spec := command("cat")
	spec.Stdin = true
	p := x.start(t, sb, spec)
	data := noise(3*guest.Window + 12345)
	go func() {
		p.Stdin().Write(data)
		p.Stdin().Close()
	}()
	if r := x.finish(t, p); r.stdout != string(data) || r.exit.Code != 0 {
		t.Errorf("%d bytes came back, equal: %t; %+v", len(r.stdout), r.stdout == string(data), r.exit)
	}
}

func unreadInput(t *testing.T, x *env) {
	sb := x.bound(t)
	spec := shell("echo not interested")
	spec.Stdin = true
	p := x.start(t, sb, spec)
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.Stdin().Write(make([]byte, 8*guest.Window))
		p.Stdin().Close()
	}()
	if r := x.finish(t, p); r.stdout != "not interested\n" || r.exit.Code != 0 {
		t.Errorf("%+v", r)
	}
	within(t, "the writer of unread input", 10*time.Second, written)
}

// big is more than all the buffers on the way together.
const big = 8 << 20

func stalledReader(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.start(t, sb, command("head", "-c", strconv.Itoa(big), "/dev/zero"))
	select {
	case <-p.Exited():
		t.Fatalf("a program wrote %d bytes to a reader that took none", big)
	case <-time.After(500 * time.Millisecond):
	}
	if r := x.finish(t, p); len(r.stdout) != big || r.exit.Code != 0 {
		t.Errorf("%d bytes arrived, want %d; %+v", len(r.stdout), big, r.exit)
	}
}

func stalledBeside(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.start(t, sb, command("head", "-c", strconv.Itoa(big), "/dev/zero"))
	for i := range 20 {
		x.want(t, sb, command("echo", strconv.Itoa(i)), fmt.Sprintln(i))
	}
	if err := p.Signal(x.ctx, int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if r := x.finish(t, p); r.exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("the stalled program: %+v", r.exit)
	}
}

func slowReader(t *testing.T, x *env) {
	sb := x.bound(t)
	data := noise(2 << 20)
	if err := sb.Guest().WriteFile(x.ctx, "/tmp/noise", 0o644, data); err != nil {
		t.Fatal(err)
	}
	p := x.start(t, sb, command("cat", "/tmp/noise"))
	var got bytes.Buffer
	buf := make([]byte, 48<<10)
	for {
		n, err := p.Stdout().Read(buf)
		got.Write(buf[:n])
		if err != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d bytes arrived of %d, equal so far: %t", got.Len(), len(data), bytes.HasPrefix(data, got.Bytes()))
	}
	if exit, err := p.Wait(x.ctx); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func streamLimits(t *testing.T, x *env) {
	sb := x.bound(t)
	spec := shell("head -c 100000 /dev/zero; head -c 5000 /dev/zero >&2")
	spec.StdoutLimit, spec.StderrLimit = 1000, 10
	r := x.output(t, sb, spec)
	if len(r.stdout) != 1000 || len(r.stderr) != 10 {
		t.Errorf("%d and %d bytes arrived, want 1000 and 10", len(r.stdout), len(r.stderr))
	}
	if r.exit.StdoutDropped != 99000 || r.exit.StderrDropped != 4990 || r.exit.Code != 0 {
		t.Errorf("%+v", r.exit)
	}
	spec.StdoutLimit, spec.StderrLimit = 100000, 5000
	if r = x.output(t, sb, spec); r.exit.StdoutDropped != 0 || r.exit.StderrDropped != 0 {
		t.Errorf("exactly at the limit: %+v", r.exit)
	}
}

func outputCap(t *testing.T, x *env) {
	sb := x.bound(t)
	spec := command("cat", "/dev/zero")
	spec.StdoutLimit, spec.OutputCap = 1000, 4<<20
	r := x.output(t, sb, spec)
	if !r.exit.OutputCapped || r.exit.Signal != int(syscall.SIGKILL) || len(r.stdout) != 1000 {
		t.Errorf("%d bytes, %+v", len(r.stdout), r.exit)
	}
	if r.exit.StdoutDropped < 3<<20 {
		t.Errorf("only %d bytes are reported as dropped", r.exit.StdoutDropped)
	}
}

func lingering(t *testing.T, x *env) {
	sb := x.bound(t)
	began := time.Now()
	x.want(t, sb, shell("sleep 600 & echo parent"), "parent\n")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the exit took %v", took)
	}
}

// lateReader comes when the process has ended and nobody waits for the output
// of what it left behind any more; the buffers on the way hold all of it.
func lateReader(t *testing.T, x *env) {
	sb := x.bound(t)
	const size = guest.Window + 48<<10
	for _, left := range []string{"", "sleep 600 & "} {
		p := x.start(t, sb, shell(left+"head -c "+strconv.Itoa(size)+" /dev/zero"))
		select {
		case <-p.Exited():
			t.Errorf("%q: the exit came before the output was read", left)
		case <-time.After(time.Second):
		}
		if r := x.finish(t, p); len(r.stdout) != size || r.exit.Code != 0 {
			t.Errorf("%q: %d bytes arrived, want %d; %+v", left, len(r.stdout), size, r.exit)
		}
	}
}

func binary(t *testing.T, x *env) {
	sb := x.bound(t)
	var all strings.Builder
	for i := range 256 {
		all.WriteByte(byte(i))
	}
	if err := sb.Guest().WriteFile(x.ctx, "/tmp/all", 0o644, []byte(all.String())); err != nil {
		t.Fatal(err)
	}
	x.want(t, sb, command("cat", "/tmp/all"), all.String())
}
