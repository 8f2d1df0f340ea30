package docker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
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

	mu        sync.Mutex
	complaint strings.Builder
}

const (
	kindOutput  = 1
	kindErrors  = 2
	kindMessage = 3

	// maxComplaint is how much of the guest's errors is kept.
	maxComplaint = 4 << 10
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
			if err := s.complain(n); err != nil {
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

// complain keeps the beginning and drops the rest.
func (s *stream) complain(n uint32) error {
	s.mu.Lock()
	room := min(int64(n), int64(maxComplaint-s.complaint.Len()))
	_, err := io.CopyN(&s.complaint, s.r, room)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, s.r, int64(n)-room)
	return err
}

// text returns the errors that the guest has written.
func (s *stream) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return printable(strings.TrimSpace(s.complaint.String()))
}

func (s *stream) Write(p []byte) (int, error) { return s.conn.Write(p) }

// Close implements io.Closer. With its input the guest ends.
func (s *stream) Close() error { return s.conn.Close() }
