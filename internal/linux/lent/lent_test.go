//go:build linux

package lent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/await"
)

// TestEnd: a socket that another process has made block, and listen again, can be closed.
func TestEnd(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6", "unix", "udp4"} {
		t.Run(network, func(t *testing.T) {
			use, close, socket := open(t, network)
			var theirs int
			socket.Control(func(fd uintptr) { theirs, _ = unix.Dup(int(fd)) })
			defer unix.Close(theirs)
			var ended atomic.Bool
			defer ended.Store(true)
			blocks := make(chan struct{})
			go func() {
				for first := true; !ended.Load(); first = false {
					unix.SetNonblock(theirs, false)
					unix.Listen(theirs, 8)
					if first {
						blocks <- struct{}{}
					}
				}
			}()
			<-blocks
			done := make(chan error, 1)
			go func() { done <- use() }()
			await.That(t, "a thread waits in the kernel", func() bool { return waiting(network) })
			taken := Take(conn{socket})
			taken.End()
			if err := close(); err != nil {
				t.Error(err)
			}
			if err := <-done; err == nil {
				t.Error("it goes on")
			}
			taken.Free()
		})
	}
}

type conn struct{ raw syscall.RawConn }

func (c conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// open returns what uses a socket until it is closed, its end, and the socket.
func open(t *testing.T, network string) (use, close func() error, socket syscall.RawConn) {
	t.Helper()
	address := "localhost:0"
	switch network {
	case "tcp6":
		address = "[::1]:0"
	case "unix":
		address = filepath.Join(t.TempDir(), "socket")
	case "udp4":
		p, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := p.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			for {
				if _, _, err := p.ReadFrom(make([]byte, 1)); err != nil {
					return err
				}
			}
		}, p.Close, raw
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		c, err := l.Accept()
		if err == nil {
			err = errors.Join(c.Close(), io.EOF)
		}
		return err
	}, l.Close, raw
}

// waiting reports whether a thread of this process is in accept4 or recvfrom.
func waiting(network string) bool {
	call := fmt.Sprint(unix.SYS_ACCEPT4, " ")
	if network == "udp4" {
		call = fmt.Sprint(unix.SYS_RECVFROM, " ")
	}
	all, _ := filepath.Glob("/proc/self/task/*/syscall")
	for _, f := range all {
		if text, _ := os.ReadFile(f); strings.HasPrefix(string(text), call) {
			return true
		}
	}
	return false
}
