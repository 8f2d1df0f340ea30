package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// answers is a resolver with a different answer each time.
type answers struct {
	mu    sync.Mutex
	sets  [][]netip.Addr
	asked []string
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, host)
	set := a.sets[0]
	if len(a.sets) > 1 {
		a.sets = a.sets[1:]
	}
	return set, nil
}

func addrs(list ...string) (all []netip.Addr) {
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// TestResolverAt: an error names the resolver that was asked, and not the one of resolv.conf.
func TestResolverAt(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			buffer[2], buffer[3] = 0x81, 0x82 // SERVFAIL
			server.WriteTo(buffer[:n], from)
		}
	}()
	address := server.LocalAddr().String()
	_, err = ResolverAt(address).LookupNetIP(t.Context(), "ip", "git.lab.")
	if err == nil || !strings.Contains(err.Error(), "lookup git.lab. on "+address+": ") {
		t.Error(err)
	}

	// The message for inside names the host's resolver no more than the host's other addresses.
	host, err := policy.ParseHost("git.lab")
	if err != nil {
		t.Fatal(err)
	}
	direct := &Direct{Resolver: ResolverAt(address)}
	_, err = direct.Dial(t.Context(), host, 443, nil, func(netip.Addr) error { return nil })
	said := cove.ErrorMessage(err)
	if said != "the name git.lab cannot be looked up" || !strings.Contains(err.Error(), address) {
		t.Errorf("%q, of %v", said, err)
	}
	missing := lookupFailed(host, &net.DNSError{Err: "no such host", Name: "git.lab.", Server: address, IsNotFound: true})
	if said = cove.ErrorMessage(missing); said != "there is no host named git.lab" {
		t.Error(said)
	}
}

// TestDirect: a name is resolved once, each of its addresses is checked, and the dialled address is a checked one.
func TestDirect(t *testing.T) {
	ln := echoServer(t)
	port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
	errRefused := errors.New("refused")
	for name, c := range map[string]struct {
		sets   [][]netip.Addr
		refuse string
		want   string // the address that is reached; empty if none
	}{
		"one address":             {[][]netip.Addr{addrs("127.0.0.1")}, "", "127.0.0.1"},
		"mapped address":          {[][]netip.Addr{addrs("::ffff:127.0.0.1")}, "", "127.0.0.1"},
		"refused":                 {[][]netip.Addr{addrs("127.0.0.1")}, "127.0.0.1", ""},
		"mixed, refused last":     {[][]netip.Addr{addrs("127.0.0.1", "10.0.0.1")}, "10.0.0.1", ""},
		"mixed, refused first":    {[][]netip.Addr{addrs("169.254.169.254", "127.0.0.1")}, "169.254.169.254", ""},
		"mapped, refused":         {[][]netip.Addr{addrs("::ffff:10.0.0.1", "127.0.0.1")}, "10.0.0.1", ""},
		"rebinding":               {[][]netip.Addr{addrs("127.0.0.1"), addrs("10.0.0.1")}, "10.0.0.1", "127.0.0.1"},
		"the first does not live": {[][]netip.Addr{addrs("127.0.0.2", "127.0.0.1")}, "", "127.0.0.1"},
		"zone":                    {[][]netip.Addr{addrs("fe80::1%lo")}, "", ""},
		"none":                    {[][]netip.Addr{nil}, "", ""},
		"too many":                {[][]netip.Addr{many()}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			resolver := &answers{sets: c.sets}
			d := &Direct{Resolver: resolver, Timeout: patience, Stagger: time.Millisecond}
			checked := map[netip.Addr]bool{}
			conn, err := d.Dial(t.Context(), host("name.lab"), port, nil, func(a netip.Addr) error {
				checked[a] = true
				if a.String() == c.refuse {
					return errRefused
				}
				return nil
			})
			if len(resolver.asked) != 1 || resolver.asked[0] != "name.lab." {
				t.Errorf("asked: %q", resolver.asked)
			}
			if c.want == "" {
				if err == nil {
					t.Errorf("connected to %s", conn.RemoteAddr())
					conn.Close()
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if at := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); at.String() != c.want || !checked[at] {
				t.Errorf("connected to %s, checked %v", at, checked)
			}
		})
	}
}

// TestDialFailed: a refused connection is a plain sentence inside, once in each text, and the record has the address.
func TestDialFailed(t *testing.T) {
	closed := listen(t)
	port := closed.Addr().(*net.TCPAddr).AddrPort().Port()
	closed.Close()
	d := &Direct{Timeout: patience}
	_, err := d.Dial(t.Context(), host("name.lab"), port, addrs("127.0.0.1"), func(netip.Addr) error { return nil })
	want := fmt.Sprintf("nothing listens on port %d of name.lab", port)
	if cove.ErrorCode(err) != cove.Unavailable || cove.ErrorMessage(err) != want ||
		!strings.Contains(err.Error(), "127.0.0.1:"+fmt.Sprint(port)) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%q, of %v", cove.ErrorMessage(err), err)
	}
	f := refusal{Error: "upstream", Host: "name.lab", Port: port, Reason: want}
	if got := f.text(); got != "Cove's gateway has no answer from the origin: "+want+"\n" {
		t.Errorf("%q", got)
	}
	f.Reason = "dial :0->127.0.0.1 <&>"
	if got := string(f.json()); strings.Count(got, f.Reason) != 3 {
		t.Errorf("%s", got)
	}
}

func many() (all []netip.Addr) {
	for i := range maxAddresses + 1 {
		all = append(all, netip.AddrFrom4([4]byte{127, 1, 0, byte(i)}))
	}
	return all
}

// TestUpstreamProxy: an upstream proxy can dial, with its password, and bytes that it sends at once are not lost.
func TestUpstreamProxy(t *testing.T) {
	ln := echoServer(t)
	var mu sync.Mutex
	var asked []string
	status := "200 OK"
	upstream := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
		answer := status
		mu.Unlock()
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		if !strings.HasPrefix(answer, "200") {
			io.WriteString(c, "HTTP/1.1 "+answer+"\r\nContent-Length: 0\r\n\r\n")
			return
		}
		origin, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return
		}
		defer origin.Close()
		greeting := make([]byte, len("220 ready\n"))
		io.ReadFull(origin, greeting)
		io.WriteString(c, "HTTP/1.1 "+answer+"\r\n\r\n"+string(greeting)) // in one piece
		go func() { io.Copy(origin, c); origin.(*net.TCPConn).CloseWrite() }()
		io.Copy(c, origin)
	})}
	at := listen(t)
	go upstream.Serve(at)
	t.Cleanup(func() { upstream.Close() })
	d := &Direct{Upstream: &url.URL{Scheme: "http", Host: at.Addr().String(), User: url.UserPassword("me", "pw")},
		Timeout: patience}
	never := func(a netip.Addr) error { t.Errorf("%s was checked", a); return nil }

	c, err := d.Dial(t.Context(), host("name.lab"), 25, nil, never)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "hello\n")
	closeWrite(c)
	if got, _ := io.ReadAll(c); string(got) != "220 ready\nhello\n6 bytes\n" {
		t.Errorf("%q", got)
	}
	c.Close()
	if asked[0] != "CONNECT name.lab:25 Basic bWU6cHc=" {
		t.Errorf("%q", asked)
	}
	mu.Lock()
	status = "407 Proxy Authentication Required"
	mu.Unlock()
	if _, err := d.Dial(t.Context(), host("name.lab"), 25, nil, never); err == nil ||
		!strings.Contains(err.Error(), "407") {
		t.Errorf("%v", err)
	}
	refused := errors.New("refused")
	if _, err := d.Dial(t.Context(), host("10.0.0.1"), 25, nil, func(netip.Addr) error {
		return refused
	}); !errors.Is(err, refused) {
		t.Errorf("an address that policy refuses: %v", err)
	}
}

// TestRebinding: through the whole proxy, a name with a private address is not reached, and the answer gives the
// reason.
func TestRebinding(t *testing.T) {
	l := newLab(t)
	for name, address := range map[string]string{"loop.lab": "127.0.0.1", "meta.lab": "169.254.169.254",
		"ten.lab": "10.0.0.1", "v6.lab": "::1", "nat64.lab": "64:ff9b::7f00:1", "ula.lab": "fd00:ec2::254"} {
		l.permit(name)
		l.at(name, "203.0.113.1", address)
		for _, scheme := range []string{"http", "https"} {
			res, body := get(t, l.client(), scheme+"://"+name+"/")
			if res.StatusCode != 403 || !strings.Contains(body, `"reserved"`) {
				t.Errorf("%s: %s %s", name, res.Status, body)
			}
		}
	}
	if d := l.dials(); len(d) > 0 {
		t.Errorf("%v were dialled", d)
	}
}
