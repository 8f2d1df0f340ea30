package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawHTTP2 is a connection on which a test writes single frames.
type rawHTTP2 struct {
	*http2.Framer
	net.Conn
	block   bytes.Buffer
	encoder *hpack.Encoder
	buffer  bytes.Buffer // frames not yet sent
}

func (l *lab) rawHTTP2(t *testing.T, at, name string) *rawHTTP2 {
	t.Helper()
	c := mustSecure(t, dialWire(t, at), l.trust(name, "h2"))
	c.SetDeadline(time.Now().Add(2 * patience))
	h := &rawHTTP2{Conn: c.Conn}
	h.Framer = http2.NewFramer(&h.buffer, c.Conn)
	h.AllowIllegalWrites = true
	h.encoder = hpack.NewEncoder(&h.block)
	h.buffer.WriteString(http2.ClientPreface)
	h.WriteSettings()
	return h
}

// head encodes the head of a request with further fields.
func (h *rawHTTP2) head(name string, more ...hpack.HeaderField) []byte {
	h.block.Reset()
	for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: name}, {Name: ":path", Value: "/"}}, more...) {
		h.encoder.WriteField(f)
	}
	return h.block.Bytes()
}

// flush sends the written frames once there are at least atLeast bytes.
func (h *rawHTTP2) flush(atLeast int) error {
	if h.buffer.Len() < atLeast {
		return nil
	}
	_, err := h.Conn.Write(h.buffer.Bytes())
	h.buffer.Reset()
	return err
}

// heap returns the bytes in use after garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestHTTP2Abuse: abuse of the protocol by one sandbox costs the gateway little memory, ends the connection where it
// serves no purpose, and does not affect another sandbox.
func TestHTTP2Abuse(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	const plenty = 1_000_000 // frames, unless there is a reason for fewer
	open := http2.HeadersFrameParam{EndHeaders: true, EndStream: true}
	for _, c := range []struct {
		name string
		deaf bool // does not read what comes back
		ends bool // the gateway closes the connection; for streams it may, if it cannot keep up
		n    int  // frames at most
		step func(h *rawHTTP2, i int)
	}{
		{"rapid reset", false, false, 50_000, func(h *rawHTTP2, i int) {
			p := open
			p.StreamID, p.BlockFragment = uint32(2*i+1), h.head("allowed.lab")
			h.WriteHeaders(p)
			h.WriteRSTStream(p.StreamID, http2.ErrCodeCancel)
		}},
		{"rapid reset, deaf", true, false, 100_000, func(h *rawHTTP2, i int) {
			p := open
			p.StreamID, p.BlockFragment = uint32(2*i+1), h.head("allowed.lab")
			h.WriteHeaders(p)
			h.WriteRSTStream(p.StreamID, http2.ErrCodeCancel)
		}},
		{"reset by an error of one's own", false, false, 50_000, func(h *rawHTTP2, i int) { // MadeYouReset
			p := open
			p.StreamID, p.BlockFragment = uint32(2*i+1), h.head("allowed.lab")
			h.WriteHeaders(p)
			h.WriteWindowUpdate(p.StreamID, 0)
		}},
		{"CONTINUATION", false, true, plenty, func(h *rawHTTP2, i int) {
			if i == 0 {
				h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.head("allowed.lab")})
			}
			h.WriteContinuation(1, false, h.head("allowed.lab",
				hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: strings.Repeat("y", 1000)}))
		}},
		{"empty CONTINUATION", false, true, plenty, func(h *rawHTTP2, i int) {
			if i == 0 {
				h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.head("allowed.lab")})
			}
			h.WriteContinuation(1, false, nil)
		}},
		{"HPACK bomb", false, false, 3000, func(h *rawHTTP2, i int) {
			large := hpack.HeaderField{Name: "x-large", Value: strings.Repeat("z", 3000)} // one byte each, from the second on
			fields := make([]hpack.HeaderField, 1000)
			for j := range fields {
				fields[j] = large
			}
			p := open
			p.StreamID, p.BlockFragment = uint32(2*i+1), h.head("allowed.lab", fields...)
			h.WriteHeaders(p)
		}},
		{"PING", true, true, plenty, func(h *rawHTTP2, i int) { h.WritePing(false, [8]byte{byte(i)}) }},
		{"PING, heard", false, true, plenty, func(h *rawHTTP2, i int) { h.WritePing(false, [8]byte{byte(i)}) }},
		{"SETTINGS", true, true, plenty, func(h *rawHTTP2, i int) { h.WriteSettings() }},
		{"PRIORITY", true, true, plenty, func(h *rawHTTP2, i int) {
			h.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: uint32(2*i + 3), Weight: byte(i)})
		}},
		{"empty DATA", false, true, plenty, func(h *rawHTTP2, i int) {
			if i == 0 {
				p := open
				p.EndStream, p.StreamID, p.BlockFragment = false, 1, h.head("allowed.lab")
				h.WriteHeaders(p)
			}
			h.WriteData(1, false, nil)
		}},
		{"WINDOW_UPDATE", false, true, plenty, func(h *rawHTTP2, i int) { h.WriteWindowUpdate(0, 1<<30) }},
		{"unknown frames", true, true, plenty, func(h *rawHTTP2, i int) { h.WriteRawFrame(0xfa, 0xff, 0, make([]byte, 64)) }},
		{"streams that never end", false, false, 5000, func(h *rawHTTP2, i int) {
			p := open
			p.EndStream, p.StreamID, p.BlockFragment = false, uint32(2*i+1), h.head("allowed.lab")
			h.WriteHeaders(p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, beside := newLab(t), newLab(t)
			l.quiet = true
			l.permit("allowed.lab")
			var active, most atomic.Int64
			l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
				most.Store(max(most.Load(), active.Add(1)))
				defer active.Add(-1)
				<-r.Context().Done()
			})
			beside.permit("beside.lab")
			beside.serve("beside.lab", "203.0.113.2", nil)
			other := beside.client()
			get(t, other, "https://beside.lab/")

			h := l.rawHTTP2(t, l.transparent("203.0.113.1:443"), "allowed.lab")
			before := heap()
			heard := make(chan error, 1) // the reason for the end of reading
			listen := func() { _, err := io.Copy(io.Discard, h.Conn); heard <- err }
			if !c.deaf {
				go listen()
			}
			frames, ended := 0, false
			for ; frames < c.n && !ended; frames++ {
				c.step(h, frames)
				ended = h.flush(16<<10) != nil
				if frames%50_000 == 0 {
					get(t, other, "https://beside.lab/")
				}
			}
			ended = ended || h.flush(0) != nil
			get(t, other, "https://beside.lab/")
			grown := heap() - before
			if c.deaf {
				go listen()
			}
			if c.ends && !ended { // some of the sent frames had not arrived
				ended = !errors.Is(<-heard, os.ErrDeadlineExceeded)
				heard <- nil
			}
			if c.ends && !ended {
				t.Errorf("%d frames, and the connection is still there", frames)
			}
			if grown > 256<<20 { // including the origin's share
				t.Errorf("%d MiB more are in use", grown>>20)
			}
			if n := most.Load(); n > 300 {
				t.Errorf("%d requests at a time reached the origin", n)
			}
			t.Logf("%d frames, ended %v, %d KiB more, %d requests at a time", frames, ended, grown>>10, most.Load())
			h.Conn.(*tls.Conn).NetConn().Close()
			<-heard
		})
	}
}

// TestHTTP2Doors: HTTP/2 is spoken inside TLS only, does not tunnel, and a connection is for one host.
func TestHTTP2Doors(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab", "other.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	other := l.serve("other.lab", "203.0.113.2", nil)
	at80, at443 := l.transparent("203.0.113.1:80"), l.transparent("203.0.113.1:443")

	for way, w := range map[string]*wire{"transparent": dialWire(t, at80), "explicit": dialWire(t, l.explicit)} {
		target := map[string]string{"transparent": "/", "explicit": "http://allowed.lab/"}[way]
		w.send("GET " + target + " HTTP/1.1\r\nHost: allowed.lab\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " +
			"h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n")
		if res, body := w.response("GET"); res.StatusCode != 200 || res.Proto != "HTTP/1.1" ||
			res.Header.Get("Upgrade") != "" {
			t.Errorf("h2c, %s: %s %s %q", way, res.Proto, res.Status, body)
		}
	}
	for _, r := range o.seen() {
		if len(r.Header["Upgrade"])+len(r.Header["Http2-Settings"])+len(r.Header["Connection"]) > 0 {
			t.Errorf("the origin got %v", r.Header)
		}
	}
	before := len(o.seen())
	for _, at := range []string{at80, l.explicit} {
		if got := dialWire(t, at).send(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00").rest(); got != "" &&
			!strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("prior knowledge: %q", got)
		}
	}
	for name, c := range map[string]struct {
		head []hpack.HeaderField
		want string
	}{
		"CONNECT": {[]hpack.HeaderField{{Name: ":method", Value: "CONNECT"},
			{Name: ":authority", Value: "allowed.lab:443"}}, "403"},
		"extended CONNECT": {[]hpack.HeaderField{{Name: ":method", Value: "CONNECT"}, {Name: ":protocol", Value: "websocket"},
			{Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "allowed.lab"}, {Name: ":path", Value: "/"}},
			"PROTOCOL_ERROR"},
		"coalescing": {[]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
			{Name: ":authority", Value: "other.lab"}, {Name: ":path", Value: "/"}}, "403"},
		"Host besides": {[]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
			{Name: ":authority", Value: "allowed.lab"}, {Name: ":path", Value: "/"}, {Name: "host", Value: "other.lab"}}, "400"},
	} {
		h := l.rawHTTP2(t, at443, "allowed.lab")
		h.block.Reset()
		for _, f := range c.head {
			h.encoder.WriteField(f)
		}
		h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
			BlockFragment: h.block.Bytes()})
		h.flush(0)
		if got := h.outcome(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if n := len(o.seen()) - before + len(other.seen()); n > 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// outcome returns the status of the first answer, or the error that ended its stream or the connection.
func (h *rawHTTP2) outcome() string {
	in := http2.NewFramer(io.Discard, h.Conn)
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := in.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return f.ErrCode.String()
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo { // more than a graceful end
				return f.ErrCode.String()
			}
		}
	}
}

// TestRequestsAtATime: a sandbox has a bounded number of concurrent requests; ended ones free their places.
func TestRequestsAtATime(t *testing.T) {
	l := newLab(t, func(o *Options) { o.MaxRequests = 3 })
	l.permit("allowed.lab")
	begun := make(chan struct{})
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			begun <- struct{}{}
			<-r.Context().Done()
		}
	})
	c := l.client()
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, "GET", "https://allowed.lab/wait", nil)
			if res, err := c.Do(r); err == nil {
				t.Errorf("answered with %s", res.Status)
				res.Body.Close()
			}
		})
		<-begun
	}
	if res, body := get(t, c, "https://allowed.lab/"); res.StatusCode != 429 ||
		!strings.Contains(body, "3 requests are under way") {
		t.Errorf("one too many: %s %s", res.Status, body)
	}
	leave()
	waiting.Wait()
	deadline := time.Now().Add(patience)
	for {
		if res, _ := get(t, c, "https://allowed.lab/"); res.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no place becomes free")
		}
	}
}
