// Package pktline owns the framing of git's protocols: pkt-lines, and the side-bands in them (gitprotocol-common,
// gitprotocol-pack).
//
// Every length is hostile input. The format bounds the bytes of one line; the reader bounds the lines and the bytes in
// total. No line is kept beyond the next one.
package pktline

import (
	"fmt"
	"io"

	"github.com/cove-sandbox/cove"
)

// Sizes of the format, in bytes.
const (
	MaxLine = 65520       // including its length (gitprotocol-common)
	MaxData = MaxLine - 4 // excluding it
	MaxBand = MaxData - 1 // of data in a line of side-band-64k
	// SmallBand is MaxBand for side-band, which is older.
	SmallBand = 1000 - 4 - 1
)

// Kind is the kind of a packet.
type Kind int

const (
	Data        Kind = iota
	Flush            // 0000 ends a message
	Delim            // 0001 separates sections of a message, in protocol 2
	ResponseEnd      // 0002 ends an answer of protocol 2 where connections do not
)

func (k Kind) String() string {
	switch k {
	case Data:
		return "data"
	case Flush:
		return "flush"
	case Delim:
		return "delimiter"
	case ResponseEnd:
		return "response end"
	}
	return "unknown"
}

// Packet is one line. Data belongs to the reader, and is valid until its next call.
type Packet struct {
	Kind Kind
	Data []byte
}

// Text returns Data without the newline of text lines.
func (p Packet) Text() string {
	if n := len(p.Data); n > 0 && p.Data[n-1] == '\n' {
		return string(p.Data[:n-1])
	}
	return string(p.Data)
}

// Reader reads packets, and no byte beyond the last requested one: the underlying reader then stands at the next bytes
// (a pack).
type Reader struct {
	r     io.Reader
	left  int64
	lines int
	buf   []byte
}

// NewReader returns a reader of at most so many bytes and lines.
func NewReader(r io.Reader, bytes int64, lines int) *Reader {
	return &Reader{r: r, left: bytes, lines: lines}
}

// Next returns the next packet. Errors: io.EOF at the end of the stream between packets, io.ErrUnexpectedEOF within
// one, InvalidArgument for malformed input, TooLarge beyond the limits, and those of the underlying reader.
func (r *Reader) Next() (Packet, error) {
	if r.lines <= 0 || r.left < 4 {
		return Packet{}, cove.Errorf(cove.TooLarge, "a message of git's protocol has too many lines, or too many bytes")
	}
	if r.buf == nil {
		r.buf = make([]byte, 1024)
	}
	if _, err := io.ReadFull(r.r, r.buf[:4]); err != nil {
		return Packet{}, err
	}
	length, ok := parseLength(r.buf[:4])
	r.left, r.lines = r.left-4, r.lines-1
	switch {
	case !ok || length == 3 || length > MaxLine:
		return Packet{}, cove.Errorf(cove.InvalidArgument, "%q is no length of a line of git's protocol", r.buf[:4])
	case length < 4:
		return Packet{Kind: Kind(length + 1)}, nil
	}
	length -= 4
	if int64(length) > r.left {
		return Packet{}, cove.Errorf(cove.TooLarge, "a message of git's protocol has too many bytes")
	}
	r.left -= int64(length)
	if length > len(r.buf) {
		r.buf = make([]byte, MaxData)
	}
	if _, err := io.ReadFull(r.r, r.buf[:length]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Packet{}, err
	}
	return Packet{Data: r.buf[:length]}, nil
}

// parseLength parses exactly four hexadecimal digits.
func parseLength(digits []byte) (n int, ok bool) {
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | int(c)
	}
	return n, true
}

// Writer writes packets. After an error it writes no more, and returns the error from every call.
type Writer struct {
	w   io.Writer
	err error
	buf []byte
}

// NewWriter returns a writer to w, with one write for each packet.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Data writes one line, of at most MaxData bytes. Errors: TooLarge.
func (w *Writer) Data(data []byte) error { return w.line(nil, data) }

// Text writes one line with a final newline.
func (w *Writer) Text(format string, args ...any) error {
	return w.Data(fmt.Appendf(nil, format+"\n", args...))
}

// Flush writes the packet of its name, as do Delim and ResponseEnd.
func (w *Writer) Flush() error       { return w.raw([]byte("0000")) }
func (w *Writer) Delim() error       { return w.raw([]byte("0001")) }
func (w *Writer) ResponseEnd() error { return w.raw([]byte("0002")) }

// Packet writes a packet as it was read.
func (w *Writer) Packet(p Packet) error {
	switch p.Kind {
	case Data:
		return w.Data(p.Data)
	case Flush:
		return w.Flush()
	case Delim:
		return w.Delim()
	}
	return w.ResponseEnd()
}

func (w *Writer) line(prefix, data []byte) error {
	n := len(prefix) + len(data)
	if n > MaxData {
		return cove.Errorf(cove.TooLarge, "a line of git's protocol has %d bytes at most, not %d", MaxData, n)
	}
	w.buf = fmt.Appendf(w.buf[:0], "%04x", n+4)
	w.buf = append(append(w.buf, prefix...), data...)
	return w.raw(w.buf)
}

func (w *Writer) raw(p []byte) error {
	if w.err == nil {
		_, w.err = w.w.Write(p)
	}
	return w.err
}

// Band is a stream of a side-band.
type Band byte

const (
	Payload  Band = 1 // a pack, a report
	Progress Band = 2 // shown after "remote: "
	Fatal    Band = 3 // shown, and ends the stream
)

// Band returns a writer to a band, in lines of at most size bytes each: MaxBand or SmallBand.
func (w *Writer) Band(b Band, size int) io.Writer { return &bandWriter{w, b, size} }

type bandWriter struct {
	w    *Writer
	band Band
	size int
}

func (b *bandWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), b.size)]
		if err := b.w.line([]byte{byte(b.band)}, part); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// Demux reads the payload of a side-band, until a flush. It passes Progress to progress, unless that is nil.
type Demux struct {
	r        *Reader
	progress func([]byte)
	rest     []byte
	err      error
}

// NewDemux returns a reader of the payload in r.
func NewDemux(r *Reader, progress func([]byte)) *Demux { return &Demux{r: r, progress: progress} }

// Read implements io.Reader. Errors: those of Next; InvalidArgument outside a side-band; Unavailable with the server's
// fatal message.
func (d *Demux) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.err == nil {
			d.err = d.next()
		}
		if d.err != nil {
			return 0, d.err
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *Demux) next() error {
	p, err := d.r.Next()
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case p.Kind != Data:
		return io.EOF
	case len(p.Data) == 0:
		return cove.Errorf(cove.InvalidArgument, "a line of a side-band says not which")
	}
	switch data := p.Data[1:]; Band(p.Data[0]) {
	case Payload:
		d.rest = data
	case Progress:
		if d.progress != nil {
			d.progress(data)
		}
	case Fatal:
		return cove.Errorf(cove.Unavailable, "the git server gives up: %q", data)
	default:
		return cove.Errorf(cove.InvalidArgument, "there is no side-band %d", p.Data[0])
	}
	return nil
}
