package guestd_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
)

// silent returns a process that runs until end is called.
func silent() (p *process, end func()) {
	p = &process{out: newOutlet(), errs: newOutlet(), exited: make(chan struct{}), code: 7}
	return p, func() {
		p.out.Cut()
		p.errs.Cut()
		close(p.exited)
	}
}

// TestReturnWithoutMemory: a restarted host without state finds a process by its label, reads the note and gets all
// output that was not released.
func TestReturnWithoutMemory(t *testing.T) {
	text := numbered(3 * guest.Window)
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		return printer(text)
	}}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	bind(t, c)
	p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"print"}, Label: []byte("mine\x00")})
	if err != nil {
		t.Fatal(err)
	}
	p.Retain()
	const read, released = guest.Window - 10, 100_001
	if _, err := io.ReadFull(p.Stdout(), make([]byte, read)); err != nil {
		t.Fatal(err)
	}
	if err := p.Note(t.Context(), []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := p.Note(t.Context(), []byte("second")); err != nil {
		t.Fatal(err)
	}
	if err := p.Release(released); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(t.Context()); err != nil { // orders the check behind the release on the wire
		t.Fatal(err)
	}
	wait()

	c, wait = connect(t, s)
	defer wait()
	all, err := c.Listed(t.Context())
	if err != nil || len(all) != 1 || string(all[0].Label) != "mine\x00" || all[0].Stdout != released ||
		all[0].StdoutEnd <= released || all[0].Stderr != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	if _, err := c.Attach(t.Context(), all[0].ID, 0, 0); err == nil {
		t.Error("output that was let go of is there")
	}
	if p, err = c.Attach(t.Context(), all[0].ID, all[0].Stdout, all[0].Stderr); err != nil {
		t.Fatal(err)
	}
	if note, err := c.Noted(t.Context(), p.ID()); err != nil || string(note) != "second" {
		t.Errorf("noted %q, %v", note, err)
	}
	if rest, err := io.ReadAll(p.Stdout()); err != nil || !bytes.Equal(rest, text[released:]) {
		t.Errorf("%d bytes of %d, or others, %v", len(rest), len(text)-released, err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

// TestEndsAreKept: a process that has ended and is not forgotten is there for the next host, with its exit and the
// output that was not released.
func TestEndsAreKept(t *testing.T) {
	text := numbered(1000)
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		return printer(text)
	}}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	bind(t, c)
	p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"print"}, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	p.Retain()
	for range 2 { // the second host is killed, too
		<-p.Exited()
		wait()
		c, wait = connect(t, s)
		all, err := c.Listed(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		if p, err = c.AttachKept(t.Context(), all[0].ID, all[0].Stdout, all[0].Stderr); err != nil {
			t.Fatal(err)
		}
		p.Retain()
		if got, err := io.ReadAll(p.Stdout()); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes of %d, or others, %v", len(got), len(text), err)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
			t.Errorf("exit %+v, %v", exit, err)
		}
	}
	defer func() { wait() }()
	if err := p.Forget(); err != nil {
		t.Fatal(err)
	}
	if all, err := c.Listed(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left is %+v, %v", all, err)
	}
}

// TestInputOnItsWay: a host that comes while the process has not read all that the last one sent goes on from there,
// and keeps to the room that is left. The process gets every byte once.
func TestInputOnItsWay(t *testing.T) {
	text := numbered(4 * guest.Window)
	for _, sent := range []int{0, 1, guest.Window / 2, guest.Window} {
		proc, end := silent()
		stdin, in := io.Pipe()
		proc.in = in
		s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
			return proc
		}}, Files: nothing{}}, true)
		c, wait := connect(t, s)
		bind(t, c)
		p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"read"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Stdin().Write(text[:sent]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Health(t.Context()); err != nil { // orders the end of the connection behind the input
			t.Fatal(err)
		}
		wait()

		c, wait = connect(t, s)
		if p, err = c.Attach(t.Context(), p.ID(), 0, 0); err != nil {
			t.Fatal(err)
		}
		written := make(chan error)
		go func() {
			_, err := p.Stdin().Write(text[sent:])
			err = errors.Join(err, p.Stdin().Close())
			if err != nil {
				in.CloseWithError(err)
			}
			written <- err
		}()
		if got, err := io.ReadAll(stdin); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d sent before: the process got %d bytes of %d, or others: %v", sent, len(got), len(text), err)
		}
		if err := <-written; err != nil {
			t.Errorf("%d sent before: %v", sent, err)
		}
		end()
		if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
			t.Errorf("exit %+v, %v", exit, err)
		}
		wait()
	}
}

// TestRetainedOutputStalls: retained output is bounded.
func TestRetainedOutputStalls(t *testing.T) {
	text := numbered(3 * guest.Window)
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		return printer(text)
	}}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	defer wait()
	bind(t, c)
	p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"print"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Retain()
	for at := uint64(0); ; {
		buf := make([]byte, guest.Window)
		n, err := p.Stdout().Read(buf)
		if at += uint64(n); at > uint64(len(text)) || err == nil && !bytes.Equal(buf[:n], text[int(at)-n:at]) {
			t.Fatalf("%d bytes more at %d", n, at)
		}
		if err == io.EOF {
			break
		}
		if err := p.Release(at + 1<<40); err != nil { // not beyond the bytes that were read
			t.Fatal(err)
		}
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

func TestLabelAndNoteAreBounded(t *testing.T) {
	proc, end := silent()
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: func() *process {
		return proc
	}}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	defer wait()
	bind(t, c)
	refused := func(err error, kind guest.FailureKind) bool {
		var f *guest.Failure
		return errors.As(err, &f) && f.Kind == kind
	}
	if _, err := c.Start(t.Context(), guest.ProcessSpec{
		Args: []string{"x"}, Label: make([]byte, guest.MaxLabel+1),
	}); !refused(err, guest.FailInvalid) {
		t.Errorf("a long label: %v", err)
	}
	p, err := c.Start(t.Context(), guest.ProcessSpec{Args: []string{"x"}, Label: make([]byte, guest.MaxLabel)})
	if err != nil {
		t.Fatal(err)
	}
	if note, err := c.Noted(t.Context(), p.ID()); err != nil || len(note) != 0 {
		t.Errorf("no note: %q, %v", note, err)
	}
	if err := p.Note(t.Context(), make([]byte, guest.MaxNote+1)); !refused(err, guest.FailInvalid) {
		t.Errorf("a long note: %v", err)
	}
	if err := p.Note(t.Context(), make([]byte, guest.MaxNote)); err != nil {
		t.Errorf("a note: %v", err)
	}
	end()
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	if _, err := c.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Note(t.Context(), nil); !refused(err, guest.FailNotFound) {
		t.Errorf("a note of a process that has gone: %v", err)
	}
}

// TestAllLabelsFit: the longest labels of MaxProcesses processes fit into one answer.
func TestAllLabelsFit(t *testing.T) {
	var ends []func()
	start := func() *process {
		p, end := silent()
		ends = append(ends, end)
		return p
	}
	s := guestd.New(guestd.World{Wall: world{}, Spawner: world{start: start}, Files: nothing{}}, true)
	c, wait := connect(t, s)
	defer wait()
	bind(t, c)
	for range guest.MaxProcesses {
		if _, err := c.Start(t.Context(), guest.ProcessSpec{
			Args: []string{"x"}, TTY: true, Label: bytes.Repeat([]byte{0xff}, guest.MaxLabel),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := c.Listed(t.Context()); err != nil || len(all) != guest.MaxProcesses {
		t.Errorf("%d processes, %v", len(all), err)
	}
	for _, end := range ends {
		end()
	}
}
