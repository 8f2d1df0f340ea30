//go:build linux

package native

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/origdst"
	"github.com/cove-sandbox/cove/internal/prewarm"
)

// TestPoolKeepsNetworksApart: a sandbox with a network has the same one whether its blank was online or not, and one
// without has none, whatever is ready.
func TestPoolKeepsNetworksApart(t *testing.T) {
	e := open(t)
	networks := map[cove.NetworkMode]string{}
	for _, c := range []struct {
		name    string
		network cove.NetworkMode
		ready   []bool // online
		online  bool   // what it takes
		taken   bool   // of what is ready
	}{
		{"none of both", cove.NetworkNone, []bool{true, false}, false, true},
		{"none of those online", cove.NetworkNone, []bool{true}, false, false},
		{"none of nothing", cove.NetworkNone, nil, false, false},
		{"limited of both", cove.NetworkLimited, []bool{true, false}, true, true},
		{"limited of those that are not online", cove.NetworkLimited, []bool{false}, false, true},
		{"limited of nothing", cove.NetworkLimited, nil, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.prewarmed.close()
			ready := map[bool]*blank{}
			for _, online := range c.ready {
				b, err := e.newBlank(t.Context(), cove.CodeUser, online, e.groupName(), e.ranges)
				if err != nil {
					t.Fatal(err)
				}
				ready[online] = b
			}
			e.prewarmed = prewarmed{offline: holding(ready[false]), online: holding(ready[true]), detached: e.prewarmed.detached}
			s, err := e.Prepare(t.Context(), engine.Template{
				ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
				Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: c.network,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Destroy(t.Context())
			if b := s.(*sandbox).blank; b.online != c.online || (b == ready[c.online]) != c.taken {
				t.Errorf("it has a blank that is online: %v, and was ready: %v", b.online, b == ready[c.online])
			}
			if err := s.Bind(t.Context(), engine.Binding{Listeners: []guest.Listen{{Network: "tcp4",
				Address: fmt.Sprint("127.0.0.1:", engine.TransparentPort)}}}); err != nil {
				t.Fatal(err)
			}
			// Of the sockets that were made ahead those are left that were asked for.
			if out, _ := output(t, s, "exec cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6"); strings.Count(out,
				"\n") != 4+1 || !strings.Contains(out, ": 0100007F:0001 00000000:0000 0A ") {
				t.Errorf("sockets inside:\n%s", out)
			}
			network := connected(t, s)
			if first, ok := networks[c.network]; ok && network != first {
				t.Errorf("the network is %q, that of the first %q", network, first)
			}
			networks[c.network] = network
		})
	}
	if n := networks[cove.NetworkNone]; !strings.Contains(n, "unreachable") {
		t.Errorf("without a network: %q", n)
	}
	if n := networks[cove.NetworkLimited]; !strings.HasPrefix(n, "192.0.2.1:4242\n") {
		t.Errorf("with one: %q", n)
	}
}

// TestDetachedLasts: a long-lived sandbox with a network begins as the detached guest that is
// ready, and goes on without the process that had it ready.
func TestDetachedLasts(t *testing.T) {
	needRoot(t)
	e := open(t)
	h, err := e.newDetached(t.Context(), cove.AgentUser, true)
	if err != nil {
		t.Fatal(err)
	}
	e.prewarmed.detached.Close()
	e.prewarmed.detached = holding(h)
	tmpl := lastingTemplate()
	without, err := e.Prepare(t.Context(), tmpl)
	if err != nil {
		t.Fatal(err)
	}
	defer without.Destroy(context.Background())
	if without.(*sandbox).blank == h {
		t.Error("one without a network has a blank that is online")
	}
	tmpl.ID, tmpl.Network = cove.NewSandboxID(), cove.NetworkLimited
	s, err := e.Prepare(t.Context(), tmpl)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy(context.Background())
	if s.(*sandbox).blank != h {
		t.Error("it did not take what was ready")
	}
	dir := t.TempDir()
	mounts := []cove.Mount{{Source: dir, Target: "/workspace"}, {Source: dir, Target: "/data"}}
	if err := s.Bind(t.Context(), engine.Binding{Mounts: mounts}); err != nil {
		t.Fatal(err)
	}
	if len(h.ownerships) > 0 {
		t.Errorf("namespaces are kept that nothing more is mounted with: %v", h.ownerships)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	next := openIn(t, e.o.RunDir)
	adopted, err := next.Adopt(t.Context(), tmpl.ID)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := output(t, adopted, "echo here > /data/file; exec cat /workspace/file"); out != "here\n" {
		t.Errorf("it says %q", out)
	}
	if err := adopted.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// holding returns a buffer of one blank, or none, that is not refilled.
func holding[B interface {
	comparable
	remove() error
}](b B) *prewarm.Buffer[B] {
	var none B
	if b == none {
		return prewarm.New(0, func(context.Context) (B, error) { return none, nil }, nil)
	}
	begun, placed := false, make(chan struct{})
	s := prewarm.New(2, func(ctx context.Context) (B, error) {
		if !begun {
			begun = true
			return b, nil
		}
		close(placed) // the first is
		<-ctx.Done()
		return none, ctx.Err()
	}, func(b B) { b.remove() })
	s.Refill()
	<-placed
	return s
}

// connected is where a connection from a sandbox to nobody's address arrives, or
// why it does not, and what routes there are.
func connected(t *testing.T, s engine.Sandbox) string {
	t.Helper()
	ln, err := net.FileListener(s.Listeners()[0])
	s.Listeners()[0].Close()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	defer func() { ln.Close(); <-done }()
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			at, err := origdst.Of(c.(*net.TCPConn))
			fmt.Fprintln(c, at)
			if err != nil {
				fmt.Fprintln(c, err)
			}
			c.Close()
		}
	}()
	out, _ := output(t, s, `exec bash -c "cat < /dev/tcp/192.0.2.1/4242; cat /proc/net/fib_trie /proc/net/ipv6_route"`)
	return out
}
