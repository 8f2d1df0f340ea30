package redact

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/cove-sandbox/cove"
)

// Request changes a request's header so that its answer can be redacted: it accepts only codings that Response decodes,
// and requests no ranges, which could split a value.
func Request(h http.Header) {
	h.Set("Accept-Encoding", AcceptEncoding(h.Values("Accept-Encoding")))
	for _, name := range []string{"Range", "If-Range", "A-Im", "Available-Dictionary",
		"Sec-Websocket-Extensions", "Grpc-Accept-Encoding", "Connect-Accept-Encoding"} {
		h.Del(name)
	}
}

// AcceptEncoding returns the supported part of a client's Accept-Encoding, with its weights, or "identity".
func AcceptEncoding(header []string) string {
	var kept []string
	for _, line := range header {
		for element := range strings.SplitSeq(line, ",") {
			name := tokens([]string{element})
			if len(name) == 1 && decoders[name[0]] != nil {
				kept = append(kept, strings.TrimSpace(element))
			}
		}
	}
	if len(kept) == 0 {
		return "identity"
	}
	return strings.Join(kept, ", ")
}

// Response removes the values from an answer: from its header at once, from its body and trailer as they are read. A
// compressed body is forwarded uncompressed. The request must have been changed by Request. Errors: Unsupported when
// the body cannot be redacted; no part of the answer may be forwarded then.
func (s *Set) Response(r *http.Response) error {
	if s == nil || len(s.edges) == 0 {
		return nil
	}
	s.header(r.Header)
	s.header(r.Trailer)
	r.Status = s.Text(r.Status)
	if r.StatusCode == http.StatusSwitchingProtocols {
		return s.upgraded(r)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	applied, err := codings(r.Header.Values("Content-Encoding"))
	if err != nil {
		return err
	}
	for _, name := range []string{"Grpc-Encoding", "Connect-Content-Encoding"} {
		if inner := tokens(r.Header.Values(name)); len(inner) > 0 && !slices.Equal(inner, []string{"identity"}) {
			return unreadable("the messages of the answer are compressed with %.40q", inner)
		}
	}
	if len(applied) > 0 {
		if r.StatusCode == http.StatusPartialContent {
			return unreadable("the answer is a part of something compressed")
		}
		whole(r)
	}
	size := buffered
	if r.ContentLength >= 0 {
		size = int(min(r.ContentLength+1, buffered)) // one more, to see the end in the same read
	}
	r.Body = &body{reader: s.reader(decode(r.Body, applied), size), Closer: r.Body, set: s, response: r}
	return nil
}

func whole(r *http.Response) {
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Md5", "Content-Digest", "Digest",
		"Accept-Ranges"} {
		r.Header.Del(name)
	}
	if tag := r.Header.Get("Etag"); strings.HasPrefix(tag, `"`) {
		r.Header.Set("Etag", "W/"+tag) // the bytes differ now
	}
	r.ContentLength, r.Uncompressed = -1, true
}

func (s *Set) header(h http.Header) {
	for name, values := range h {
		for i, v := range values {
			values[i] = s.Text(v)
		}
		if clean := s.name(name); clean != name {
			delete(h, name)
			h[clean] = append(h[clean], values...)
		}
	}
}

type body struct {
	*reader
	io.Closer
	set      *Set
	response *http.Response
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	if err == io.EOF {
		b.set.header(b.response.Trailer) // complete at the end of the body
	}
	return n, err
}

// upgraded handles a connection that has switched protocols, such as a WebSocket; writes are unchanged.
func (s *Set) upgraded(r *http.Response) error {
	conn, ok := r.Body.(io.ReadWriteCloser)
	if !ok {
		return cove.Errorf(cove.Internal, "the answer switches protocols without a connection")
	}
	if extensions := tokens(r.Header.Values("Sec-Websocket-Extensions")); len(extensions) > 0 {
		return unreadable("the WebSocket uses %.40q", extensions)
	}
	r.Body = upgrade{s.Reader(conn), conn}
	return nil
}

type upgrade struct {
	io.Reader
	conn io.ReadWriteCloser
}

func (u upgrade) Write(p []byte) (int, error) { return u.conn.Write(p) }
func (u upgrade) Close() error                { return u.conn.Close() }

// CloseWrite closes the sending direction if the connection supports it.
func (u upgrade) CloseWrite() error {
	if half, ok := u.conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.conn.Close()
}

const (
	// maxCodings bounds the layers of compression of one body.
	maxCodings = 2
	// zstdWindow is the memory that RFC 9659 permits a zstd body to require.
	zstdWindow = 8 << 20
	// A body may expand to bombFloor bytes, and beyond that to bombRatio times its received size. Text compresses to a
	// tenth, and to a hundredth at best.
	bombFloor = 16 << 20
	bombRatio = 200
)

// decoders maps content codings to decoders. Each reads no more than the next bytes need: event streams flow.
var decoders = map[string]func(*bufio.Reader) (io.Reader, error){
	"gzip":    func(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip":  func(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"deflate": inflate,
	"zstd": func(r *bufio.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindow))
	},
}

// inflate decodes zlib, as RFC 9110 specifies, or raw deflate, which some servers send.
func inflate(r *bufio.Reader) (io.Reader, error) {
	if head, err := r.Peek(2); err == nil && head[0]&0xf == 8 && binary.BigEndian.Uint16(head)%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// codings returns the names in Content-Encoding as they were applied. Errors: Unsupported for unknown codings.
func codings(header []string) ([]string, error) {
	var all []string
	for _, name := range tokens(header) {
		if name == "identity" {
			continue
		}
		if decoders[name] == nil {
			return nil, unreadable("the answer is encoded as %.40q", name)
		}
		all = append(all, name)
	}
	if len(all) > maxCodings {
		return nil, unreadable("the answer is compressed %d times", len(all))
	}
	return all, nil
}

func unreadable(format string, args ...any) error {
	return cove.Errorf(cove.Unsupported, format+", which cannot be searched for credentials", args...).
		WithHint("ask for it without: Accept-Encoding: identity")
}

// tokens returns the elements of a list header, without parameters, in lower case.
func tokens(header []string) []string {
	var all []string
	for _, line := range header {
		for element := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(element, ";")
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
				all = append(all, name)
			}
		}
	}
	return all
}

func decode(body io.Reader, codings []string) io.Reader {
	if len(codings) == 0 {
		return body
	}
	in := &counter{from: body}
	out := io.Reader(in)
	for i := len(codings) - 1; i >= 0; i-- {
		out = &opener{from: out, open: decoders[codings[i]]}
	}
	return &fuse{from: out, in: in}
}

// opener opens a decoder, which waits for its header, at the first read: the answer's own header need not wait.
type opener struct {
	from io.Reader
	open func(*bufio.Reader) (io.Reader, error)
	out  io.Reader
	err  error
}

func (o *opener) Read(p []byte) (int, error) {
	if o.out == nil && o.err == nil {
		b := bufio.NewReader(o.from)
		if _, err := b.Peek(1); err == io.EOF {
			o.err = io.EOF // an empty body, as of answers without content
		} else {
			o.out, o.err = o.open(b)
		}
	}
	if o.err != nil {
		return 0, o.err
	}
	return o.out.Read(p)
}

type counter struct {
	from io.Reader
	n    int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// fuse ends a body that expands far beyond its received size.
type fuse struct {
	from io.Reader
	in   *counter
	out  int64
}

func (f *fuse) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if f.out += int64(n); f.out > bombFloor+bombRatio*f.in.n {
		return 0, cove.Errorf(cove.TooLarge, "the answer unfolds to more than %d times its size", bombRatio)
	}
	return n, err
}
