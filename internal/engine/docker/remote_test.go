//go:build linux

package docker

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
)

// overTCP is an address of the daemon as one of another machine has it, until the test ends.
func overTCP(t testing.TB) string {
	t.Helper()
	socket := strings.TrimPrefix(host(t), "unix://")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var carrying sync.WaitGroup
	t.Cleanup(func() { l.Close(); carrying.Wait() })
	carrying.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			carrying.Go(func() { carry(c, socket) })
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

// TestConformanceOverTCP: what differs where the daemon counts as one of another machine.
func TestConformanceOverTCP(t *testing.T) {
	var o Options
	enginetest.Suite{
		Open: func(t *testing.T) engine.Engine {
			o = options(t)
			o.Host = overTCP(t)
			return open(t, o)
		},
		Reopen:    func(t *testing.T) engine.Engine { return open(t, o) },
		Leftovers: leftovers,
		Sandboxes: 5,
		Groups:    []string{"lifecycle", "refusals", "binding", "crowd", "wall"},
	}.Run(t)
}
