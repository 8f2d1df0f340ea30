//go:build linux

package relayed_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/linux/relayed"
)

var elsewhere = netip.MustParseAddrPort("[2001:db8::1]:4242")

// TestStreams: a connection tells where it wanted to go, and its end from its breaking off. Nothing stays behind.
func TestStreams(t *testing.T) {
	dir := t.TempDir()
	socket, in, err := relayed.Listen(dir, "tcp6")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	l, err := relayed.Listener(socket, "[::1]:1")
	socket.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, broken := range []bool{false, true} {
		client, err := in.Dial(elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c := accepted.(*relayed.Conn)
		if c.Destination() != elsewhere || c.LocalAddr().String() != "[::1]:1" {
			t.Errorf("it wanted to go to %s by %s", c.Destination(), c.LocalAddr())
		}
		if names, err := os.ReadFile("/proc/net/unix"); err != nil || strings.Contains(string(names), elsewhere.String()) {
			t.Errorf("everybody reads where it wanted to go, %v", err)
		}
		if _, err := c.Write([]byte("some")); err != nil {
			t.Fatal(err)
		}
		want := io.EOF
		if broken {
			want = relayed.ErrBroken
			c.Break()
		}
		c.Close()
		var p [16]byte
		if n, err := relayed.Read(client, p[:4]); string(p[:n]) != "some" || err != nil {
			t.Errorf("%q, %v", p[:n], err)
		}
		if n, err := relayed.Read(client, p[:]); n > 0 || !errors.Is(err, want) {
			t.Errorf("broken %t: %d bytes, %v", broken, n, err)
		}
	}
	in.Close()
	if c, err := in.Dial(elsewhere); err == nil {
		c.Close()
		t.Error("an entrance that is closed lets connections in")
	}
}

func TestDatagrams(t *testing.T) {
	socket, in, err := relayed.Listen(t.TempDir(), "udp4")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p, err := relayed.PacketConn(socket, "127.0.0.1:53")
	socket.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, ok := p.LocalAddr().(*net.UDPAddr); !ok {
		t.Errorf("it is at %v", p.LocalAddr())
	}
	var clients [2]*net.UnixConn
	for i := range clients {
		if clients[i], err = in.Dial(elsewhere); err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
		clients[i].Write([]byte{byte(i)})
	}
	var b [16]byte
	for range clients {
		n, from, err := p.ReadFrom(b[:])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.WriteTo(b[:n], from); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range clients {
		if n, err := c.Read(b[:]); n != 1 || int(b[0]) != i || err != nil {
			t.Errorf("client %d was answered %v, %v", i, b[:n], err)
		}
	}
}

// TestSocketsOfNetworks: sockets that stand for nothing else stay what they are.
func TestSocketsOfNetworks(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	same, err := relayed.Listener(f, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer same.Close()
	if _, ok := same.(*net.TCPListener); !ok {
		t.Errorf("it is a %T", same)
	}
}
