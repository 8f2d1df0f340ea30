package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// echoServer speaks first, echoes until the client half-closes, and then sends the count of bytes.
func echoServer(t testing.TB) net.Listener {
	ln := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				io.WriteString(c, "220 ready\n")
				n, _ := io.Copy(c, c)
				fmt.Fprintf(c, "%d bytes\n", n)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	return ln
}

// passThrough allows one host without interception.
func (l *lab) passThrough(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decide = func(r policy.Request) policy.Verdict {
		if r.Host.String() == name {
			return policy.Verdict{Action: policy.Allow, Rule: "pass", PassThrough: true}
		}
		return policy.Verdict{Rule: "default", Reason: "no rule"}
	}
}

// TestPassThrough: where a rule says so, bytes pass unchanged in both directions, each direction ends separately, and
// either side may speak first.
func TestPassThrough(t *testing.T) {
	l := newLab(t, func(o *Options) { o.Timeouts.Silence = 50 * time.Millisecond })
	l.passThrough("tcp.lab")
	l.at("tcp.lab", "203.0.113.5")
	l.route("203.0.113.5:2525", echoServer(t))
	l.pinned[netip.MustParseAddr("203.0.113.5")] = host("tcp.lab")
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for way, enter := range map[string]func() *wire{
		"transparent": func() *wire { return dialWire(t, l.transparent("203.0.113.5:2525")) },
		"connect":     func() *wire { return l.connect(t, "tcp.lab:2525") },
		"socks":       func() *wire { return l.socks(t, "tcp.lab", 2525) },
	} {
		for _, greeted := range []bool{true, false} {
			t.Run(fmt.Sprint(way, ", client waits: ", greeted), func(t *testing.T) {
				w := enter()
				if greeted {
					if line, err := w.r.ReadString('\n'); line != "220 ready\n" {
						t.Fatalf("%q %v", line, err)
					}
				}
				go func() {
					w.Conn.Write(large)
					w.Conn.(*net.TCPConn).CloseWrite()
				}()
				got := w.rest()
				want := string(large) + fmt.Sprintf("%d bytes\n", len(large))
				if !greeted {
					want = "220 ready\n" + want
				}
				if got != want {
					t.Errorf("%d bytes, want %d", len(got), len(want))
				}
			})
		}
	}
	e := l.event(func(e Event) bool { return e.Sent == int64(len(large)) })
	if e.Problem != "" || e.Received < e.Sent || !e.Verdict.PassThrough || e.Request.Host.String() != "tcp.lab" {
		t.Errorf("%+v", e)
	}
}

// TestNeighbour: a connection to a neighbour is joined at once, whoever speaks first and whatever name a TLS client
// states.
func TestNeighbour(t *testing.T) {
	l := newLab(t, func(o *Options) { o.Timeouts.Silence, o.Timeouts.Hello = time.Hour, time.Hour })
	l.decide = func(r policy.Request) policy.Verdict {
		if r.Host.String() == "db" {
			return policy.Verdict{Action: policy.Allow, Rule: "service db", PassThrough: true, Neighbour: true}
		}
		return policy.Verdict{Rule: "default", Reason: "no rule"}
	}
	l.at("db", "203.0.113.5")
	l.route("203.0.113.5:2525", echoServer(t))
	l.pinned[netip.MustParseAddr("203.0.113.5")] = host("db")
	for way, w := range map[string]*wire{"transparent": dialWire(t, l.transparent("203.0.113.5:2525")),
		"connect": l.connect(t, "db:2525"), "socks": l.socks(t, "db", 2525)} {
		if line, err := w.r.ReadString('\n'); line != "220 ready\n" {
			t.Errorf("%s: %q %v", way, line, err)
		}
		w.Conn.Close()
	}
}

// TestPassThroughIsAdmitted: a passed-through connection goes through the stages as a request does, and the stages
// learn its outcome.
func TestPassThroughIsAdmitted(t *testing.T) {
	l := newLab(t, func(o *Options) { o.Timeouts.Silence = 50 * time.Millisecond })
	l.passThrough("tcp.lab")
	l.at("tcp.lab", "203.0.113.5")
	l.route("203.0.113.5:2525", echoServer(t))
	var refuse error
	l.pass = func(r policy.Request) error {
		if r.Layer != policy.LayerConnect || r.Host != host("tcp.lab") || r.Port == 0 {
			t.Errorf("admitted: %+v", r)
		}
		return refuse
	}
	if line, err := l.connect(t, "tcp.lab:2525").r.ReadString('\n'); line != "220 ready\n" {
		t.Fatalf("%q %v", line, err)
	}
	if ends := l.ended(); len(ends) != 1 || ends[0] != nil {
		t.Errorf("it ended with %v", ends)
	}
	l.connect(t, "tcp.lab:2526").rest() // no listener there
	if ends := l.ended(); len(ends) != 1 || ends[0] == nil || errors.Is(ends[0], ErrUnfinished) {
		t.Errorf("without an origin: %v", ends)
	}
	dials := len(l.dials())
	refuse = At(decision.StageBreaker, &Refusal{Code: cove.Unavailable, Rule: "breaker", Reason: "it is left alone"})
	if got := l.connect(t, "tcp.lab:2525").rest(); got != "" {
		t.Errorf("refused: %q", got)
	}
	e := l.event(func(e Event) bool { return e.Stage == decision.StageBreaker })
	if e.Verdict.Action != policy.Deny || e.Verdict.Rule != "breaker" || e.Request.Host != host("tcp.lab") {
		t.Errorf("recorded as %+v", e)
	}
	if len(l.dials()) != dials || len(l.ended()) > 0 {
		t.Error("what is refused was dialled")
	}
}

// TestPassThroughTLS: the handshake is the origin's own, and it must name the judged host, even when it comes late.
func TestPassThroughTLS(t *testing.T) {
	l := newLab(t, func(o *Options) { o.Timeouts.Silence = time.Millisecond })
	l.passThrough("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	l.pinned[netip.MustParseAddr("203.0.113.1")] = host("allowed.lab")
	at := l.transparent("203.0.113.1:443")
	origins := func(c *http.Transport) { c.TLSClientConfig = &tls.Config{RootCAs: l.world.pool} }
	for _, c := range []*http.Client{l.client(origins), l.client(to(at), origins)} {
		if _, body := get(t, c, "https://allowed.lab/"); !strings.Contains(body, "https://allowed.lab/") {
			t.Error(body)
		}
	}
	before := len(o.seen())
	for name, late := range map[string]bool{"other.lab": false, "other.lab.": false, "": true, "evil.lab": true} {
		for _, enter := range []func() *wire{func() *wire {
			return dialWire(t, at)
		}, func() *wire { return l.connect(t, "allowed.lab:443") }} {
			n := len(l.dials())
			w := enter()
			if late {
				l.until("a dial without a look", func() bool { return len(l.dialled) > n })
			}
			if got := rawSNI(w, name); got == "hello" && name != "other.lab" {
				t.Errorf("SNI %q (late: %v): %s", name, late, got)
			}
		}
	}
	w := l.connect(t, "allowed.lab:443")
	if got := rawHello(w, withECH(realHello("allowed.lab"))); got == "hello" {
		t.Error("an encrypted name was passed through")
	}
	if n := len(o.seen()); n != before {
		t.Errorf("the origin saw %d requests", n-before)
	}
}

// withECH adds an ECH extension to a ClientHello.
func withECH(record []byte) []byte {
	out := bytes.Clone(record[5:])
	// outer, HKDF-SHA256, AES-128-GCM, configuration 42, a key and a payload
	body := "\x00\x00\x01\x00\x01\x42\x00\x20" + strings.Repeat("k", 32) + "\x00\x90" + strings.Repeat("p", 144)
	extension := binary.BigEndian.AppendUint16(nil, extensionECH)
	extension = append(binary.BigEndian.AppendUint16(extension, uint16(len(body))), body...)
	p := extensionsAt(out)
	binary.BigEndian.PutUint16(out[p:], binary.BigEndian.Uint16(out[p:])+uint16(len(extension)))
	out = append(out[:p+2], append(extension, out[p+2:]...)...)
	binary.BigEndian.PutUint16(out[2:], binary.BigEndian.Uint16(out[2:])+uint16(len(extension)))
	head := []byte{22, 3, 1, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(out)))
	return append(head, out...)
}

// TestHandshakes: a TLS handshake that is invalid or for no permitted host ends there; no blind tunnel replaces it.
func TestHandshakes(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	l.early = func(policy.Request) bool { return false } // a handshake alone leads to no connection
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	l.pinned[netip.MustParseAddr("203.0.113.1")] = host("allowed.lab")
	at := l.transparent("203.0.113.1:443")
	enters := map[string]func() *wire{
		"transparent": func() *wire { return dialWire(t, at) },
		"connect":     func() *wire { return l.connect(t, "allowed.lab:443") },
	}
	hello := realHello("allowed.lab")
	oversized := bytes.Clone(hello)
	binary.BigEndian.PutUint16(oversized[3:], 0xffff)
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"a name":  {hello, "hello"},
		"greased": {withECH(hello), "hello"}, // intercepted: nothing inside can leave
		"TLS 1.0": {[]byte("\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x01" + strings.Repeat("r", 32) +
			"\x00\x00\x02\x00\x2f\x01\x00"), ""},
		"SSH":             {[]byte("SSH-2.0-OpenSSH_9.2\r\n"), ""},
		"SMTP":            {[]byte("EHLO x\r\n"), ""},
		"zeros":           {make([]byte, 100), ""},
		"alert":           {[]byte("\x15\x03\x01\x00\x02\x02\x00"), ""},
		"oversized":       {append(oversized, make([]byte, 1<<16)...), ""},
		"not a hello":     {[]byte("\x16\x03\x01\x00\x04\x02\x00\x00\x00"), ""},
		"empty records":   {bytes.Repeat([]byte("\x16\x03\x01\x00\x00"), 1000), ""},
		"SSLv2":           {[]byte("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + strings.Repeat("x", 36)), ""},
		"prior knowledge": {[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ""},
	} {
		for way, enter := range enters {
			if got := rawHello(enter(), c.bytes); (got == "hello") != (c.want == "hello") {
				t.Errorf("%s, %s: %s", way, name, got)
			}
		}
	}
	if got := rawHello(enters["connect"](), withoutSNI(hello)); got != "150303" {
		t.Errorf("no name, where one is wanted: %s", got)
	}
	// Without a name the connection is for the address, which no rule allows.
	noName := mustSecure(t, enters["transparent"](), &tls.Config{RootCAs: l.inside.pool, ServerName: "203.0.113.1"})
	if res, body := noName.send("GET / HTTP/1.1\r\nHost: 203.0.113.1\r\n\r\n").response("GET"); res.StatusCode != 403 {
		t.Errorf("no name: %s %s", res.Status, body)
	}
	for way, enter := range enters {
		w := enter()
		for _, b := range fragmented(hello) {
			w.Conn.Write([]byte{b})
		}
		first := make([]byte, 1)
		if io.ReadFull(w.r, first); first[0] != 22 {
			t.Errorf("%s, byte by byte in records of one byte: %x", way, first)
		}
	}
	if n := len(o.seen()) + len(l.dials()); n > 0 {
		t.Errorf("%d dials and requests", n)
	}
}

// fragmented puts every byte of a handshake into its own record.
func fragmented(record []byte) (out []byte) {
	for _, b := range record[5:] {
		out = append(out, 22, 3, 1, 0, 1, b)
	}
	return out
}

func extensionsAt(hello []byte) int {
	p := 4 + 2 + 32
	p += 1 + int(hello[p])
	p += 2 + int(binary.BigEndian.Uint16(hello[p:]))
	return p + 1 + int(hello[p])
}

// withoutSNI replaces the extension's type by an unknown one.
func withoutSNI(record []byte) []byte {
	out := bytes.Clone(record)
	at := bytes.Index(out, []byte("allowed.lab"))
	out[at-9], out[at-8] = 0xfa, 0xfa
	return out
}

func rawHello(w *wire, bytes []byte) string {
	defer w.Close()
	w.Conn.Write(bytes)
	if half, ok := w.Conn.(*net.TCPConn); ok {
		half.CloseWrite()
	}
	b := make([]byte, 3)
	if n, _ := io.ReadFull(w.r, b); n < 3 {
		return "closed"
	}
	if b[0] == 22 {
		return "hello"
	}
	return fmt.Sprintf("%x", b)
}

// TestUnverifiedOrigins: an origin without a valid certificate for its name receives nothing.
func TestUnverifiedOrigins(t *testing.T) {
	l := newLab(t)
	stranger := newAuthority(t, "stranger")
	now := time.Now()
	for name, leaf := range map[string]*tls.Certificate{
		"expired.lab": l.world.leaf(t, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour)
		}, "expired.lab"),
		"future.lab": l.world.leaf(t, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour)
		}, "future.lab"),
		"stranger.lab":  stranger.leaf(t, nil, "stranger.lab"),
		"othername.lab": l.world.leaf(t, nil, "another.lab"),
		"noname.lab":    l.world.leaf(t, nil),
		"wild.sub.lab":  l.world.leaf(t, nil, "*.lab"),
		"client.lab": l.world.leaf(t, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}, "client.lab"),
		"inside.lab": l.inside.leaf(t, nil, "inside.lab"), // the sandbox's own authority is not trusted for origins
		"cn.lab":     l.world.leaf(t, func(c *x509.Certificate) { c.Subject.CommonName = "cn.lab" }),
	} {
		o := l.serveWith(name, "203.0.113.3", &tls.Config{
			Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"h2", "http/1.1"},
		})
		l.permit(name)
		res, body := get(t, l.client(), "https://"+name+"/")
		if res.StatusCode != 502 || !strings.Contains(body, `"upstream"`) {
			t.Errorf("%s: %s %s", name, res.Status, body)
		}
		if len(o.seen()) > 0 {
			t.Errorf("%s saw the request", name)
		}
	}
	old := l.serveWith("old.lab", "203.0.113.4", &tls.Config{
		Certificates: []tls.Certificate{*l.world.leaf(t, nil, "old.lab")}, MaxVersion: tls.VersionTLS11,
		MinVersion: tls.VersionTLS10,
	})
	l.permit("old.lab")
	if res, _ := get(t, l.client(), "https://old.lab/"); res.StatusCode != 502 || len(old.seen()) > 0 {
		t.Errorf("TLS 1.1: %s", res.Status)
	}
}

// socks opens a tunnel by name or address.
func (l *lab) socks(t testing.TB, name string, port uint16) *wire {
	t.Helper()
	w := dialWire(t, l.explicit)
	w.send("\x05\x02\x00\x02")
	var request []byte
	if a, err := netip.ParseAddr(name); err == nil {
		request = append([]byte{5, 1, 0, map[bool]byte{true: 1, false: 4}[a.Is4()]}, a.AsSlice()...)
	} else {
		request = append([]byte{5, 1, 0, 3, byte(len(name))}, name...)
	}
	w.send(string(binary.BigEndian.AppendUint16(request, port)))
	answer := make([]byte, 12)
	if _, err := io.ReadFull(w.r, answer); err != nil || answer[3] != 0 {
		t.Fatalf("SOCKS %s: %x %v", name, answer, err)
	}
	return w
}

func TestSOCKS(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab", "203.0.113.7", "2001:db8::7")
	l.serve("allowed.lab", "203.0.113.1", nil)
	l.serve("203.0.113.7", "203.0.113.7", nil)
	l.serve("2001:db8::7", "2001:db8::7", nil)
	for _, name := range []string{"allowed.lab", "203.0.113.7", "2001:db8::7"} {
		w := mustSecure(t, l.socks(t, name, 443), l.trust(name))
		authority := name
		if strings.Contains(name, ":") {
			authority = "[" + name + "]"
		}
		if res, body := w.send("GET / HTTP/1.1\r\nHost: " + authority + "\r\n\r\n").response("GET"); res.StatusCode != 200 ||
			!strings.Contains(body, authority) {
			t.Errorf("%s: %s %s", name, res.Status, body)
		}
	}
	before := len(l.dials())
	for name, c := range map[string]struct{ bytes, want string }{
		"denied name":    {"\x05\x01\x00\x05\x01\x00\x03\x0aevil00.lab\x00\x16", "\x05\x00\x05\x02"},
		"denied address": {"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x01\xbb", "\x05\x00\x05\x02"},
		"mapped address": {"\x05\x01\x00\x05\x01\x00\x04" + strings.Repeat("\x00", 10) +
			"\xff\xff\x7f\x00\x00\x01\x01\xbb", "\x05\x00\x05\x02"},
		"name with NUL":          {"\x05\x01\x00\x05\x01\x00\x03\x14evil.lab\x00allowed.lab\x01\xbb", "\x05\x00\x05\x01"},
		"empty name":             {"\x05\x01\x00\x05\x01\x00\x03\x00\x01\xbb", "\x05\x00\x05\x01"},
		"port 0":                 {"\x05\x01\x00\x05\x01\x00\x03\x0ballowed.lab\x00\x00", "\x05\x00\x05\x01"},
		"BIND":                   {"\x05\x01\x00\x05\x02\x00\x03\x0ballowed.lab\x01\xbb", "\x05\x00\x05\x07"},
		"UDP ASSOCIATE":          {"\x05\x01\x00\x05\x03\x00\x03\x0ballowed.lab\x01\xbb", "\x05\x00\x05\x07"},
		"unknown command":        {"\x05\x01\x00\x05\x09\x00\x03\x0ballowed.lab\x01\xbb", "\x05\x00\x05\x07"},
		"unknown address":        {"\x05\x01\x00\x05\x01\x00\x02\x0ballowed.lab\x01\xbb", "\x05\x00\x05\x08"},
		"reserved byte":          {"\x05\x01\x00\x05\x01\x01\x03\x0ballowed.lab\x01\xbb", "\x05\x00\x05\x01"},
		"password only":          {"\x05\x01\x02", "\x05\xff"},
		"no method":              {"\x05\x00", "\x05\xff"},
		"SOCKS4":                 {"\x04\x01\x01\xbb\xcb\x00\x71\x07x\x00", "\x00\x5b"},
		"SOCKS4a":                {"\x04\x01\x01\xbb\x00\x00\x00\x01x\x00allowed.lab\x00", "\x00\x5b"},
		"other version in the 2": {"\x05\x01\x00\x04\x01\x00\x03\x0ballowed.lab\x01\xbb", "\x05\x00\x05\x01"},
		"half a request":         {"\x05\x01\x00\x05\x01\x00\x03\xffallowed.lab", "\x05\x00"},
	} {
		w := dialWire(t, l.explicit).send(c.bytes)
		w.Conn.(*net.TCPConn).CloseWrite()
		if got := w.rest(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %x, want %x", name, got, c.want)
		}
	}
	if n := len(l.dials()) - before; n > 0 {
		t.Errorf("%d dials", n)
	}
}

func FuzzSOCKS(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x0ballowed.lab\x01\xbb"))
	f.Add([]byte("\x05\x02\x00\x02\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x04" + strings.Repeat("\xff", 16) + "\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var said bytes.Buffer
		in := bytes.NewReader(b)
		rt, reply := readSOCKS(struct {
			io.Reader
			io.Writer
		}{in, &said})
		if rt == nil {
			return
		}
		if reply != nil || rt.port == 0 || rt.host.IsZero() == !rt.addr.IsValid() {
			t.Fatalf("%+v %x", rt, reply)
		}
		// Encoded again, it reads the same.
		if name := rt.host.Name(); name != "" {
			if again, err := policy.ParseHost(name); err != nil || again != rt.host {
				t.Fatalf("%q: %v", name, err)
			}
		}
	})
}

// FuzzPeek: detection does not depend on how the first bytes are split, and all of them can be read afterwards.
func FuzzPeek(f *testing.F) {
	f.Add(realHello("allowed.lab"), uint8(1))
	f.Add(fragmented(realHello("allowed.lab")), uint8(9))
	f.Add(withECH(realHello("allowed.lab")), uint8(200))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint8(2))
	f.Add([]byte("SSH-2.0-x\r\n"), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		whole, helloWhole, _ := peekPieces(b, len(b)+1)
		parts, helloParts, rest := peekPieces(b, int(piece)+1)
		if whole != parts {
			t.Fatalf("whole %v, in parts %v", whole, parts)
		}
		if helloWhole != nil && (*helloWhole != *helloParts) {
			t.Fatalf("whole %+v, in parts %+v", helloWhole, helloParts)
		}
		if !bytes.Equal(rest, b) {
			t.Fatalf("%d bytes of %d are left", len(rest), len(b))
		}
	})
}

func peekPieces(b []byte, piece int) (protocol, *hello, []byte) {
	c := &conn{Conn: &pieces{b: b, size: piece}}
	p, h := peek(c, time.Hour)
	rest, _ := io.ReadAll(c)
	return p, h, rest
}

// pieces is a connection that returns its bytes in small pieces.
type pieces struct {
	net.Conn
	b    []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.b)
	p.b = p.b[n:]
	return n, nil
}

func (p *pieces) SetReadDeadline(time.Time) error { return nil }
func (p *pieces) LocalAddr() net.Addr             { return &net.TCPAddr{} }
func (p *pieces) RemoteAddr() net.Addr            { return &net.TCPAddr{} }

// TestOtherProtocols: protocols other than HTTP and TLS are refused unless a rule passes them through. The refusal says
// so, except for a broken handshake.
func TestOtherProtocols(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	l := newLab(t, func(o *Options) { o.Timeouts.Hello = 3 * time.Second })
	l.decide = func(policy.Request) policy.Verdict {
		return policy.Verdict{Action: policy.Allow, Rule: "web", Passable: true}
	}
	for name, c := range map[string]struct {
		sent     string
		passable bool
	}{
		"ssh.lab":    {"SSH-2.0-OpenSSH_9.2\r\n", true},
		"silent.lab": {"", true},
		"broken.lab": {"\x16\x03\x01\x00\x04\x02\x00\x00\x00", false},
	} {
		if got := l.connect(t, name+":22").send(c.sent).rest(); got != "" {
			t.Errorf("%s: %q", name, got)
		}
		e := l.event(func(e Event) bool { return e.Request.Host.String() == name })
		if e.Verdict.Action != policy.Deny || e.Verdict.Passable != c.passable || e.Problem == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if n := len(l.dials()); n > 0 {
		t.Errorf("%d dials", n)
	}
}
