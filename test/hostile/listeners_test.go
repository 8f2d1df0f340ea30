//go:build linux

package hostile

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/lent"
	"github.com/cove-sandbox/cove/test/await"
	"github.com/cove-sandbox/cove/test/hostile/lie"
)

// TestListenersThatBlock: the host ends its use of listeners which an executor has made block and listen anew.
func TestListenersThatBlock(t *testing.T) {
	needs(t, "native")
	calls := map[string]int{"tcp4": unix.SYS_ACCEPT4, "udp4": unix.SYS_RECVFROM}
	for _, l := range lie.Listeners {
		t.Run(l.Name, func(t *testing.T) {
			h := newHost(t, "native", "descriptors="+l.Name)
			var binding engine.Binding
			for network := range calls {
				binding.Listeners = append(binding.Listeners, guest.Listen{Network: network, Address: "127.0.0.1:8080"})
			}
			sb, err := h.sandboxWith(t.Context(), cove.LifetimeAttached, binding)
			if err != nil {
				t.Fatal(err)
			}
			var sockets []syscall.Conn
			var closing []io.Closer
			var serving sync.WaitGroup
			for i, f := range sb.Listeners() {
				closer, use := acceptOn(t, binding.Listeners[i].Network, f)
				f.Close()
				sockets, closing = append(sockets, closer.(syscall.Conn)), append(closing, closer)
				await.That(t, "it blocks", func() bool { return blocks(t, closer.(syscall.Conn)) })
				serving.Go(use)
				call := fmt.Sprint(calls[binding.Listeners[i].Network], " ")
				await.That(t, "a thread waits in the kernel", func() bool { return someThread(call) })
			}
			back := lent.Take(sockets...)
			back.End()
			ended := make(chan struct{})
			go func() {
				for _, c := range closing {
					c.Close()
				}
				serving.Wait()
				back.Free()
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("closing them does not end")
			}
			if err := sb.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// acceptOn opens a socket, and returns what uses it until it is closed.
func acceptOn(t *testing.T, network string, f *os.File) (io.Closer, func()) {
	t.Helper()
	if network == "udp4" {
		p, err := net.FilePacketConn(f)
		if err != nil {
			t.Fatal(err)
		}
		return p, func() {
			for err := error(nil); err == nil; {
				_, _, err = p.ReadFrom(make([]byte, 1))
			}
		}
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	return l, func() { l.Accept() }
}

func blocks(t *testing.T, socket syscall.Conn) bool {
	t.Helper()
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	flags := unix.O_NONBLOCK
	raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	return err == nil && flags&unix.O_NONBLOCK == 0
}

// someThread reports whether a thread of this process is in a system call.
func someThread(call string) bool {
	all, _ := filepath.Glob("/proc/self/task/*/syscall")
	for _, f := range all {
		if text, _ := os.ReadFile(f); strings.HasPrefix(string(text), call) {
			return true
		}
	}
	return false
}
