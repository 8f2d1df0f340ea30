// Package guest is the protocol between Cove and the guest, PID 1 of every sandbox or the keeper of its processes, and
// its host side, [Client].
//
// # The wire
//
// Both sides exchange frames over one byte stream (a socket pair, a unix socket, a container's stdio). A frame is
//
//	length  4 bytes, big endian: of the payload, at most MaxPayload
//	type    1 byte
//	id      4 bytes, big endian: the request or process it belongs to
//	payload
//
// The guest speaks first, with a Hello. Afterwards the host sends requests and the guest answers each with a Reply or a
// Failure of the same id. A request and its answer are JSON, optionally followed by raw bytes (file contents),
// optionally with descriptors where the stream can carry them.
//
// # Streams that survive a reconnect
//
// Output and input are windows over an endless stream. Every chunk carries the offset of its first byte, and the
// receiver acknowledges the offset up to which it has consumed the stream. The sender retains unacknowledged bytes, at
// most Window of them, and after a reconnect sends them again from the offset that the receiver names. A slow reader
// therefore stalls the program, and no buffer grows.
//
// # Trust
//
// The host treats every byte from the guest as hostile: an unknown type, an unexpected id, a gap in the offsets, an
// overrun window or an oversized frame ends the connection with a ProtocolError.
package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Version is the version of the protocol; both sides must have the same.
const Version = 1

const (
	// MaxPayload bounds a frame's payload, and so the size of one request.
	MaxPayload = 1 << 20
	// MaxChunk bounds the bytes of one stream or file frame.
	MaxChunk = 32 << 10
	// Window bounds the bytes of a stream that are sent and not yet acknowledged.
	Window = 256 << 10

	headerSize = 9
)

// FrameType is the kind of a frame's payload.
type FrameType byte

const (
	FrameHello   FrameType = 1 // guest → host: JSON Hello
	FrameRequest FrameType = 2 // host → guest: Body of a Request
	FrameReply   FrameType = 3 // guest → host: Body of the operation's result
	FrameFailure FrameType = 4 // guest → host: JSON Failure
	FrameStdin   FrameType = 5 // host → guest: Chunk; empty data is end of file
	FrameStdout  FrameType = 6 // guest → host: Chunk
	FrameStderr  FrameType = 7 // guest → host: Chunk
	FrameAck     FrameType = 8 // both ways: Ack
	FrameExit    FrameType = 9 // guest → host: JSON Exit, no output follows; host → guest: empty, acknowledges it
)

// Stream names one of a process's streams in an Ack.
type Stream byte

const (
	Stdin  Stream = 0
	Stdout Stream = 1
	Stderr Stream = 2
)

// Frame is one message.
type Frame struct {
	Type    FrameType
	ID      uint32
	Payload []byte
}

// ProtocolError reports a violation of the protocol by the other side. The connection has ended.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "guest protocol: " + e.Reason }

func violation(format string, args ...any) error {
	return &ProtocolError{Reason: fmt.Sprintf(format, args...)}
}

// ReadFrame reads one frame into a payload of its own. It returns io.EOF only between frames.
func ReadFrame(r io.Reader) (Frame, error) {
	return readFrame(r, func() []byte { return nil })
}

// readFrame is ReadFrame. The payload of output lies in the buffer that space returns, if that is long
// enough.
func readFrame(r io.Reader, space func() []byte) (Frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(h[:])
	f := Frame{Type: FrameType(h[4]), ID: binary.BigEndian.Uint32(h[5:])}
	if f.Type < FrameHello || f.Type > FrameExit {
		return Frame{}, violation("unknown frame type %d", f.Type)
	}
	if n > MaxPayload {
		return Frame{}, violation("frame of %d bytes, at most %d are allowed", n, MaxPayload)
	}
	var payload []byte
	if f.Type == FrameStdout || f.Type == FrameStderr {
		payload = space()
	}
	var err error
	if int(n) <= len(payload) {
		payload = payload[:n]
		_, err = io.ReadFull(r, payload)
	} else {
		payload, err = readPayload(r, int(n))
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	f.Payload = payload
	return f, err
}

// readPayload allocates as bytes arrive, so that a hostile length alone costs no memory.
func readPayload(r io.Reader, n int) ([]byte, error) {
	const step = 64 << 10
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		k := min(step, n-len(b))
		b = append(b, make([]byte, k)...)
		if _, err := io.ReadFull(r, b[len(b)-k:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// AppendFrame appends f's wire form to b.
func AppendFrame(b []byte, f Frame) ([]byte, error) {
	if len(f.Payload) > MaxPayload {
		return b, violation("frame of %d bytes, at most %d are allowed", len(f.Payload), MaxPayload)
	}
	return append(appendHeader(b, len(f.Payload), f.Type, f.ID), f.Payload...), nil
}

func appendHeader(b []byte, length int, t FrameType, id uint32) []byte {
	b = append(binary.BigEndian.AppendUint32(b, uint32(length)), byte(t))
	return binary.BigEndian.AppendUint32(b, id)
}

// Conn carries frames. A stream that can pass descriptors also implements FDConn; linux/unixconn does.
type Conn = io.ReadWriteCloser

// FDConn is a Conn that passes descriptors with its bytes.
type FDConn interface {
	Conn
	// WriteFDs writes all of p with fds attached to its first byte.
	WriteFDs(p []byte, fds []int) error
	// TakeFDs removes the first n descriptors that have been received.
	TakeFDs(n int) ([]*os.File, error)
}

var errNoFDs = errors.New("this connection carries no descriptors")

// Link is either side of a connection. Send may be called concurrently.
type Link struct {
	Conn
	mu sync.Mutex // serialises frames
}

// SendChunk writes a frame of a stream. It leaves no garbage: streams are most of what is sent.
func (l *Link) SendChunk(t FrameType, id uint32, c Chunk) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	buf := chunkBuffers.Get().(*chunkBuffer)
	defer chunkBuffers.Put(buf)
	b := appendHeader(buf[:0], 8+len(c.Data), t, id)
	_, err := l.Write(append(binary.BigEndian.AppendUint64(b, c.Offset), c.Data...))
	return err
}

// chunkBuffer has room for the frame of a chunk.
type chunkBuffer [headerSize + 8 + MaxChunk]byte

// chunkBuffers holds buffers of chunks that are under way. A stream without any takes none.
var chunkBuffers = sync.Pool{New: func() any { return new(chunkBuffer) }}

// Send writes one frame, with fds attached to its first byte.
func (l *Link) Send(f Frame, fds ...int) error {
	b, err := AppendFrame(make([]byte, 0, headerSize+len(f.Payload)), f)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(fds) == 0 {
		_, err = l.Write(b)
		return err
	}
	if fc, ok := l.Conn.(FDConn); ok {
		return fc.WriteFDs(b, fds)
	}
	return errNoFDs
}

// TakeFDs removes the first n descriptors that have been received.
func (l *Link) TakeFDs(n int) ([]*os.File, error) {
	if n == 0 {
		return nil, nil
	}
	if fc, ok := l.Conn.(FDConn); ok {
		return fc.TakeFDs(n)
	}
	return nil, errNoFDs
}

// Chunk is a piece of a stream: Data starts Offset bytes after the stream's beginning.
type Chunk struct {
	Offset uint64
	Data   []byte
}

// Payload returns c's wire form: 8 bytes of offset, then the data.
func (c Chunk) Payload() []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(c.Data)), c.Offset), c.Data...)
}

// ParseChunk is the reverse of Chunk.Payload; Data aliases p.
func ParseChunk(p []byte) (Chunk, error) {
	if len(p) < 8 || len(p) > 8+MaxChunk {
		return Chunk{}, violation("chunk of %d bytes", len(p))
	}
	return Chunk{Offset: binary.BigEndian.Uint64(p), Data: p[8:]}, nil
}

// Ack acknowledges everything of Stream before Offset.
type Ack struct {
	Stream Stream
	Offset uint64
}

// Payload returns a's wire form: the stream, then 8 bytes of offset.
func (a Ack) Payload() []byte { return binary.BigEndian.AppendUint64([]byte{byte(a.Stream)}, a.Offset) }

// ParseAck is the reverse of Ack.Payload.
func ParseAck(p []byte) (Ack, error) {
	if len(p) != 9 || p[0] > byte(Stderr) {
		return Ack{}, violation("malformed acknowledgement")
	}
	return Ack{Stream: Stream(p[0]), Offset: binary.BigEndian.Uint64(p[1:])}, nil
}

// Body is JSON followed by raw bytes.
type Body struct {
	JSON []byte
	Raw  []byte
}

// Payload returns b's wire form: 4 bytes of the JSON's length, the JSON, the raw bytes.
func (b Body) Payload() []byte {
	p := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b.JSON)+len(b.Raw)), uint32(len(b.JSON)))
	return append(append(p, b.JSON...), b.Raw...)
}

// ParseBody is the reverse of Body.Payload; both parts alias p.
func ParseBody(p []byte) (Body, error) {
	if len(p) < 4 {
		return Body{}, violation("body of %d bytes", len(p))
	}
	n := binary.BigEndian.Uint32(p)
	if uint64(n) > uint64(len(p)-4) {
		return Body{}, violation("body claims %d bytes of JSON and has %d", n, len(p)-4)
	}
	return Body{JSON: p[4 : 4+n], Raw: p[4+n:]}, nil
}

// DecodeJSON decodes one JSON value from the other side into v.
func DecodeJSON(p []byte, v any) error {
	if err := json.Unmarshal(p, v); err != nil {
		return violation("malformed JSON: %v", err)
	}
	return nil
}
