package enginetest

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// OverTCP returns an address of the daemon at a unix socket ("unix:///…") as one of another machine has it. It serves
// until the test ends.
func OverTCP(t testing.TB, address string) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Over(t, l, address)
}

// Over is OverTCP by a listener, which ends with the test.
func Over(t testing.TB, l net.Listener, address string) string {
	var carrying sync.WaitGroup
	t.Cleanup(func() { l.Close(); carrying.Wait() })
	carrying.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			carrying.Go(func() { carry(c, strings.TrimPrefix(address, "unix://")) })
		}
	})
	return "tcp://" + l.Addr().String()
}

// carry carries a connection to a daemon, and ends it when either side does.
func carry(c net.Conn, socket string) {
	defer c.Close()
	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer to.Close()
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(c, to)
		c.Close()
	})
	io.Copy(to, c)
	to.(*net.UnixConn).CloseWrite()
	back.Wait()
}
