package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// versions returns a client for each version of HTTP, explicit and transparent.
func (l *lab) versions(address string) map[string]*http.Client {
	at := l.transparent(address + ":443")
	return map[string]*http.Client{
		"HTTP/1.1":              l.client(oneProtocol),
		"HTTP/2.0":              l.client(),
		"HTTP/1.1, transparent": l.client(to(at), oneProtocol),
		"HTTP/2.0, transparent": l.client(to(at)),
	}
}

// TestOffer: the sandbox decides on the version for clients; origins choose their own.
func TestOffer(t *testing.T) {
	l := newLab(t)
	l.permit("one.lab", "both.lab")
	l.version1 = map[string]bool{"one.lab": true}
	for name, wants := range map[string]int{"one.lab": 1, "both.lab": 2} {
		l.serve(name, "203.0.113.1", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
		res, err := l.client().Get("https://" + name + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if said, _ := io.ReadAll(res.Body); res.ProtoMajor != wants || string(said) != "HTTP/2.0" {
			t.Errorf("%s: the client got %s, the origin %s", name, res.Proto, said)
		}
	}
}

// TestBodies: bodies of any size and kind arrive as sent, without buffering, and with trailers.
func TestBodies(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		if err != nil {
			panic(err)
		}
		w.Header().Set("X-Sum", hex.EncodeToString(sum.Sum(nil)))
		w.Header().Set("X-Length", fmt.Sprintf("%d %d %q", r.ContentLength, n,
			r.Trailer.Get("X-Checksum")+r.Trailer.Get("Authorization")))
		w.Header().Set("Trailer", "X-After, Set-Cookie")
		for range 64 {
			w.Write(bytes.Repeat([]byte("y"), 64<<10))
		}
		w.Header().Set("X-After", "the body")
		w.Header().Set("Set-Cookie", "x=y")
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "too")
	})
	content := bytes.Repeat([]byte("x"), 4<<20)
	want := sha256.Sum256(content)
	for version, c := range l.versions("203.0.113.1") {
		for _, known := range []bool{true, false} {
			r, _ := http.NewRequest("POST", "https://allowed.lab/", bytes.NewReader(content))
			length := int64(len(content))
			if !known {
				r.Body, r.ContentLength, length = io.NopCloser(bytes.NewReader(content)), -1, -1
				r.Trailer = http.Header{"X-Checksum": {"abc"}}
				if strings.HasPrefix(version, "HTTP/1.1") { // HTTP/2 refuses it altogether
					r.Trailer.Set("Authorization", "never")
				}
			}
			r.Header.Set("Expect", "100-continue")
			res, err := c.Do(r)
			if err != nil {
				t.Fatalf("%s: %v", version, err)
			}
			n, err := io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if err != nil || n != 64*64<<10 || res.Header.Get("X-Sum") != hex.EncodeToString(want[:]) {
				t.Errorf("%s: %d bytes, %v, %v", version, n, err, res.Header)
			}
			trailer := map[bool]string{true: "", false: "abc"}[known]
			if got := res.Header.Get("X-Length"); got != fmt.Sprintf("%d %d %q", length, len(content), trailer) {
				t.Errorf("%s: the origin read %s", version, got)
			}
			if res.Trailer.Get("X-After") != "the body" || res.Trailer.Get("X-Unannounced") != "too" ||
				res.Trailer.Get("Set-Cookie") != "" {
				t.Errorf("%s: trailers %v", version, res.Trailer)
			}
			if !strings.HasPrefix(version, res.Proto) {
				t.Errorf("%s: %s", version, res.Proto)
			}
		}
	}
}

// TestBothWays: request and answer proceed at the same time (gRPC's bidirectional streams), each piece arrives
// separately, and the trailers arrive at the end.
func TestBothWays(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	l.prepare = func(_ policy.Request, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer real")
		return nil
	}
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" || r.Header.Get("Authorization") != "Bearer real" {
			t.Errorf("the origin got %s %v", r.Proto, r.Header)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		http.NewResponseController(w).Flush()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			io.WriteString(w, "re: "+line)
			http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	})
	body, say := io.Pipe()
	r, _ := http.NewRequest("POST", "https://allowed.lab/service/Method", body)
	r.Header.Set("Te", "trailers")
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Authorization", "Bearer placeholder")
	c := l.client()
	c.Timeout = 0
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 20 {
		fmt.Fprintln(say, i)
		if got, err := lines.ReadString('\n'); got != fmt.Sprintf("re: %d\n", i) {
			t.Fatalf("%q %v", got, err)
		}
	}
	say.Close()
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil || res.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%q %v %v", rest, err, res.Trailer)
	}
}

// TestEvents: server-sent events arrive one by one, and a client that leaves ends the origin's work.
func TestEvents(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	next, left := make(chan int), make(chan error)
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		for {
			select {
			case i := <-next:
				fmt.Fprintf(w, "data: %d\n\n", i)
				http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				left <- r.Context().Err()
				return
			}
		}
	})
	for version, c := range l.versions("203.0.113.1") {
		ctx, leave := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://allowed.lab/", nil)
		res, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		lines := bufio.NewReader(res.Body)
		for i := range 5 {
			next <- i
			if got, err := lines.ReadString('\n'); got != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("%s: %q %v", version, got, err)
			}
			lines.ReadString('\n')
		}
		leave()
		select {
		case <-left:
		case <-time.After(patience):
			t.Fatalf("%s: the origin goes on", version)
		}
		res.Body.Close()
	}
}

// TestWebSocket: the upgrade is judged as a request, and then both sides talk.
func TestWebSocket(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		s, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer s.CloseNow()
		for {
			kind, message, err := s.Read(r.Context())
			if err != nil {
				return
			}
			s.Write(r.Context(), kind, append([]byte("re: "), message...))
		}
	})
	denied := l.serve("denied.lab", "203.0.113.2", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, url := range []string{"wss://allowed.lab/socket", "ws://allowed.lab/socket"} {
		for _, alter := range [][]func(*http.Transport){{oneProtocol},
			{oneProtocol,
				to(l.transparent("203.0.113.1:" + map[bool]string{true: "443", false: "80"}[strings.HasPrefix(url, "wss")]))}} {
			c := l.client(alter...)
			c.Timeout = 0
			s, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: c})
			if err != nil {
				t.Fatalf("%s: %v", url, err)
			}
			for i := range 10 {
				s.Write(ctx, websocket.MessageText, fmt.Append(nil, i))
				if _, got, err := s.Read(ctx); string(got) != fmt.Sprint("re: ", i) {
					t.Fatalf("%s: %q %v", url, got, err)
				}
			}
			s.Close(websocket.StatusNormalClosure, "")
		}
	}
	if e := l.event(func(e Event) bool {
		return e.Status == 101
	}); e.Sent == 0 || e.Received == 0 || e.Request.Path != "/socket" {
		t.Errorf("%+v", e)
	}
	before := len(o.seen())
	c := l.client(oneProtocol)
	if _, res, err := websocket.Dial(ctx, "ws://denied.lab/", &websocket.DialOptions{HTTPClient: c}); err == nil ||
		res == nil || res.StatusCode != 403 {
		t.Errorf("denied: %v %v", res, err)
	}
	if len(denied.seen()) > 0 || len(o.seen()) != before {
		t.Error("the denied one was seen")
	}

	// A client that sends more before the answer gets no tunnel.
	w := dialWire(t, l.explicit).send("GET http://allowed.lab/ HTTP/1.1\r\nHost: allowed.lab\r\nConnection: " +
		"Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nGET http://allowed.lab/smuggled " +
		"HTTP/1.1\r\nHost: allowed.lab\r\n\r\n")
	if got := w.rest(); strings.Contains(got, "101") {
		t.Errorf("early: %q", got)
	}
	for _, r := range o.seen() {
		if r.URL.Path == "/smuggled" {
			t.Error("the early request was seen")
		}
	}
}

// rawOrigin answers every connection with fixed bytes, after the first request bytes.
func (l *lab) rawOrigin(name, address string, answer func(c net.Conn)) {
	ln := listen(l.t)
	l.at(name, address)
	l.permit(name)
	l.route(address+":80", ln)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 4096)); err == nil {
					answer(c)
				}
			})
		}
	})
	l.t.Cleanup(func() { ln.Close(); serving.Wait() })
}

// TestFaultyOrigins: an origin that lies, breaks off or talks nonsense gives a proper error; a truncated answer never
// looks complete.
func TestFaultyOrigins(t *testing.T) {
	l := newLab(t)
	say := func(s string) func(net.Conn) { return func(c net.Conn) { io.WriteString(c, s) } }
	const asked = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for name, c := range map[string]struct {
		origin  func(net.Conn)
		headers string
		status  int // 0: the connection breaks off
	}{
		"silent-close": {func(net.Conn) {}, "", 502},
		"reset":        {func(c net.Conn) { reset(c) }, "", 502},
		"garbage":      {say("\x00\x01\x02 garbage\r\n\r\n"), "", 502},
		"half-a-head":  {say("HTTP/1.1 200 OK\r\nContent-"), "", 502},
		"endless-head": {say("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20)), "", 502},
		"bad-status":   {say("HTTP/1.1 999999 OK\r\n\r\n"), "", 502},
		"status-0":     {say("HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n"), "", 502},
		"switch": {say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nsecret"), "",
			502},
		"switch-h2c": {say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nsecret"),
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n", 502},
		"switch-wrong": {say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nsecret"),
			asked, 502},
		"switch-no-key": {say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
			"websocket\r\nSec-WebSocket-Accept: x\r\n\r\nsecret"), asked, 502},
		"too-short":     {say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), "", 0},
		"broken-chunk":  {say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nzz\r\n"), "", 0},
		"no-last-chunk": {say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n"), "", 0},
		"too-long": {say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshortHTTP/1.1 200 OK\r\nContent-Length: " +
			"6\r\n\r\npoison"), "", 200},
		"two-lengths": {say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nshorty"), "", 502},
		"until-close": {say("HTTP/1.1 200 OK\r\n\r\nshort"), "", 200},
		"early-hints": {say(
			"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshort"), "", 200},
		"endless-hints": {say(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 1000)+"\r\n\r\n",
			1000)), "", 502},
		"split-response": {say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: a\rb\r\n\r\nshort"), "", 502},
	} {
		t.Run(name, func(t *testing.T) {
			l.rawOrigin(name+".lab", "203.0.113.9", c.origin)
			l.ended()     // of other origins
			for range 2 { // the second must not inherit state of the first
				w := dialWire(t, l.explicit).send("GET http://" + name + ".lab/ HTTP/1.1\r\nHost: " + name + ".lab\r\n" +
					c.headers + "\r\n")
				res, err := http.ReadResponse(w.r, nil)
				if err != nil && c.status == 0 {
					continue
				}
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				body, err := io.ReadAll(res.Body)
				if c.status == 0 {
					if err == nil {
						t.Errorf("it looks complete: %s %q", res.Status, body)
					}
					continue
				}
				if res.StatusCode != c.status || err != nil || strings.Contains(string(body), "secret") ||
					c.status == 200 && string(body) != "short" {
					t.Errorf("%s %q %v", res.Status, body, err)
				}
			}
			l.until("both passages to end", func() bool { return len(l.ends) == 2 })
			for _, failure := range l.ended() {
				if (failure == nil) != (c.status == 200) {
					t.Errorf("the passage ended with %v", failure)
				}
			}
		})
	}
}

// TestHangs: every wait is bounded, on either side.
func TestHangs(t *testing.T) {
	l := newLab(t, func(o *Options) {
		o.Timeouts = Timeouts{Hello: 100 * time.Millisecond, Header: 100 * time.Millisecond,
			KeepAlive: 100 * time.Millisecond, Idle: 300 * time.Millisecond, Silence: 10 * time.Millisecond}
	})
	hang := func(c net.Conn) { io.Copy(io.Discard, c) }
	l.rawOrigin("hangs.lab", "203.0.113.10", hang)
	l.rawOrigin("stalls.lab", "203.0.113.11", func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		hang(c)
	})
	l.rawOrigin("floods.lab", "203.0.113.12", func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	request := func(name string) string { return "GET http://" + name + "/ HTTP/1.1\r\nHost: " + name + "\r\n\r\n" }

	res, body := dialWire(t, l.explicit).send(request("hangs.lab")).response("GET")
	if res.StatusCode != 504 {
		t.Errorf("an origin that hangs: %s %s", res.Status, body)
	}
	if got := dialWire(t, l.explicit).send(request("stalls.lab")).rest(); !strings.HasSuffix(got, "half") {
		t.Errorf("an origin that stalls: %q", got)
	}
	if got := dialWire(t, l.explicit).send("POST http://hangs.lab/ HTTP/1.1\r\nHost: hangs.lab\r\nContent-Length: " +
		"100\r\n\r\nhalf").rest(); strings.Contains(got, "200 OK") {
		t.Errorf("a client that stalls: %q", got)
	}
	for name, sent := range map[string]string{"nothing": "", "half a line": "GET http://ha",
		"half a head": "GET http://hangs.lab/ HTTP/1.1\r\nHost: ", "half SOCKS": "\x05\x01"} {
		if got := dialWire(t, l.explicit).send(sent).rest(); got != "" && got != "\x05\x00" &&
			!strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	at := l.transparent("203.0.113.10:443")
	for name, sent := range map[string]string{"nothing": "", "half a hello": string(realHello("hangs.lab")[:50])} {
		if got := dialWire(t, at).send(sent).rest(); got != "" {
			t.Errorf("transparent, %s: %q", name, got)
		}
	}
	// A client that does not read its answer.
	w := dialWire(t, l.explicit).send(request("floods.lab"))
	l.event(func(e Event) bool { return e.Request.Host.String() == "floods.lab" })
	w.Close()
	// An idle tunnel.
	l.passThrough("tcp.lab")
	l.at("tcp.lab", "203.0.113.5")
	l.route("203.0.113.5:2525", echoServer(t))
	if got := l.connect(t, "tcp.lab:2525").rest(); got != "220 ready\n" {
		t.Errorf("a tunnel: %q", got)
	}
}

// TestNothingIsFollowed: redirects go to the client, whose next request is judged like any other.
func TestNothingIsFollowed(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	for _, to := range []string{"https://denied.lab/", "http://169.254.169.254/latest/", "file:///etc/passwd",
		"gopher://x/", "/again"} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			l.server.transport.CloseIdleConnections()
			l.mu.Lock()
			l.names, l.dialledHosts = map[string][]netip.Addr{}, nil
			l.mu.Unlock()
			o := l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(status)
			})
			res, _ := get(t, l.client(), "https://allowed.lab/")
			if res.StatusCode != status || res.Header.Get("Location") != to || len(o.seen()) != 1 || len(l.hosts()) != 1 {
				t.Errorf("%d to %s: %s %v", status, to, res.Status, l.hosts())
			}
		}
	}
}

// TestEnvironment: the gateway's own environment redirects no request.
func TestEnvironment(t *testing.T) {
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(v, "http://127.0.0.1:1")
	}
	l := newLab(t)
	l.permit("allowed.lab")
	l.serve("allowed.lab", "203.0.113.1", nil)
	for _, url := range []string{"https://allowed.lab/", "http://allowed.lab/"} {
		if res, body := get(t, l.client(), url); res.StatusCode != 200 {
			t.Errorf("%s %s", res.Status, body)
		}
	}
}

// TestStages: objections of the gateway's stages become answers that a client understands, and the stages run after the
// verdict.
func TestStages(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	var fail error
	l.prepare = func(r policy.Request, h *http.Request) error {
		if r.Layer != policy.LayerHTTP || r.Host != host("allowed.lab") || r.Path != "/a" || h.URL.Path != "/a" ||
			h.Header.Get("Connection") != "" {
			t.Errorf("prepared: %+v %+v", r, h)
		}
		return fail
	}
	for status, err := range map[int]error{
		403: cove.Errorf(cove.Forbidden, "merging is not allowed").WithHint("cove policy allow"),
		429: cove.Errorf(cove.Overloaded, "too many"),
		503: cove.Errorf(cove.Unavailable, "open circuit"), 400: cove.Errorf(cove.InvalidArgument, "no JSON"),
		502: errors.New("secret cause"),
	} {
		fail = err
		res, body := get(t, l.client(), "https://allowed.lab/a")
		if res.StatusCode != status || strings.Contains(body, "secret") ||
			status == 403 && !strings.Contains(body, `"allow": "cove policy allow"`) {
			t.Errorf("%v: %s %s", err, res.Status, body)
		}
	}
	fail = At(decision.StageRate, &Refusal{Code: cove.Overloaded, Rule: "rate", Reason: "too often", Remedy: "wait",
		After: 1500 * time.Millisecond})
	res, body := get(t, l.client(), "https://allowed.lab/a")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "2" {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	for _, says := range []string{`"stage": "rate"`, `"rule": "rate"`, `"reason": "too often"`, `"allow": "wait"`,
		`"retry_after": 2`, `"message": "rate limited by Cove's gateway`} {
		if !strings.Contains(body, says) {
			t.Errorf("%s does not say %s", body, says)
		}
	}
	e := l.event(func(e Event) bool { return e.Status == 429 && e.Stage == decision.StageRate })
	if e.Verdict.Action != policy.Deny || e.Verdict.Rule != "rate" || e.Verdict.Reason != "too often" ||
		e.Verdict.Remedy != "wait" {
		t.Errorf("recorded as %+v", e)
	}
	if n := len(o.seen()); n > 0 {
		t.Errorf("the origin saw %d requests", n)
	}
	fail = nil
	l.response = func(_ policy.Request, r *http.Response) error {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader("redacted "), r.Body), r.Body}
		r.ContentLength = -1
		return nil
	}
	if res, body := get(t, l.client(), "https://allowed.lab/a"); !strings.HasPrefix(body, "redacted GET") ||
		res.ContentLength != -1 {
		t.Errorf("%s %q", res.Status, body)
	}
	l.prepare = func(policy.Request, *http.Request) error { t.Error("prepared what is denied"); return nil }
	if res, _ := get(t, l.client(), "http://denied.lab/"); res.StatusCode != 403 {
		t.Error(res.Status)
	}
}

// TestUnfinished: an origin is not at fault when the client leaves before its answer.
func TestUnfinished(t *testing.T) {
	l := newLab(t)
	asked := make(chan struct{})
	l.rawOrigin("slow.lab", "203.0.113.1", func(c net.Conn) {
		close(asked)
		c.Read(make([]byte, 1))
	})
	w := dialWire(t, l.explicit).send("GET http://slow.lab/ HTTP/1.1\r\nHost: slow.lab\r\n\r\n")
	<-asked
	w.Conn.Close()
	l.until("the passage to end", func() bool { return len(l.ends) == 1 })
	if ends := l.ended(); !errors.Is(ends[0], ErrUnfinished) {
		t.Errorf("it ended with %v", ends)
	}
}

// TestRejudge: a narrower policy cuts at once what it no longer allows, and nothing else.
func TestRejudge(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab", "kept.lab", "tcp.lab")
	begun := make(chan struct{}, 10)
	stream := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			s, err := websocket.Accept(w, r, nil)
			if err == nil {
				s.Read(r.Context())
				s.CloseNow()
			}
			return
		}
		http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	}
	l.serve("allowed.lab", "203.0.113.1", stream)
	l.serve("kept.lab", "203.0.113.2", stream)
	l.at("tcp.lab", "203.0.113.5")
	l.route("203.0.113.5:25", echoServer(t))
	allow := func(hosts ...string) func(policy.Request) policy.Verdict {
		return func(r policy.Request) policy.Verdict {
			for _, h := range hosts {
				if r.Host.String() == h {
					return policy.Verdict{Action: policy.Allow, PassThrough: h == "tcp.lab"}
				}
			}
			return policy.Verdict{}
		}
	}
	l.decide = allow("allowed.lab", "kept.lab", "tcp.lab")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	ended := make(chan string, 10)
	open := func(name, url string, c *http.Client) {
		c.Timeout = 0
		r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
		res, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		<-begun
		go func() { io.Copy(io.Discard, res.Body); res.Body.Close(); ended <- name }()
	}
	open("http1", "https://allowed.lab/", l.client(oneProtocol))
	open("http2", "https://allowed.lab/", l.client())
	open("plain", "http://allowed.lab/", l.client())
	open("transparent", "http://allowed.lab/", l.client(to(l.transparent("203.0.113.1:80"))))
	open("kept", "https://kept.lab/", l.client())
	c := l.client(oneProtocol)
	c.Timeout = 0
	s, _, err := websocket.Dial(ctx, "wss://allowed.lab/", &websocket.DialOptions{HTTPClient: c})
	if err != nil {
		t.Fatal(err)
	}
	go func() { s.Read(ctx); ended <- "websocket" }()
	tunnel := l.connect(t, "tcp.lab:25")
	go func() { tunnel.rest(); ended <- "tunnel" }()
	l.until("the tunnel's dial", func() bool {
		return len(l.dialledHosts) > 0 && l.dialledHosts[len(l.dialledHosts)-1] == "tcp.lab"
	})

	narrow := allow("kept.lab")
	l.mu.Lock()
	l.decide = narrow
	l.mu.Unlock()
	if cut := l.server.Rejudge(narrow); cut == 0 {
		t.Error("nothing was cut")
	}
	for range 6 {
		select {
		case name := <-ended:
			if name == "kept" {
				t.Error("what is still allowed was cut")
			}
		case <-ctx.Done():
			t.Fatal("something goes on")
		}
	}
	for l.server.Rejudge(narrow) != 0 { // cut flows are removed when they have ended
		if ctx.Err() != nil {
			t.Fatal("there is always more to cut")
		}
	}
	// A policy that requires interception cuts passed-through connections.
	l.mu.Lock()
	l.decide = allow("tcp.lab", "kept.lab")
	l.mu.Unlock()
	tunnel = l.connect(t, "tcp.lab:25")
	if line, _ := tunnel.r.ReadString('\n'); line != "220 ready\n" {
		t.Fatal(line)
	}
	if cut := l.server.Rejudge(func(policy.Request) policy.Verdict {
		return policy.Verdict{Action: policy.Allow}
	}); cut != 1 {
		t.Errorf("%d were cut", cut)
	}
	tunnel.rest()
}

// TestLimits: a client has a bounded share.
func TestLimits(t *testing.T) {
	l := newLab(t, func(o *Options) { o.MaxConnections = 3 })
	l.permit("allowed.lab")
	l.serve("allowed.lab", "203.0.113.1", nil)
	var held []*wire
	for range 3 {
		w := dialWire(t, l.explicit).send("GET http://allowed.lab/ HTTP/1.1\r\nHost: allowed.lab\r\n\r\n")
		w.response("GET")
		held = append(held, w)
	}
	if c, err := net.Dial("tcp", l.explicit); err == nil { // the refusal may come that late
		io.WriteString(c, "GET http://allowed.lab/ HTTP/1.1\r\nHost: allowed.lab\r\n\r\n")
		if got, _ := io.ReadAll(c); len(got) > 0 {
			t.Errorf("one too many: %q", got)
		}
		c.Close()
	}
	for _, w := range held {
		w.Close()
	}
	// Places are free as soon as the gateway has noticed.
	deadline := time.Now().Add(patience)
	for {
		res, err := l.client().Get("http://allowed.lab/")
		if err == nil {
			res.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no place becomes free: %v", err)
		}
	}
	for name, alter := range map[string]func(http.Header){
		"many": func(h http.Header) {
			for i := range maxHeadFields + 1 {
				h.Add("X-"+fmt.Sprint(i), "y")
			}
		},
		"large": func(h http.Header) { h.Set("X", strings.Repeat("y", 2*maxHeadBytes)) },
	} {
		for version, c := range map[string]*http.Client{"1": l.client(oneProtocol), "2": l.client()} {
			r, _ := http.NewRequest("GET", "https://allowed.lab/", nil)
			alter(r.Header)
			res, err := c.Do(r)
			if os.IsTimeout(err) {
				t.Errorf("%s headers in HTTP/%s: no answer", name, version)
			}
			if err == nil {
				res.Body.Close()
				if res.StatusCode/100 != 4 {
					t.Errorf("%s headers in HTTP/%s: %s", name, version, res.Status)
				}
			}
		}
	}
}

// TestNoSharing: requests to two names never share a connection to an origin, even if both have the same address and
// certificate (coalescing).
func TestNoSharing(t *testing.T) {
	l := newLab(t)
	l.permit("a.lab", "b.lab")
	var mu sync.Mutex
	seen := map[string]string{} // remote address to host
	ln := listen(t)
	server := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{*l.world.leaf(t, nil, "a.lab", "b.lab")},
		NextProtos: []string{"h2"}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if other, ok := seen[r.RemoteAddr]; ok && other != r.Host {
				t.Errorf("%s and %s share a connection", other, r.Host)
			}
			seen[r.RemoteAddr] = r.Host
		})}
	go server.ServeTLS(ln, "", "")
	t.Cleanup(func() { server.Close() })
	for _, name := range []string{"a.lab", "b.lab"} {
		l.at(name, "203.0.113.1")
	}
	l.route("203.0.113.1:443", ln)
	c := l.client()
	for range 3 {
		get(t, c, "https://a.lab/")
		get(t, c, "https://b.lab/")
	}
	if len(seen) != 2 {
		t.Errorf("%d connections", len(seen))
	}
}

// TestShut: Shut ends all activity and refuses new connections; Close closes the listeners as well.
func TestShut(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	begun := make(chan struct{})
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	idle, half := dialWire(t, l.explicit), l.connect(t, "allowed.lab:443")
	c := l.client()
	done := make(chan error)
	go func() { _, err := c.Get("https://allowed.lab/"); done <- err }()
	<-begun
	l.server.Shut()
	l.mu.Lock()
	recorded := slices.ContainsFunc(l.events, func(e Event) bool { return e.Request.Layer == policy.LayerHTTP })
	l.mu.Unlock()
	if err := <-done; err == nil || !recorded {
		t.Errorf("the request: %v, recorded: %v", err, recorded)
	}
	if got := idle.rest() + half.rest(); got != "" {
		t.Errorf("%q", got)
	}
	dials := len(l.dials())
	if late, err := net.Dial("tcp", l.explicit); err == nil { // the reset may come that early
		io.WriteString(late, "CONNECT allowed.lab:443 HTTP/1.1\r\nHost: allowed.lab:443\r\n\r\n")
		if got, _ := io.ReadAll(late); len(got) > 0 || len(l.dials()) != dials {
			t.Errorf("later: %q, %d connections to origins", got, len(l.dials())-dials)
		}
		late.Close()
	}
	l.server.Close()
	if c, err := net.Dial("tcp", l.explicit); err == nil {
		c.Close()
		t.Error("it listens after Close")
	}
	if err := l.server.ServeExplicit(listen(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("serving after Close: %v", err)
	}
}
