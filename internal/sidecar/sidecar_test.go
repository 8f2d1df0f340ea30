package sidecar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	somewhere = netip.MustParseAddrPort("192.0.2.1:443")
	client    = netip.MustParseAddrPort("[::1]:5353")
)

// tcp is a connection as a peer.
type tcp struct{ *net.TCPConn }

func (c tcp) Break() { c.SetLinger(0); c.Close() }

// connected returns both ends of a connection.
func connected(t testing.TB) (a, b tcp) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	for _, c := range []net.Conn{c, d} {
		c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return tcp{c.(*net.TCPConn)}, tcp{d.(*net.TCPConn)}
}

// host is a host whose streams are handed to a test.
type host struct {
	t       testing.TB
	opened  chan opened
	packets chan []byte
}

type opened struct {
	index int
	to    netip.AddrPort
	conn  tcp
}

func (h *host) Open(index int, to netip.AddrPort) (Peer, error) {
	if index == 1 {
		return nil, errors.New("nothing is there")
	}
	own, theirs := connected(h.t)
	h.opened <- opened{index, to, theirs}
	return own, nil
}

func (h *host) Packet(index int, from netip.AddrPort, p []byte) {
	h.packets <- append([]byte{byte(index)}, p...)
}

// pair returns both ends of a session, which are served.
func pair(t *testing.T, answer func(int, netip.AddrPort, []byte)) (in, out *Session, h *host) {
	t.Helper()
	a, b := connected(t)
	a.SetDeadline(time.Time{})
	b.SetDeadline(time.Time{})
	h = &host{t: t, opened: make(chan opened, 8), packets: make(chan []byte, 8)}
	begun := make(chan error, 1)
	go func() {
		var err error
		in, err = Inside(a, func(s Setup) error {
			if string(s.Routes) != "routes" || len(s.Sockets) != 2 || s.Sockets[1].Address != "[::1]:2" {
				t.Errorf("the setup is %+v", s)
			}
			return nil
		})
		begun <- err
	}()
	out, err := Outside(b, Setup{Routes: []byte("routes"),
		Sockets: []Socket{{"tcp4", "127.0.0.1:1"}, {"tcp6", "[::1]:2"}}})
	if err := errors.Join(err, <-begun); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { out.Serve(h, 2) })
	serving.Go(func() { in.ServeInside(answer) })
	t.Cleanup(func() { in.Close(); out.Close(); serving.Wait() })
	return in, out, h
}

// TestCarried: bytes in both directions, more than a window of them, and each direction's own end.
func TestCarried(t *testing.T) {
	in, _, h := pair(t, nil)
	program, accepted := connected(t)
	go in.Carry(0, somewhere, accepted)
	o := <-h.opened
	if o.index != 0 || o.to != somewhere {
		t.Fatalf("opened %d to %s", o.index, o.to)
	}
	much := bytes.Repeat([]byte("0123456789abcdef"), 5*Window/16)
	for _, way := range [][2]tcp{{program, o.conn}, {o.conn, program}} {
		go func() {
			way[0].Write(much)
			way[0].CloseWrite()
		}()
		if got, err := io.ReadAll(way[1]); err != nil || !bytes.Equal(got, much) {
			t.Errorf("%d bytes of %d, %v", len(got), len(much), err)
		}
	}
}

// TestBroken: who breaks off has the other see an error, and not an end.
func TestBroken(t *testing.T) {
	in, out, h := pair(t, nil)
	for _, c := range []struct {
		name  string
		index int
		from  func(program tcp, o func() tcp) tcp // breaks one off, and returns the other
	}{
		{"by the host", 0, func(program tcp, o func() tcp) tcp { o().Break(); return program }},
		{"by the program", 0, func(program tcp, o func() tcp) tcp { other := o(); program.Break(); return other }},
		{"since nothing is there", 1, func(program tcp, o func() tcp) tcp { return program }},
		{"by the end of the session", 0, func(program tcp, o func() tcp) tcp { o(); out.Close(); return program }},
	} {
		program, accepted := connected(t)
		go in.Carry(c.index, somewhere, accepted)
		other := c.from(program, func() tcp { return (<-h.opened).conn })
		if n, err := other.Read(make([]byte, 1)); n > 0 || err == nil || err == io.EOF && c.name != "by the program" {
			t.Errorf("%s: %d bytes, %v", c.name, n, err)
		}
	}
}

// TestManyAtOnce: streams that are opened at the same time leave the session as it was.
func TestManyAtOnce(t *testing.T) {
	in, _, h := pair(t, nil)
	var opening sync.WaitGroup
	for range 16 {
		opening.Go(func() {
			for range 500 {
				in.Carry(1, somewhere, &silent{broken: make(chan struct{})})
			}
		})
	}
	opening.Wait()
	_, accepted := connected(t)
	go in.Carry(0, somewhere, accepted)
	select {
	case <-h.opened:
	case <-time.After(20 * time.Second):
		t.Fatal("no stream is opened any more")
	}
}

func TestPackets(t *testing.T) {
	answered := make(chan string, 1)
	in, out, h := pair(t, func(index int, to netip.AddrPort, p []byte) {
		answered <- strings.Join([]string{string(rune('0' + index)), to.String(), string(p)}, " ")
	})
	if err := in.SendPacket(1, client, []byte("who?")); err != nil {
		t.Fatal(err)
	}
	if p := <-h.packets; string(p) != "\x01who?" {
		t.Errorf("it was asked %q", p)
	}
	out.SendPacket(1, client, make([]byte, MaxDatagram+1)) // is lost
	out.SendPacket(1, client, []byte("me"))
	if a := <-answered; a != "1 [::1]:5353 me" {
		t.Errorf("it was answered %q", a)
	}
}

// TestFailure: the host hears in words why a sidecar cannot do its work.
func TestFailure(t *testing.T) {
	a, b := connected(t)
	go func() {
		Inside(a, func(Setup) error { return errors.New("no " + strings.Repeat("x", 2*maxReason)) })
		a.Close()
	}()
	_, err := Outside(b, Setup{})
	if f, ok := errors.AsType[*Failure](err); !ok || !strings.HasPrefix(f.Reason, "no xxx") {
		t.Errorf("%v", err)
	}
}

func frameOf(k kind, id uint32, payload ...byte) []byte {
	p := binary.BigEndian.AppendUint32([]byte{byte(k)}, id)
	return append(binary.BigEndian.AppendUint16(p, uint16(len(payload))), payload...)
}

func openFrame(id uint32, index byte) []byte {
	return frameOf(kindOpen, id, appendAddress([]byte{index}, somewhere)...)
}

// TestRules: a sidecar that breaks a rule is not listened to any more.
func TestRules(t *testing.T) {
	open := openFrame(1, 0)
	full := bytes.Repeat(frameOf(kindData, 1, make([]byte, maxData)...), Window/maxData)
	for name, sent := range map[string][]byte{
		"a kind that is not known":      frameOf(99, 1),
		"a setup":                       frameOf(kindSetup, 0, '{', '}'),
		"ready once more":               frameOf(kindReady, 0),
		"data that is too long":         append(bytes.Clone(open), frameOf(kindData, 1, make([]byte, maxData+1)...)...),
		"data of no stream":             frameOf(kindData, 1, 'x'),
		"a stream to no socket":         openFrame(1, 2),
		"a stream to nowhere":           frameOf(kindOpen, 1, 0, 1),
		"a stream that is open already": append(bytes.Clone(open), open...),
		"a packet for no socket":        frameOf(kindPacket, 2, appendAddress(nil, client)...),
		"half a packet":                 frameOf(kindPacket, 0, 1, 2),
		"more than the window":          append(append(bytes.Clone(open), full...), frameOf(kindData, 1, 'x')...),
		"data after the end":            slices.Concat(open, frameOf(kindEnd, 1), frameOf(kindData, 1, 'x')),
		"credit for more than a window": append(bytes.Clone(open), frameOf(kindCredit, 1, 0, 0, 0, 1)...),
		"credit of three bytes":         append(bytes.Clone(open), frameOf(kindCredit, 1, 0, 0, 1)...),
		"too many streams":              streams(2*MaxStreams + 1),
	} {
		t.Run(name, func(t *testing.T) {
			if err := serve(t, sent, &stuck{}); !errors.Is(err, errFrame) {
				t.Errorf("%v", err)
			}
		})
	}
}

func streams(n int) (all []byte) {
	for id := range n {
		all = append(all, openFrame(uint32(id+1), 0)...)
	}
	return all
}

// stuck is a host whose connections neither take nor say anything.
type stuck struct{}

func (*stuck) Open(int, netip.AddrPort) (Peer, error) {
	return &silent{broken: make(chan struct{})}, nil
}
func (*stuck) Packet(int, netip.AddrPort, []byte) {}

type silent struct {
	once   sync.Once
	broken chan struct{}
}

func (s *silent) Read([]byte) (int, error)  { <-s.broken; return 0, io.ErrClosedPipe }
func (s *silent) Write([]byte) (int, error) { <-s.broken; return 0, io.ErrClosedPipe }
func (s *silent) CloseWrite() error         { return nil }
func (s *silent) Break()                    { s.once.Do(func() { close(s.broken) }) }
func (s *silent) Close() error              { s.Break(); return nil }

// serve has the host's end read what a sidecar sends, and says how the session has ended.
func serve(t testing.TB, sent []byte, h Host) error {
	conn := &script{Reader: bytes.NewReader(append(frameOf(kindReady, 0), sent...))}
	s, err := Outside(conn, Setup{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Serve(h, 2)
}

// script says what it was given, and takes everything.
type script struct{ *bytes.Reader }

func (*script) Write(p []byte) (int, error) { return len(p), nil }
func (*script) Close() error                { return nil }

// FuzzHost: whatever a sidecar sends, the session ends, and every stream with it.
func FuzzHost(f *testing.F) {
	f.Add(append(openFrame(1, 0), frameOf(kindData, 1, 'x')...))
	f.Add(append(openFrame(3, 1), frameOf(kindEnd, 3)...))
	f.Add(append(openFrame(1, 0), frameOf(kindBreak, 1)...))
	f.Add(append(openFrame(1, 0), frameOf(kindCredit, 1, 0, 0, 0, 0)...))
	f.Add(frameOf(kindPacket, 1, append(appendAddress(nil, client), 'q')...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if err := serve(t, sent, &stuck{}); err == nil {
			t.Error("the session ended without an error")
		}
	})
}

// FuzzSidecar: the same of what the host sends.
func FuzzSidecar(f *testing.F) {
	f.Add([]byte(`{"Routes":"AAAA","Sockets":[{"Network":"tcp4"}]}`),
		frameOf(kindPacket, 1, appendAddress(nil, client)...))
	f.Add([]byte(`{}`), frameOf(kindBreak, 1))
	f.Fuzz(func(t *testing.T, setup, sent []byte) {
		conn := &script{bytes.NewReader(append(frameOf(kindSetup, 0, setup[:min(len(setup), MaxPayload)]...), sent...))}
		s, err := Inside(conn, func(Setup) error { return nil })
		if err != nil {
			return
		}
		done := make(chan struct{})
		c := &silent{broken: make(chan struct{})}
		go func() { defer close(done); s.Carry(0, somewhere, c) }()
		if err := s.ServeInside(func(int, netip.AddrPort, []byte) {}); err == nil {
			t.Error("the session ended without an error")
		}
		<-done
	})
}
