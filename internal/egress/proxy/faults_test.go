package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

// canary is set on every request of a lab that injects it.
const canary = "sk-canary-0123456789abcdef"

// injects sets a credential on every request, and removes it from answers.
func (l *lab) injects() {
	values, err := redact.New(secret.New(canary))
	if err != nil {
		l.t.Fatal(err)
	}
	l.prepare = func(_ policy.Request, h *http.Request) error {
		h.Header.Set("Authorization", "Bearer "+canary)
		redact.Request(h.Header)
		return nil
	}
	l.response = func(_ policy.Request, h *http.Response) error { return values.Response(h) }
}

// accepts lets serve handle every raw connection to name, port 443.
func (l *lab) accepts(name, address string, serve func(c net.Conn)) {
	ln := listen(l.t)
	l.at(name, address)
	l.permit(name)
	l.route(address+":443", ln)
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
			serving.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	l.t.Cleanup(func() { ln.Close(); cancel(); serving.Wait() })
}

// inTLS returns a server of connections whose handshake agrees on one protocol.
func (l *lab) inTLS(name, protocol string, serve func(c *tls.Conn)) func(net.Conn) {
	config := &tls.Config{Certificates: []tls.Certificate{*l.world.leaf(l.t, nil, name)}, NextProtos: []string{protocol}}
	return func(c net.Conn) {
		inside := tls.Server(c, config)
		if inside.Handshake() == nil {
			serve(inside)
		}
	}
}

// end returns the outcome of an answer for a client: its status, with "broken" if the answer began and ended early.
func end(c *http.Client, url string) string {
	res, err := c.Get(url)
	if err != nil {
		return "broken"
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return "broken"
	case res.StatusCode == 200:
		return "200 " + string(body)
	case !strings.Contains(string(body), `"reason": "`):
		return res.Status + " without a reason"
	}
	return fmt.Sprint(res.StatusCode)
}

// TestBrokenAnswers: an incomplete answer never looks complete, in any version of HTTP, redacted or not.
func TestBrokenAnswers(t *testing.T) {
	say := func(s string) func(c *tls.Conn) {
		return func(c *tls.Conn) {
			c.Read(make([]byte, 4096))
			io.WriteString(c, s)
			c.CloseWrite()
			io.Copy(io.Discard, c)
		}
	}
	// frames returns a server that reads a request's head, writes the frames of talk, and ends.
	frames := func(talk func(f *http2.Framer, head func(more ...hpack.HeaderField))) func(c *tls.Conn) {
		return func(c *tls.Conn) {
			io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
			f := http2.NewFramer(c, c)
			f.AllowIllegalWrites = true
			f.WriteSettings()
			for {
				in, err := f.ReadFrame()
				if err != nil {
					return
				}
				if _, ok := in.(*http2.HeadersFrame); ok {
					break
				}
			}
			talk(f, func(more ...hpack.HeaderField) {
				var block bytes.Buffer
				e := hpack.NewEncoder(&block)
				for _, field := range append([]hpack.HeaderField{{Name: ":status", Value: "200"}}, more...) {
					e.WriteField(field)
				}
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block.Bytes()})
			})
			c.CloseWrite()
			io.Copy(io.Discard, c)
		}
	}
	length := func(n int) hpack.HeaderField {
		return hpack.HeaderField{Name: "content-length", Value: fmt.Sprint(n)}
	}
	type head = func(...hpack.HeaderField)
	for name, c := range map[string]struct {
		protocol string
		serve    func(c *tls.Conn)
		want     string
	}{
		"whole":       {"http/1.1", say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"), "200 whole"},
		"until-close": {"http/1.1", say("HTTP/1.1 200 OK\r\n\r\nwhole"), "200 whole"},
		"byte-by-byte": {"http/1.1", slowly("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n"),
			"200 whole"},
		"too-long":      {"http/1.1", say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole and more"), "200 whole"},
		"too-short":     {"http/1.1", say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), "broken"},
		"half-a-chunk":  {"http/1.1", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha"), "broken"},
		"no-last-chunk": {"http/1.1", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), "broken"},
		"reset": {"http/1.1", func(c *tls.Conn) {
			say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")(c)
			reset(c.NetConn())
		}, "broken"},
		// There is no TLS close alert: many servers end an answer without a length like that.
		"until-cut": {"http/1.1", func(c *tls.Conn) {
			c.Read(make([]byte, 4096))
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nwhole")
			c.NetConn().Close()
		}, "200 whole"},
		"no-head":        {"http/1.1", say(""), "502"},
		"half-a-head":    {"http/1.1", say("HTTP/1.1 200 OK\r\nContent-"), "502"},
		"garbage":        {"http/1.1", say("\x00\x01garbage\r\n\r\n"), "502"},
		"http2-in-http1": {"http/1.1", say("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), "502"},
		"h2-whole": {"h2", frames(func(f *http2.Framer, h head) {
			h(length(5))
			f.WriteData(1, true, []byte("whole"))
		}), "200 whole"},
		"h2-too-short": {"h2", frames(func(f *http2.Framer, h head) {
			h(length(100))
			f.WriteData(1, true, []byte("half"))
		}), "broken"},
		"h2-too-long": {"h2", frames(func(f *http2.Framer, h head) {
			h(length(5))
			f.WriteData(1, true, []byte("whole and more"))
		}), "502 broken"},
		"h2-reset": {"h2", frames(func(f *http2.Framer, h head) {
			h()
			f.WriteData(1, false, []byte("half"))
			f.WriteRSTStream(1, http2.ErrCodeInternal)
		}), "broken"},
		"h2-close": {"h2", frames(func(f *http2.Framer, h head) { h(); f.WriteData(1, false, []byte("half")) }), "broken"},
		"h2-goaway": {"h2", frames(func(f *http2.Framer, h head) {
			h()
			f.WriteData(1, false, []byte("half"))
			f.WriteGoAway(1, http2.ErrCodeInternal, nil)
		}), "broken"},
		"h2-reset-at-once": {"h2", frames(func(f *http2.Framer, h head) {
			f.WriteRSTStream(1, http2.ErrCodeInternal)
		}), "502"},
		"h2-data-first": {"h2", frames(func(f *http2.Framer, h head) { f.WriteData(1, true, []byte("half")) }), "502"},
		"h2-no-compression": {"h2", frames(func(f *http2.Framer, h head) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
				BlockFragment: []byte("\xff\xff\xff\xff\xff\xff")})
		}), "502"},
		"h2-push": {"h2", frames(func(f *http2.Framer, h head) {
			f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}), "502"},
		"h2-endless-head": {"h2", frames(func(f *http2.Framer, h head) {
			h(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 400<<10)})
		}), "502"},
		"h2-garbage": {"h2", func(c *tls.Conn) {
			io.WriteString(c, strings.Repeat("garbage ", 100))
			io.Copy(io.Discard, c)
		}, "502"},
		"h2-http1":          {"h2", say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"), "502"},
		"h2-closes-at-once": {"h2", func(*tls.Conn) {}, "502"},
		"h2-endless-trailer": {"h2", frames(func(f *http2.Framer, h head) {
			h()
			f.WriteData(1, false, []byte("half"))
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}})
		}), "broken"},
	} {
		for _, searched := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", searched: ", searched), func(t *testing.T) {
				l := newLab(t)
				if searched {
					l.injects()
				}
				l.accepts("broken.lab", "203.0.113.9", l.inTLS("broken.lab", c.protocol, c.serve))
				for version, client := range l.versions("203.0.113.9") {
					l.server.transport.CloseIdleConnections() // of an origin that closes without notice
					if got := end(client, "https://broken.lab/"); got != c.want && !slices.Contains(strings.Fields(c.want), got) {
						t.Errorf("%s: %s, want %s", version, got, c.want)
					}
				}
			})
		}
	}
}

// slowly sends text byte by byte.
func slowly(s string) func(c *tls.Conn) {
	return func(c *tls.Conn) {
		c.Read(make([]byte, 4096))
		for i := range len(s) {
			time.Sleep(time.Millisecond) // sleep: the origin is slow
			io.WriteString(c, s[i:i+1])
		}
	}
}

// TestHangingOrigins: the proxy gives up a silent origin and tells the client.
func TestHangingOrigins(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	l := newLab(t, func(o *Options) { o.Timeouts.Idle, o.Timeouts.Hello = 6*time.Second, 6*time.Second })
	l.injects()
	hang := func(c *tls.Conn, s string) {
		c.Read(make([]byte, 4096))
		io.WriteString(c, s)
		io.Copy(io.Discard, c)
	}
	var mu sync.Mutex
	var heard bytes.Buffer // bytes before the handshake
	l.accepts("hello.lab", "203.0.113.1", func(c net.Conn) {
		io.Copy(writer(func(p []byte) { mu.Lock(); heard.Write(p); mu.Unlock() }), c)
	})
	l.accepts("head.lab", "203.0.113.2", l.inTLS("head.lab", "http/1.1", func(c *tls.Conn) {
		hang(c, "HTTP/1.1 200 OK\r\nContent-Le")
	}))
	l.accepts("body.lab", "203.0.113.3", l.inTLS("body.lab", "http/1.1", func(c *tls.Conn) {
		hang(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
	}))
	l.accepts("h2.lab", "203.0.113.4", l.inTLS("h2.lab", "h2", func(c *tls.Conn) {
		hang(c, "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	}))
	var asking sync.WaitGroup
	for name, want := range map[string]string{"hello.lab": "504", "head.lab": "504", "body.lab": "broken",
		"h2.lab": "504"} {
		for version, c := range map[string]*http.Client{"1": l.client(oneProtocol), "2": l.client()} {
			asking.Go(func() {
				if got := end(c, "https://"+name+"/"); got != want {
					t.Errorf("%s, HTTP/%s: %s, want %s", name, version, got, want)
				}
			})
		}
	}
	asking.Wait()
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(heard.String(), canary) {
		t.Error("the key was sent before there was a handshake")
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// TestNoHandshake: an origin that fails to prove its identity, in any way, gets nothing of a request, least of all its
// key.
func TestNoHandshake(t *testing.T) {
	l := newLab(t)
	l.injects()
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	withKey := func(name string, key any, public any) *tls.Certificate {
		template := &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}}
		der, err := x509.CreateCertificate(rand.Reader, template, l.world.cert, public, l.world.key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	selfSigned := func(name string) *tls.Certificate {
		own := newAuthority(t, name)
		template := &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}}
		der, err := x509.CreateCertificate(rand.Reader, template, template, own.key.Public(), own.key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own.key}
	}
	var mu sync.Mutex
	heard := map[string]*bytes.Buffer{}
	shown := func(certificate *tls.Certificate) func(net.Conn) {
		return func(c net.Conn) {
			inside := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*certificate}})
			io.Copy(io.Discard, inside) // the tap below records the bytes
		}
	}
	for name, serve := range map[string]func(net.Conn){
		"closes.lab": func(c net.Conn) { c.Read(make([]byte, 100)) },
		"resets.lab": func(c net.Conn) { c.Read(make([]byte, 100)); reset(c) },
		"plain.lab": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
			io.Copy(io.Discard, c)
		},
		"garbage.lab": func(c net.Conn) {
			io.WriteString(c, "\x16\x03\x03\xff\xff"+strings.Repeat("x", 1000))
			io.Copy(io.Discard, c)
		},
		"alert.lab": func(c net.Conn) {
			c.Read(make([]byte, 100))
			io.WriteString(c, "\x15\x03\x03\x00\x02\x02\x28")
			io.Copy(io.Discard, c)
		},
		"half.lab": func(c net.Conn) {
			c.Read(make([]byte, 100))
			io.WriteString(c, "\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03")
		},
		"selfsigned.lab": shown(selfSigned("selfsigned.lab")),
		"weak.lab":       shown(withKey("weak.lab", weak, weak.Public())),
		// another's certificate
		"keyless.lab": shown(&tls.Certificate{Certificate: l.world.leaf(t, nil, "keyless.lab").Certificate,
			PrivateKey: newAuthority(t, "x").key}),
	} {
		l.accepts(name, "203.0.113.3", func(c net.Conn) {
			serve(&tapped{Conn: c, tap: func(p []byte) {
				mu.Lock()
				defer mu.Unlock()
				if heard[name] == nil {
					heard[name] = &bytes.Buffer{}
				}
				heard[name].Write(p)
			}})
		})
		for version, c := range map[string]*http.Client{"1": l.client(oneProtocol), "2": l.client()} {
			if got := end(c, "https://"+name+"/"); got != "502" {
				t.Errorf("%s, HTTP/%s: %s", name, version, got)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for name, b := range heard {
		if strings.Contains(b.String(), canary) {
			t.Errorf("%s heard the key", name)
		}
	}
	for _, e := range l.events {
		if strings.Contains(e.Problem, canary) {
			t.Errorf("the record has the key: %+v", e)
		}
	}
}

// tapped records the bytes that are read.
type tapped struct {
	net.Conn
	tap func([]byte)
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tap(p[:n])
	return n, err
}

// TestBombs: a compressed answer that expands enormously under redaction ends as broken, and the gateway holds little
// of it.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	const unfolded = 1 << 30
	zeros := func(w io.WriteCloser) {
		piece := make([]byte, 1<<20)
		for range unfolded / len(piece) {
			w.Write(piece)
		}
		w.Close()
	}
	var zipped, zstandard bytes.Buffer
	fast, _ := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	zeros(fast)
	z, err := zstd.NewWriter(&zstandard)
	if err != nil {
		t.Fatal(err)
	}
	zeros(z)
	for _, c := range []struct {
		coding, want string
		body         []byte
	}{
		{"gzip", "broken", zipped.Bytes()},
		{"zstd", "broken", zstandard.Bytes()},
		{"br", "502", []byte("whatever")},
		{"gzip, gzip, gzip", "502", zipped.Bytes()},
	} {
		t.Run(c.coding, func(t *testing.T) {
			l := newLab(t)
			l.injects()
			l.permit("allowed.lab")
			l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", c.coding)
				w.Write(c.body)
			})
			for version, client := range map[string]*http.Client{"1": l.client(oneProtocol), "2": l.client()} {
				most := mostInUse(t, func() {
					res, err := client.Get("https://allowed.lab/")
					if err != nil {
						t.Fatal(err)
					}
					defer res.Body.Close()
					n, err := io.Copy(io.Discard, res.Body)
					if got := map[bool]string{true: "broken", false: fmt.Sprint(res.StatusCode)}[err != nil]; got != c.want {
						t.Errorf("HTTP/%s: %s after %d bytes, want %s", version, got, n, c.want)
					}
				})
				if most > 64<<20 {
					t.Errorf("HTTP/%s: %d MiB were in use", version, most>>20)
				}
			}
		})
	}
}

// mostInUse runs f and returns the peak growth of the heap, garbage included.
func mostInUse(t *testing.T, f func()) int64 {
	t.Helper()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() int64 { metrics.Read(sample); return int64(sample[0].Value.Uint64()) }
	heap() // collects garbage
	before := read()
	most := before
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				most = max(most, read())
			}
		}
	})
	f()
	close(stop)
	watching.Wait()
	return most - before
}

// TestLargeBodies: hundreds of megabytes pass in either direction without being held in memory.
func TestLargeBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	const size = 200 << 20
	l := newLab(t)
	l.injects()
	l.quiet = true
	l.permit("allowed.lab")
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Received", fmt.Sprint(n, err))
		if r.Method == "GET" {
			io.CopyN(w, zeroes{}, size)
		}
	})
	for version, c := range map[string]*http.Client{"1": l.client(oneProtocol), "2": l.client()} {
		c.Timeout = 4 * patience
		most := mostInUse(t, func() {
			res, err := c.Get("https://allowed.lab/")
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
				t.Errorf("HTTP/%s: %d bytes came, %v", version, n, err)
			}
			res.Body.Close()
			res, err = c.Post("https://allowed.lab/", "", io.LimitReader(zeroes{}, size))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got := res.Header.Get("X-Received"); got != fmt.Sprint(size, nil) {
				t.Errorf("HTTP/%s: the origin got %s", version, got)
			}
		})
		if most > 64<<20 {
			t.Errorf("HTTP/%s: %d MiB were in use", version, most>>20)
		}
		t.Logf("HTTP/%s: %d KiB", version, most>>10)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestEarlyAnswers: an origin's early answer reaches the client at once, and "100 Continue" comes from the origin
// alone.
func TestEarlyAnswers(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/enough" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%q", body)
	})
	for version, c := range map[string]*http.Client{"1": l.client(oneProtocol), "2": l.client()} {
		res, err := c.Post("https://allowed.lab/enough", "", io.LimitReader(zeroes{}, 20<<20))
		if err != nil {
			t.Errorf("HTTP/%s: %v", version, err)
			continue
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("HTTP/%s: %s", version, res.Status)
		}
	}
	const head = "POST http://allowed.lab/%s HTTP/1.1\r\nHost: allowed.lab\r\nExpect: 100-continue\r\nContent-Length: " +
		"4\r\n\r\n"
	w := dialWire(t, l.explicit).send(fmt.Sprintf(head, "enough"))
	if line, _ := w.r.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 413 ") {
		t.Errorf("without a body: %q", line)
	}
	w = dialWire(t, l.explicit).send(fmt.Sprintf(head, "all"))
	line, _ := w.r.ReadString('\n')
	w.r.ReadString('\n')
	if res, body := w.send("body").response("POST"); !strings.HasPrefix(line, "HTTP/1.1 100 ") || res.StatusCode != 200 ||
		body != `"body"` {
		t.Errorf("%q, then %s %s", line, res.Status, body)
	}
}

// TestHalfClose: a client that closes its sending side still gets its answers; a client that has left is not waited
// for.
func TestHalfClose(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	l := newLab(t, func(o *Options) { o.Timeouts.Leaving = 10 * time.Second })
	l.permit("allowed.lab")
	left := make(chan struct{}, 10)
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			left <- struct{}{}
			return
		}
		time.Sleep(50 * time.Millisecond) // sleep: the request's end arrives first, of which nothing tells
		sayWhat(w, r)
	})
	ways := map[string]func() *wire{
		"plain": func() *wire { return dialWire(t, l.transparent("203.0.113.1:80")) },
		"TLS": func() *wire {
			return mustSecure(t, dialWire(t, l.transparent("203.0.113.1:443")), l.trust("allowed.lab"))
		},
		"tunnel": func() *wire {
			return mustSecure(t, l.connect(t, "allowed.lab:443"), l.trust("allowed.lab"))
		},
	}
	ask := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: allowed.lab\r\n\r\n" }
	for way, enter := range ways {
		w := enter().send(ask("/a") + "POST /b HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 4\r\n\r\nbody")
		w.Conn.(interface{ CloseWrite() error }).CloseWrite()
		if got := w.rest(); strings.Count(got, "HTTP/1.1 200 OK") != 2 || !strings.HasSuffix(got, `"body"`) {
			t.Errorf("%s: %q", way, got)
		}
		w = enter().send("POST /b HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 4\r\n\r\nbo")
		w.Conn.(interface{ CloseWrite() error }).CloseWrite()
		if got := w.rest(); strings.Contains(got, " 200 ") {
			t.Errorf("%s, half a body: %q", way, got)
		}
		w = enter().send(ask("/events"))
		w.r.ReadString('\n')
		w.Close()
	}
	for range ways {
		select {
		case <-left:
		case <-time.After(patience):
			t.Fatal("the origin goes on for who has left")
		}
	}
}
