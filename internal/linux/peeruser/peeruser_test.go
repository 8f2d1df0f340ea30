//go:build linux

package peeruser

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", address, err)
	}
	defer ln.Close()
	if client, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func addresses(c net.Conn) (peer, own netip.AddrPort) {
	return c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
}

// TestFind finds the user of connections over IPv4 and IPv6, by both ways, and none of one that was closed.
func TestFind(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "127.0.0.2:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			client, server := pair(t, "tcp", address)
			peer, own := addresses(server)
			of := server.(*net.TCPConn)
			if uid, err := Find(of); err != nil || uid != uint32(os.Getuid()) {
				t.Errorf("Find: %d, %v", uid, err)
			}
			for name, find := range map[string]way{"ask": ask, "search": search} {
				if uid, err := find(peer, own); err != nil || uid != uint32(os.Getuid()) {
					t.Errorf("%s: %d, %v", name, uid, err)
				}
				elsewhere := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), own.Port())
				if own.Addr().Is4() {
					if uid, err := find(peer, elsewhere); !errors.Is(err, ErrUnknown) {
						t.Errorf("%s, with another address of the server: %d, %v", name, uid, err)
					}
				}
			}
			none := func(_, _ netip.AddrPort) (uint32, error) { return 0, ErrUnknown }
			if uid, err := findBy(peer, own, none, search); err != nil || uid != uint32(os.Getuid()) {
				t.Errorf("on a kernel without tcp_diag: %d, %v", uid, err)
			}
			if uid, err := findBy(peer, own, none, none); !errors.Is(err, ErrUnknown) {
				t.Errorf("where no way knows it: %d, %v", uid, err)
			}
			client.(*net.TCPConn).CloseWrite()
			if uid, err := Find(of); err != nil || uid != uint32(os.Getuid()) {
				t.Errorf("half closed: %d, %v", uid, err)
			}
			client.Close()
			for name, find := range map[string]way{"ask": ask, "search": search} {
				if uid, err := find(peer, own); !errors.Is(err, ErrUnknown) {
					t.Errorf("%s, after the client has closed it: %d, %v", name, uid, err)
				}
			}
		})
	}
}

// TestFindMapped: a client with a socket of IPv6 reaches a server of IPv4, as Java's do.
func TestFindMapped(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("no IPv6 here")
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet6{Port: ln.Addr().(*net.TCPAddr).Port, Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
	if err := unix.Connect(fd, to); err != nil {
		t.Skipf("no mapped addresses here: %v", err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if uid, err := Find(server.(*net.TCPConn)); err != nil || uid != uint32(os.Getuid()) {
		t.Errorf("%d, %v", uid, err)
	}
	peer, own := addresses(server)
	if uid, err := search(unmapped(peer), unmapped(own)); err != nil || uid != uint32(os.Getuid()) {
		t.Errorf("without sock_diag: %d, %v", uid, err)
	}
}

// TestFindReset: the user of a client that has reset its connection is not that of the next one with its port.
func TestFindReset(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			client, server := pair(t, "tcp", address)
			to, from := client.RemoteAddr().(*net.TCPAddr), client.LocalAddr().(*net.TCPAddr)
			ln, err := net.ListenTCP("tcp", to)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			client.(*net.TCPConn).SetLinger(0)
			client.Close()
			next, err := net.DialTCP("tcp", from, to)
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			if uid, err := findBy(from.AddrPort(), to.AddrPort(), ask); err != nil || uid != uint32(os.Getuid()) {
				t.Fatalf("the next client is not found: %d, %v", uid, err)
			}
			if uid, err := Find(server.(*net.TCPConn)); !errors.Is(err, ErrUnknown) {
				t.Errorf("of the connection that was reset: %d, %v", uid, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	client, server := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	f.Add(make([]byte, 16+answerSize), sockid(client, server))
	f.Fuzz(func(t *testing.T, b, id []byte) {
		if len(id) >= 4 {
			parse(b, id)
		}
	})
}
