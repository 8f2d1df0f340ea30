package docker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/cove-sandbox/cove/internal/engine/local"
)

// stream is the guest's standard streams as one connection. The daemon sends output and errors as frames of one stream:
//
//	kind    1 byte: 1 is output, 2 errors, 3 a message of the daemon's
//	zero    3 bytes
//	length  4 bytes, big endian
//
// Output is the guest protocol; the others are kept to explain a failure.
type stream struct {
	conn net.Conn
	r    *bufio.Reader
	left uint32 // of the current frame of output; owned by the reader

	complaint local.Complaint
}

const (
	kindOutput  = 1
	kindErrors  = 2
	kindMessage = 3
)

func (s *stream) Read(p []byte) (int, error) {
	for s.left == 0 {
		var h [8]byte
		if _, err := io.ReadFull(s.r, h[:]); err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint32(h[4:])
		switch {
		case h[1]|h[2]|h[3] != 0:
			return 0, fmt.Errorf("the Docker daemon sends something else than a stream")
		case h[0] == kindOutput:
			s.left = n
		case h[0] == kindErrors || h[0] == kindMessage:
			if _, err := io.CopyN(&s.complaint, s.r, int64(n)); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("the Docker daemon sends a stream of kind %d", h[0])
		}
	}
	n, err := s.r.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n)
	return n, err
}

func (s *stream) Write(p []byte) (int, error) { return s.conn.Write(p) }

// SetWriteDeadline bounds how long Write waits.
func (s *stream) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }

// Close implements io.Closer. With its input the guest ends.
func (s *stream) Close() error { return s.conn.Close() }
