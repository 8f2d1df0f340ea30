//go:build linux

package outside_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cove-sandbox/cove/internal/linux/relayed"
	"github.com/cove-sandbox/cove/internal/sidecar"
	"github.com/cove-sandbox/cove/internal/sidecar/outside"
)

var (
	somewhere = netip.MustParseAddrPort("192.0.2.1:443")
	setup     = sidecar.Setup{Sockets: []sidecar.Socket{{Network: "tcp4", Address: "127.0.0.1:1"},
		{Network: "udp4", Address: "127.0.0.1:53"}}}
)

// begin returns both ends of a sidecar that is ready.
func begin(t *testing.T, answer func(netip.AddrPort, []byte)) (*sidecar.Session, *outside.End) {
	t.Helper()
	dir := t.TempDir()
	s, end := beginBy(t, answer, func(conn net.Conn) (*outside.End, error) {
		return outside.Begin(t.Context(), conn, setup, dir)
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	return s, end
}

func beginBy(t *testing.T, answer func(netip.AddrPort, []byte),
	do func(net.Conn) (*outside.End, error)) (*sidecar.Session, *outside.End) {
	t.Helper()
	a, b := net.Pipe()
	begun := make(chan *sidecar.Session)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s, err := sidecar.Inside(a, func(sidecar.Setup) error { return nil })
		if err != nil {
			t.Error(err)
		}
		begun <- s
		if s != nil {
			s.ServeInside(func(_ int, to netip.AddrPort, p []byte) { answer(to, p) })
		}
	}()
	type result struct {
		end *outside.End
		err error
	}
	made := make(chan result, 1)
	go func() {
		end, err := do(b)
		made <- result{end, err}
	}()
	s := <-begun
	r := <-made
	if r.err != nil || s == nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.end.Close(); a.Close(); <-ended })
	return s, r.end
}

// program is the end in the sidecar of a connection of a program.
type program struct{ net.Conn }

func (p program) CloseWrite() error { return nil }
func (p program) Break()            { p.Close() }

// TestUsed: connections and datagrams arrive at the sockets, and answers come back.
func TestUsed(t *testing.T) {
	answered := make(chan string, 1)
	s, end := begin(t, func(to netip.AddrPort, p []byte) { answered <- to.String() + " " + string(p) })
	l, err := relayed.Listener(end.Sockets[0], "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, theirs := net.Pipe()
	go s.Carry(0, somewhere, program{theirs})
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if to := c.(*relayed.Conn).Destination(); to != somewhere {
		t.Errorf("it wanted to go to %s", to)
	}
	go c.Write([]byte("hello"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(own, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}

	p, err := relayed.PacketConn(end.Sockets[1], "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, word := range []string{"one", "two"} { // of one client
		s.SendPacket(1, somewhere, []byte(word))
		b := make([]byte, 16)
		n, from, err := p.ReadFrom(b)
		if err != nil || string(b[:n]) != word {
			t.Fatalf("%q, %v", b[:n], err)
		}
		if _, err := p.WriteTo([]byte("not "+word), from); err != nil {
			t.Fatal(err)
		}
		if a := <-answered; a != "192.0.2.1:443 not "+word {
			t.Errorf("answered: %q", a)
		}
	}
}

// TestAgain: what the next sidecar brings arrives at the sockets of the one that has ended; one that does not begin
// changes nothing.
func TestAgain(t *testing.T) {
	s, end := begin(t, func(netip.AddrPort, []byte) {})
	l, err := relayed.Listener(end.Sockets[0], "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.Close()
	<-end.Done()
	gone, other := net.Pipe()
	gone.Close()
	if _, err := end.Again(t.Context(), other, setup); err == nil {
		t.Error("one that does not answer begins")
	}
	s, _ = beginBy(t, func(netip.AddrPort, []byte) {}, func(conn net.Conn) (*outside.End, error) {
		return end.Again(t.Context(), conn, setup)
	})
	end.Close() // as a caller may that has the next one
	own, theirs := net.Pipe()
	defer own.Close()
	go s.Carry(0, somewhere, program{theirs})
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if to := c.(*relayed.Conn).Destination(); to != somewhere {
		t.Errorf("it wanted to go to %s", to)
	}
}

// TestUnused: when the sockets are closed the sidecar ends with the next one who comes, by whatever way.
func TestUnused(t *testing.T) {
	for name, come := range map[string]func(*sidecar.Session){
		"connection": func(s *sidecar.Session) {
			own, theirs := net.Pipe()
			go s.Carry(0, somewhere, program{theirs})
			if _, err := own.Read(make([]byte, 1)); err == nil {
				t.Error("something answers")
			}
		},
		"datagram": func(s *sidecar.Session) { s.SendPacket(1, somewhere, []byte("?")) },
	} {
		t.Run(name, func(t *testing.T) {
			s, end := begin(t, func(netip.AddrPort, []byte) {})
			for _, f := range end.Sockets {
				f.Close()
			}
			come(s)
			<-end.Done()
			if !errors.Is(end.Err(), outside.ErrUnused) {
				t.Errorf("%v", end.Err())
			}
		})
	}
}

// TestNotReady: a sidecar that says nothing is given up in time.
func TestNotReady(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	go io.Copy(io.Discard, a)
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := outside.Begin(ctx, b, setup, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
