package redact

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/cove-sandbox/cove"
)

const key = "sk-ant-api03-Zm9vYmFy_0123456789-abcdefAA"

var stars = strings.Repeat("*", len(key))

// flusher is a compressor that can flush.
type flusher interface {
	io.WriteCloser
	Flush() error
}

var compressors = map[string]func(io.Writer) flusher{
	"gzip":    func(w io.Writer) flusher { return gzip.NewWriter(w) },
	"x-gzip":  func(w io.Writer) flusher { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) flusher { return zlib.NewWriter(w) },
	"zstd":    func(w io.Writer) flusher { z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)); return z },
	"deflate without a header": func(w io.Writer) flusher {
		f, _ := flate.NewWriter(w, flate.DefaultCompression)
		return f
	},
}

func compress(coding, text string) []byte {
	var b bytes.Buffer
	w := compressors[coding](&b)
	io.WriteString(w, text)
	w.Close()
	return b.Bytes()
}

func answer(coding string, body io.Reader) *http.Response {
	r := &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(body), ContentLength: -1}
	if coding, _, _ = strings.Cut(coding, " "); coding != "" {
		r.Header.Set("Content-Encoding", coding)
	}
	return r
}

func TestCompressedBodies(t *testing.T) {
	s := compile(t, key)
	text := strings.Repeat("text with "+key+"\n", 500)
	want := strings.ReplaceAll(text, key, stars)
	for coding := range compressors {
		body := compress(coding, text)
		r := answer(coding, bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		for name, value := range map[string]string{"Content-Length": fmt.Sprint(len(body)), "Etag": `"tag"`,
			"Content-Md5": "x", "Content-Digest": "x", "Digest": "x", "Accept-Ranges": "bytes", "Vary": "Accept-Encoding"} {
			r.Header.Set(name, value)
		}
		if err := s.Response(r); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", coding, len(got), err)
		}
		if want := (http.Header{"Content-Type": {"text/plain"}, "Vary": {"Accept-Encoding"},
			"Etag": {`W/"tag"`}}); fmt.Sprint(r.Header) != fmt.Sprint(want) || r.ContentLength != -1 {
			t.Errorf("%s: the header is %v, length %d", coding, r.Header, r.ContentLength)
		}
	}
}

func TestCodings(t *testing.T) {
	s := compile(t, key)
	text := "a " + key + " z"
	twice := compress("zstd", string(compress("gzip", text)))
	for name, c := range map[string]struct {
		header []string
		body   []byte
		ok     bool
	}{
		"two":             {[]string{"gzip, zstd"}, twice, true},
		"in two lines":    {[]string{"GZip", "zstd"}, twice, true},
		"identity":        {[]string{"identity"}, []byte(text), true},
		"several members": {[]string{"gzip"}, append(compress("gzip", text[:8]), compress("gzip", text[8:])...), true},
		"no body":         {[]string{"gzip"}, nil, true},
		"brotli":          {[]string{"br"}, []byte(text), false},
		"unknown":         {[]string{"gzip, x-secret"}, []byte(text), false},
		"too many": {[]string{"gzip, gzip, gzip"},
			compress("gzip", string(compress("gzip", string(compress("gzip", text))))), false},
	} {
		r := answer("", bytes.NewReader(c.body))
		r.Header["Content-Encoding"] = c.header
		err := s.Response(r)
		if !c.ok {
			if cove.ErrorCode(err) != cove.Unsupported || cove.ErrorHint(err) == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := strings.ReplaceAll(text, key, stars)
		if c.body == nil {
			want = ""
		}
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, change := range map[string]func(*http.Response){
		"a part of something compressed": func(r *http.Response) {
			r.StatusCode = 206
			r.Header.Set("Content-Encoding", "gzip")
		},
		"compressed gRPC messages":    func(r *http.Response) { r.Header.Set("Grpc-Encoding", "gzip") },
		"compressed Connect messages": func(r *http.Response) { r.Header.Set("Connect-Content-Encoding", "zstd") },
	} {
		r := answer("", strings.NewReader(text))
		change(r)
		if err := s.Response(r); cove.ErrorCode(err) != cove.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := answer("", strings.NewReader(text))
	r.Header.Set("Grpc-Encoding", "identity")
	if err := s.Response(r); err != nil {
		t.Errorf("plain gRPC messages: %v", err)
	}
}

// TestCompressorsOfOthers decodes the output of other programs.
func TestCompressorsOfOthers(t *testing.T) {
	s := compile(t, key)
	text := strings.Repeat("text with "+key+"\n", 5000)
	for coding, command := range map[string][]string{"gzip": {"gzip", "-9"}, "zstd": {"zstd", "-19", "-c"}} {
		t.Run(coding, func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skipf("%s is not installed", command[0])
			}
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			cmd.Stdin = strings.NewReader(text)
			body, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			r := answer(coding, bytes.NewReader(body))
			if err := s.Response(r); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != strings.ReplaceAll(text, key, stars) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

func TestBrokenBodies(t *testing.T) {
	s := compile(t, key)
	for coding := range compressors {
		whole := compress(coding, strings.Repeat("text ", 1000))
		for name, body := range map[string][]byte{"cut": whole[:len(whole)-5],
			"garbage": []byte("garbage, not compressed at all"), "one byte": whole[:1]} {
			r := answer(coding, bytes.NewReader(body))
			if err := s.Response(r); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Errorf("%s, %s: read without an error", coding, name)
			}
		}
	}
}

// TestBombs: a body that expands without bound is ended.
func TestBombs(t *testing.T) {
	s := compile(t, key)
	for _, coding := range []string{"gzip", "deflate", "zstd"} {
		var body bytes.Buffer
		w := compressors[coding](&body)
		io.CopyN(w, repeat{0}, 2*bombFloor)
		w.Close()
		r := answer(coding, &body)
		if err := s.Response(r); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r.Body)
		if cove.ErrorCode(err) != cove.TooLarge || n >= 2*bombFloor {
			t.Errorf("%s: %d MiB, %v", coding, n>>20, err)
		}
	}
	// A window larger than the permitted memory.
	var body bytes.Buffer
	w, err := zstd.NewWriter(&body, zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	io.CopyN(w, repeat{0}, 65<<20)
	w.Close()
	r := answer("zstd", &body)
	if err := s.Response(r); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r.Body); n != 0 || !errors.Is(err, zstd.ErrWindowSizeExceeded) {
		t.Errorf("a window of 64 MiB: %d bytes, %v", n, err)
	}
}

// TestCompressedStreamsFlow: flushed bytes arrive, whether or not more follow.
func TestCompressedStreamsFlow(t *testing.T) {
	s := compile(t, key)
	for coding, compressor := range compressors {
		in, out := io.Pipe()
		r := answer(coding, in)
		if err := s.Response(r); err != nil { // no byte has arrived yet
			t.Fatal(err)
		}
		step := make(chan bool)
		go func() {
			w := compressor(out)
			for <-step {
				io.WriteString(w, "data: "+key+"\n\n")
				w.Flush()
			}
			w.Close()
			out.Close()
		}()
		lines := bufio.NewReader(r.Body)
		for range 3 {
			step <- true
			line, err := lines.ReadString('\n')
			empty, _ := lines.ReadString('\n')
			if line != "data: "+stars+"\n" || empty != "\n" || err != nil {
				t.Fatalf("%s: %q, %v", coding, line, err)
			}
		}
		step <- false
		if rest, err := io.ReadAll(lines); len(rest) != 0 || err != nil {
			t.Errorf("%s: at the end %q, %v", coding, rest, err)
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestHeaders(t *testing.T) {
	s := compile(t, key)
	r := answer("", strings.NewReader(""))
	r.Status = "401 " + key
	r.Header = http.Header{"X-Echo": {"a " + key, key}, "Set-Cookie": {"k=" + key + "; Path=/"},
		"Location":         {"https://other.example/?k=" + url.QueryEscape(key)},
		"Www-Authenticate": {"Basic dXNlcjpzay1hbnQtYXBpMDMtWm05dlltRnlfMDEyMzQ1Njc4OS1hYmNkZWZBQQ=="}, "Date": {"today"},
		http.CanonicalHeaderKey("X-" + key): {"1"}}
	r.Trailer = http.Header{http.CanonicalHeaderKey(key): nil}
	if err := s.Response(r); err != nil {
		t.Fatal(err)
	}
	r.Trailer[http.CanonicalHeaderKey("Late-"+key)] = []string{key} // as with the end of a body
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(r.Trailer), fmt.Sprint(http.Header{stars: nil, "Late-" + stars: {stars}}); got != want ||
		r.Header.Get("X-"+stars) != "1" {
		t.Errorf("the trailer is %s, want %s; the header %v", got, want, r.Header)
	}
	out := fmt.Sprint(r.Header, r.Status)
	if strings.Contains(out, key) || strings.Contains(out, "YW50LWFwaTAz") || !strings.Contains(out, "Date:[today]") ||
		!strings.Contains(out, "k="+stars+"; Path=/") {
		t.Errorf("the header is %s", out)
	}
}

func TestRequest(t *testing.T) {
	h := http.Header{}
	for _, name := range []string{"Range", "If-Range", "Sec-WebSocket-Extensions", "Grpc-Accept-Encoding",
		"connect-accept-encoding", "Available-Dictionary", "A-IM"} {
		h.Set(name, "x")
	}
	h.Add("Accept-Encoding", "gzip;q=0.5, br")
	h.Add("Accept-Encoding", "zstd")
	h.Set("Accept", "text/html")
	Request(h)
	if want := (http.Header{"Accept": {"text/html"}, "Accept-Encoding": {"gzip;q=0.5, zstd"}}); fmt.Sprint(
		h) != fmt.Sprint(want) {
		t.Errorf("the header is %v, want %v", h, want)
	}
	for in, want := range map[string]string{"": "identity", "br": "identity", "*": "identity",
		"br, GZIP , dcz;q=1": "GZIP", "gzip, deflate, br, zstd": "gzip, deflate, zstd", ",,;": "identity"} {
		if got := AcceptEncoding([]string{in}); got != want {
			t.Errorf("AcceptEncoding(%q) = %q, want %q", in, got, want)
		}
	}
	if got := AcceptEncoding(nil); got != "identity" {
		t.Errorf("AcceptEncoding(nil) = %q", got)
	}
}

// TestThroughAProxy uses a real origin, proxy and client, with HTTP/1.1 and HTTP/2.
func TestThroughAProxy(t *testing.T) {
	s := compile(t, key)
	origin := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		w.Header().Set("Trailer", "X-Trailer")
		echo := "you sent " + r.Header.Get("Authorization") + "\n"
		switch r.URL.Path {
		case "/sized":
			w.Header().Del("Trailer")
			w.Header().Set("Content-Length", fmt.Sprint(len(echo)))
			io.WriteString(w, echo)
		case "/chunked":
			for i := range len(echo) { // cut into single bytes
				io.WriteString(w, echo[i:i+1])
				w.(http.Flusher).Flush()
			}
			w.Header().Set("X-Trailer", r.Header.Get("Authorization"))
		case "/gzip":
			if r.Header.Get("Accept-Encoding") != "gzip" {
				t.Errorf("the origin was asked for %q", r.Header.Get("Accept-Encoding"))
			}
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(compress("gzip", echo))
		case "/br":
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, echo)
		case "/head":
			w.Header().Set("Content-Length", "1000")
		}
	}
	for _, h2 := range []bool{false, true} {
		upstream := httptest.NewUnstartedServer(http.HandlerFunc(origin))
		upstream.EnableHTTP2 = h2
		upstream.StartTLS()
		target, _ := url.Parse(upstream.URL)
		proxy := httptest.NewServer(&httputil.ReverseProxy{
			Transport: upstream.Client().Transport,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				Request(r.Out.Header)
				r.Out.Header.Set("Authorization", "Bearer "+key)
			},
			ModifyResponse: s.Response,
			ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, err error) { http.Error(w, err.Error(), 502) },
		})
		for _, path := range []string{"/sized", "/chunked", "/gzip", "/br", "/head"} {
			t.Run(fmt.Sprintf("h2=%v%s", h2, path), func(t *testing.T) {
				method := "GET"
				if path == "/head" {
					method = "HEAD"
				}
				q, _ := http.NewRequestWithContext(t.Context(), method, proxy.URL+path, nil)
				q.Header.Set("Accept-Encoding", "gzip, br")
				q.Header.Set("Range", "bytes=0-3")
				r, err := proxy.Client().Do(q)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				all := fmt.Sprint(r.Header, r.Trailer, string(got))
				if strings.Contains(all, key) {
					t.Errorf("the key came back: %s", all)
				}
				switch path {
				case "/br":
					if r.StatusCode != 502 {
						t.Errorf("an answer that cannot be read: %s %s", r.Status, got)
					}
				case "/head":
					if r.ContentLength != 1000 {
						t.Errorf("the length of HEAD is %d", r.ContentLength)
					}
				default:
					if string(got) != "you sent Bearer "+stars+"\n" || r.Header.Get("X-Echo") != "Bearer "+stars {
						t.Errorf("%s: %s", r.Status, all)
					}
					if path == "/sized" && r.ContentLength != int64(len(got)) {
						t.Errorf("the length is %d", r.ContentLength)
					}
					if path == "/chunked" && r.Trailer.Get("X-Trailer") != "Bearer "+stars {
						t.Errorf("the trailer is %v", r.Trailer)
					}
				}
			})
		}
		proxy.Close()
		upstream.Client().CloseIdleConnections()
		upstream.Close()
	}
}

// TestUpgrade: after a switch of protocols, both directions work, and frames keep their length.
func TestUpgrade(t *testing.T) {
	s := compile(t, key)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	here, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Response{StatusCode: 101, Header: http.Header{"Upgrade": {"websocket"}}, Body: here}
	if err := s.Response(r); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() {
		ping, _ := io.ReadAll(there)                  // the other direction stays open
		fmt.Fprintf(there, "\x81%c%s", len(key), key) // one text frame
		there.Close()
		done <- string(ping)
	}()
	if _, err := io.WriteString(r.Body.(io.Writer), "ping"); err != nil {
		t.Fatal(err)
	}
	if err := r.Body.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	if want := fmt.Sprintf("\x81%c%s", len(key), stars); string(got) != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if ping := <-done; ping != "ping" {
		t.Errorf("the other side got %q", ping)
	}
	r.Body.Close()

	for name, r := range map[string]*http.Response{
		"compressed frames": {StatusCode: 101, Header: http.Header{"Sec-Websocket-Extensions": {"permessage-deflate"}},
			Body: here},
		"no connection": {StatusCode: 101, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))},
	} {
		if err := s.Response(r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzResponse(f *testing.F) {
	for coding := range compressors {
		f.Add(coding, compress(coding, "text with "+key))
	}
	f.Add("gzip, zstd", compress("zstd", string(compress("gzip", "text with "+key))))
	f.Add("br", []byte("x"))
	f.Fuzz(func(t *testing.T, coding string, body []byte) {
		s := compile(t, key)
		r := answer("", bytes.NewReader(body))
		r.Header.Set("Content-Encoding", coding)
		if err := s.Response(r); err != nil {
			return
		}
		got, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if bytes.Contains(got, []byte(key)) {
			t.Errorf("the key came back: %q", got)
		}
	})
}

// BenchmarkResponse measures a whole answer of 1 KiB with the header of an API.
func BenchmarkResponse(b *testing.B) {
	s := compile(b, key, "ghp_0123456789abcdefABCDEF0123456789abcd")
	header := http.Header{"Content-Type": {"application/json"}, "Date": {"Sat, 21 Nov 2026 11:08:21 GMT"},
		"Cache-Control": {"no-cache, no-store, private"}, "Cf-Ray": {"8f1e2d3c4b5a6978-FRA"},
		"Request-Id": {"req_011CSHoEeqs5C35K2UUqR7Fy"}, "Server": {"origin"},
		"Strict-Transport-Security": {"max-age=31536000; includeSubDomains; preload"}, "Vary": {"Accept-Encoding, Origin"},
		"X-Ratelimit-Remaining": {"4999"}, "X-Ratelimit-Reset": {"2026-11-21T11:09:00Z"}, "Via": {"1.1 edge"},
		"X-Request-Id": {"0f8fad5b-d9cb-469f-a165-70867728950e"}}
	body := strings.Repeat(`{"type":"message","text":"what it says"},`, 25)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r := &http.Response{StatusCode: 200, Status: "200 OK", Header: header, Body: io.NopCloser(strings.NewReader(body)),
			ContentLength: int64(len(body))}
		if err := s.Response(r); err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, struct{ io.Reader }{r.Body})
	}
}
