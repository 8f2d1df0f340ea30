package redact

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/cove-sandbox/cove"
)

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

// decoders maps content codings to decoders. A decoder reads no more than it needs for the next bytes, so that a
// compressed event stream flows.
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

// codings returns the names in Content-Encoding, in the order of their application. Errors: Unsupported for unknown
// codings.
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

// decode removes codings from a body.
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

// opener opens a decoder at the first read, because opening waits for the decoder's header, and the answer's own header
// need not wait.
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

// counter counts received bytes.
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
