package enginetest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/origdst"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
)

// waysOut: with a network, whatever a program connects to or asks a name of arrives at the sockets the host was given,
// and says where it wanted to go. Nothing else leaves, and fails at once.
func waysOut(t *testing.T, x *env) {
	if !slices.Contains(x.caps.Networks, cove.NetworkLimited) {
		t.Skip("the engine has no network that leads to the gateway")
	}
	sb := x.prepare(t, func(t *engine.Template) { t.Network = cove.NetworkLimited })
	transparent, names := fmt.Sprint(":", engine.TransparentPort), fmt.Sprint(":", engine.DNSPort)
	err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox", Listeners: []guest.Listen{
		{Network: "tcp4", Address: "127.0.0.1" + transparent}, {Network: "tcp6", Address: "[::1]" + transparent},
		{Network: "tcp4", Address: "127.0.0.1" + names}, {Network: "tcp6", Address: "[::1]" + names},
		{Network: "udp4", Address: "127.0.0.1" + names}, {Network: "udp6", Address: "[::1]" + names},
	}})
	if err != nil {
		t.Fatalf("Bind: %v", err)
	}
	files := sb.Listeners()
	if len(files) != 6 {
		t.Fatalf("%d listeners, want 6", len(files))
	}
	for i, f := range files {
		if i < 4 {
			tellWhere(t, f, i >= 2)
		} else {
			echo(t, f)
		}
	}

	for _, at := range []string{"1.1.1.1:80", "10.0.0.1:22", "169.254.169.254:80", "255.255.255.254:65535",
		"[2001:db8::1]:443", "[fd00::1]:8080", "[::ffff:1.1.1.1]:80"} {
		where := netip.MustParseAddrPort(at)
		want := netip.AddrPortFrom(where.Addr().Unmap(), where.Port()).String()
		x.want(t, sb, command("bash", "-c", "cat < /dev/tcp/"+where.Addr().String()+"/"+fmt.Sprint(where.Port())), want+"\n")
	}
	for _, server := range []string{"127.0.0.1", "8.8.8.8", "2001:db8::53"} {
		x.want(t, sb, command("bash", "-c", "exec 3<>/dev/udp/"+server+"/53; echo question >&3; head -n 1 <&3"), "question\n")
		x.want(t, sb, command("bash", "-c", "cat < /dev/tcp/"+server+"/53"), "names\n")
	}
	// Everything else is refused, and a program hears of it.
	for _, server := range []string{"1.1.1.1/123", "1.1.1.1/443", "2001:db8::1/443"} {
		r := x.output(t, sb, command("bash", "-c", "exec 3<>/dev/udp/"+server+"; echo x >&3; head -n 1 <&3"))
		if r.stdout != "" || !strings.Contains(r.stderr, "refused") {
			t.Errorf("udp %s: %+v", server, r)
		}
	}
	// What is meant for loopback stays inside.
	r := x.output(t, sb, command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/80"))
	if r.exit.Code == 0 || !strings.Contains(r.stderr, "refused") {
		t.Errorf("loopback: %+v", r)
	}
	// Without the host's sockets there is no way out.
	for _, f := range files {
		f.Close()
	}
}

// tellWhere answers every connection with where it wanted to go, until the test ends.
func tellWhere(t *testing.T, f *os.File, names bool) {
	ln, err := relayed.Listener(f, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if names {
				fmt.Fprintln(c, "names")
			} else if r, ok := c.(*relayed.Conn); ok {
				fmt.Fprintln(c, r.Destination())
			} else if at, err := origdst.Of(c.(*net.TCPConn)); err != nil {
				fmt.Fprintln(c, err)
			} else {
				fmt.Fprintln(c, at)
			}
			c.Close()
		}
	}()
}

// echo answers every datagram with itself, until the test ends.
func echo(t *testing.T, f *os.File) {
	pc, err := net.FilePacketConn(f)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { pc.Close(); <-done })
	go func() {
		defer close(done)
		p := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(p)
			if err != nil {
				return
			}
			pc.WriteTo(p[:n], from)
		}
	}()
}
