package redact

import (
	"io"
	"net/http"
	"slices"
	"strings"

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

// AcceptEncoding returns the supported part of a client's Accept-Encoding, with its weights; without the header, no
// compression.
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

// whole corrects the header of an answer that is forwarded uncompressed.
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
	for _, values := range h {
		for i, v := range values {
			values[i] = s.Text(v)
		}
	}
}

// body is an answer's redacted body.
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
