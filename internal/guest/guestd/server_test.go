package guestd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world starts the process that the test provides, and no other.
type world struct {
	guestd.Wall

	start func() *process
}

func (w world) Begin(guest.Begin) error                         { return nil }
func (w world) Setup(guest.Setup, []*os.File) error             { return nil }
func (w world) Bind(guest.Bind, []*os.File) ([]*os.File, error) { return nil, nil }
func (w world) Start(guest.ProcessSpec) (guestd.Process, error) { return w.start(), nil }
func (w world) SignalAll(syscall.Signal) error                  { return nil }
func (w world) Stats() guest.Stats                              { return guest.Stats{} }

// process is a pair of outlets and an exit code.
type process struct {
	out, errs *outlet
	in        io.WriteCloser
	exited    chan struct{}
	code      int
}

func (p *process) PID() int                    { return 42 }
func (p *process) Stdin() io.WriteCloser       { return p.in }
func (p *process) Stdout() guestd.Output       { return p.out }
func (p *process) Stderr() guestd.Output       { return p.errs }
func (p *process) Signal(syscall.Signal) error { return nil }
func (p *process) Resize(uint16, uint16) error { return nil }
func (p *process) Wait() (int, syscall.Signal) { <-p.exited; return p.code, 0 }

// outlet is an output with room for everything.
type outlet struct {
	mu     sync.Mutex
	cond   sync.Cond
	buf    []byte
	ended  bool
	chatty bool // a writer adds a line at every read, without end
}

func newOutlet() *outlet {
	o := &outlet{}
	o.cond.L = &o.mu
	return o
}

func (o *outlet) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.chatty && !o.ended {
		o.buf = append(o.buf, "more\n"...)
	}
	for len(o.buf) == 0 && !o.ended {
		o.cond.Wait()
	}
	n := copy(p, o.buf)
	if n == 0 {
		return 0, io.EOF
	}
	o.buf = o.buf[n:]
	return n, nil
}

// Cut implements guestd.Output; it also stands for the end of all writers.
func (o *outlet) Cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.cond.Broadcast()
}

// Close discards unread bytes, as a pipe does.
func (o *outlet) Close() error {
	o.Cut()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = nil
	return nil
}

// exited returns a process that has written text, has exited with 7, and whose streams are still held open by another.
func exited(text []byte) *process {
	p := &process{out: newOutlet(), errs: newOutlet(), exited: make(chan struct{}), code: 7}
	p.out.buf = bytes.Clone(text)
	close(p.exited)
	return p
}

// printer returns a process that has written text and exited with 7.
func printer(text []byte) *process {
	p := exited(text)
	p.out.Cut()
	p.errs.Cut()
	return p
}

// connect opens a connection; wait returns when the server has noticed its end.
func connect(t testing.TB, s *guestd.Server) (c *guest.Client, wait func()) {
	t.Helper()
	host, inside := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() { s.Serve(inside) })
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := guest.NewClient(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() { c.Close(); served.Wait() }
}

func bind(t testing.TB, c *guest.Client) {
	t.Helper()
	if _, err := c.Bind(t.Context(), guest.Bind{}, nil); err != nil {
		t.Fatal(err)
	}
}

func numbered(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.Bytes()
}

// TestStreamSurvivesReconnects: the host gets every byte once, in order, and then the exit, however often the
// connection is lost.
func TestStreamSurvivesReconnects(t *testing.T) {
	text := numbered(3 << 20)
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		return printer(text)
	}}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	bind(t, c)
	p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"print"}})
	if err != nil {
		t.Fatal(err)
	}
	id := p.ID()
	var got []byte
	for range 5 {
		buf := make([]byte, 400_000)
		n, err := io.ReadFull(p.Stdout(), buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
		wait()
		if c, wait = connect(t, s); len(c.Processes()) != 1 || c.Processes()[0] != id {
			t.Fatalf("processes %v", c.Processes())
		}
		if p, err = c.Attach(t.Context(), id, uint64(len(got)), 0); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	if got = append(got, rest...); !bytes.Equal(got, text) {
		t.Errorf("%d bytes of %d, or others", len(got), len(text))
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	wait()
}

// TestNothingWrittenIsLost: bytes written before the exit arrive, even if the reader is late.
func TestNothingWrittenIsLost(t *testing.T) {
	text := numbered(3 * guest.Window)
	for name, process := range map[string]func() *process{
		"nobody holds the streams":   func() *process { return printer(text) },
		"somebody holds the streams": func() *process { return exited(text) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: process}, Files: nothing{}}, true)
				c, wait := connect(t, s)
				defer wait()
				bind(t, c)
				p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"print"}})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour) // sleep: the bubble's clock, which stands still otherwise
				if out, err := io.ReadAll(p.Stdout()); err != nil || !bytes.Equal(out, text) {
					t.Errorf("%d bytes of %d, or others, %v", len(out), len(text), err)
				}
				if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
					t.Errorf("exit %+v, %v", exit, err)
				}
			})
		})
	}
}

// TestLeftoverHoldsNothingBack: a process left behind cannot delay the exit, neither by silence nor by chatter.
func TestLeftoverHoldsNothingBack(t *testing.T) {
	for name, chatty := range map[string]bool{"silent": false, "chatty": true} {
		t.Run(name, func(t *testing.T) {
			start := func() *process {
				p := exited([]byte("mine\n"))
				p.out.chatty = chatty
				return p
			}
			s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: start}, Files: nothing{}}, true)
			c, wait := connect(t, s)
			defer wait()
			bind(t, c)
			p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"print"}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := io.ReadAll(p.Stdout())
			if err != nil || !bytes.HasPrefix(out, []byte("mine\n")) || !chatty && len(out) != len("mine\n") {
				t.Errorf("%d bytes, %v", len(out), err)
			}
			if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
				t.Errorf("exit %+v, %v", exit, err)
			}
		})
	}
}

// many is a directory whose listing exceeds one frame.
type many struct{ guestd.Files }

func (many) List(string) ([]guest.FileInfo, error) {
	return make([]guest.FileInfo, 100_000), nil
}

// TestAnswerBeyondAFrame: an oversized answer fails its request, and the connection goes on.
func TestAnswerBeyondAFrame(t *testing.T) {
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{}, Files: many{}}, true)
	c, wait := connect(t, s)
	defer wait()
	bind(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var f *guest.Failure
	if _, err := c.List(ctx, "/"); !errors.As(err, &f) || f.Kind != guest.FailInvalid {
		t.Errorf("%v", err)
	}
	if _, err := c.Health(ctx); err != nil {
		t.Error(err)
	}
}

// stuck is an input whose reader blocks, also in Close.
type stuck struct{ writes, goOn chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	close(s.writes)
	<-s.goOn
	return len(p), nil
}
func (stuck) Close() error { return nil }

// TestNothingFollowsTheExit: after the exit the host knows no such process, so input consumed later is not
// acknowledged.
func TestNothingFollowsTheExit(t *testing.T) {
	in := stuck{make(chan struct{}), make(chan struct{})}
	proc := printer(nil)
	proc.in, proc.exited = in, make(chan struct{})
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		return proc
	}}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	defer wait()
	bind(t, c)
	p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdin().Write([]byte("input")); err != nil {
		t.Fatal(err)
	}
	<-in.writes
	close(proc.exited)
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
		t.Errorf("%+v, %v", exit, err)
	}
	close(in.goOn)
	for range 20 {
		if _, err := c.Health(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // sleep: what must not happen has time to
	}
}

// TestExitWaitsForTheHost: an exit without a connected host waits for the next connection, and is forgotten after
// delivery.
func TestExitWaitsForTheHost(t *testing.T) {
	proc := printer([]byte("bye"))
	proc.exited = make(chan struct{})
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		return proc
	}}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	bind(t, c)
	p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"print"}})
	if err != nil {
		t.Fatal(err)
	}
	wait()
	close(proc.exited)
	c, wait = connect(t, s)
	p, err = c.Attach(t.Context(), p.ID(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(p.Stdout()); err != nil || string(out) != "bye" {
		t.Errorf("%q, %v", out, err)
	}
	await.That(t, "the process is forgotten", func() bool {
		h, err := c.Health(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return h.Processes == 0
	})
	wait()
}

func TestNothingBeforeBind(t *testing.T) {
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		t.Error("started")
		return nil
	}}, Files: nothing{}}, false)
	c, wait := connect(t, s)
	defer wait()
	state := func(err error) bool {
		var f *guest.Failure
		return errors.As(err, &f) && f.Kind == guest.FailState
	}
	if _, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"x"}}); !state(err) {
		t.Errorf("start: %v", err)
	}
	if _, err := c.Stat(t.Context(), "/"); !state(err) {
		t.Errorf("stat: %v", err)
	}
	if _, err := c.Bind(t.Context(), guest.Bind{}, nil); !state(err) {
		t.Errorf("bind before set-up: %v", err)
	}
	if err := c.Setup(t.Context(), guest.Setup{}, nil); !state(err) {
		t.Errorf("set-up before the beginning: %v", err)
	}
	if err := c.Begin(t.Context(), guest.Begin{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Begin(t.Context(), guest.Begin{}); !state(err) {
		t.Errorf("a second beginning: %v", err)
	}
	if err := c.Setup(t.Context(), guest.Setup{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Setup(t.Context(), guest.Setup{}, nil); !state(err) {
		t.Errorf("a second set-up: %v", err)
	}
	bind(t, c)
	if _, err := c.Bind(t.Context(), guest.Bind{}, nil); !state(err) {
		t.Errorf("a second bind: %v", err)
	}
}

// FuzzServer: the guest neither panics nor hangs, for any bytes of a host.
func FuzzServer(f *testing.F) {
	request, _ := guest.AppendFrame(nil, guest.Frame{
		Type: guest.FrameRequest, ID: 1, Payload: guest.Body{JSON: []byte(`{"op":"bind","params":{}}`)}.Payload(),
	})
	start, _ := guest.AppendFrame(bytes.Clone(request), guest.Frame{Type: guest.FrameRequest, ID: 2,
		Payload: guest.Body{JSON: []byte(`{"op":"start","params":{"args":["x"]}}`)}.Payload()})
	note, _ := guest.AppendFrame(bytes.Clone(start), guest.Frame{Type: guest.FrameRequest, ID: 3,
		Payload: guest.Body{JSON: []byte(`{"op":"note","params":{"process":2}}`), Raw: []byte("x")}.Payload()})
	noted, _ := guest.AppendFrame(bytes.Clone(note), guest.Frame{Type: guest.FrameRequest, ID: 4,
		Payload: guest.Body{JSON: []byte(`{"op":"noted","params":{"process":2}}`)}.Payload()})
	processes, _ := guest.AppendFrame(bytes.Clone(noted), guest.Frame{
		Type: guest.FrameRequest, ID: 5, Payload: guest.Body{JSON: []byte(`{"op":"processes"}`)}.Payload(),
	})
	f.Add(request)
	f.Add(start)
	f.Add(processes)
	f.Fuzz(func(t *testing.T, wire []byte) {
		s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
			return printer([]byte("x"))
		}}, Files: nothing{}}, true)
		host, inside := net.Pipe()
		done := make(chan struct{})
		go func() { s.Serve(inside); close(done) }()
		go io.Copy(io.Discard, host)
		host.SetWriteDeadline(time.Now().Add(2 * time.Second))
		host.Write(wire)
		host.Close()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Fatal("it hung")
		}
	})
}

// nothing has no files.
type nothing struct{}

var errNothing = errors.New("nothing here")

func (nothing) Write(guest.WriteFile, []byte) error { return errNothing }
func (nothing) Read(guest.ReadFile) ([]byte, guest.FileInfo, error) {
	return nil, guest.FileInfo{}, errNothing
}
func (nothing) Stat(string) (guest.FileInfo, error)   { return guest.FileInfo{}, errNothing }
func (nothing) List(string) ([]guest.FileInfo, error) { return nil, errNothing }
func (nothing) Mkdir(guest.WriteFile) error           { return errNothing }
func (nothing) Remove(string) error                   { return errNothing }
func (nothing) Park(string) error                     { return errNothing }
func (nothing) Release(guest.WriteFile, []byte) error { return errNothing }
