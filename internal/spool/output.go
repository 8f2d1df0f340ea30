package spool

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/cove-sandbox/cove"
)

// Output holds the bytes that a program writes to its two streams. It has one holder at first; nothing of it is left
// once every holder has released it. A nil Output is empty.
type Output struct {
	spool          *Spool
	who            cove.Principal // whose share of the bounds it takes
	stdout, stderr Stream

	mu      sync.Mutex
	holders int
	file    *os.File // of both streams, once one is longer than its beginning
}

// Stream is one stream of an Output.
type Stream struct {
	of    *Output
	limit int64
	base  int64 // its first byte's place in the file, if all of it were there

	// Guarded by of.mu.
	pieces   [][]byte // of its beginning
	begun    int64    // bytes of them
	size     int64
	reserved int64 // bytes of the file, from begun on
	dropped  bool  // no more is kept
}

// New returns an output of a principal, whose streams are kept up to a limit each, in bytes.
func (s *Spool) New(who cove.Principal, stdout, stderr int64) *Output {
	o := &Output{spool: s, who: who, holders: 1}
	o.stdout = Stream{of: o, limit: stdout}
	o.stderr = Stream{of: o, limit: stderr, base: stdout}
	return o
}

// Text returns an output that lies in memory outside every budget.
func Text(stdout, stderr string) *Output {
	unbounded := New(Options{})
	o := unbounded.New(cove.Principal{}, int64(len(stdout)), int64(len(stderr)))
	for s, text := range map[*Stream]string{&o.stdout: stdout, &o.stderr: stderr} {
		s.begun, s.size = int64(len(text)), int64(len(text))
		s.pieces = [][]byte{[]byte(text)}
	}
	return o
}

// ErrNoRoom says that the bounds leave no room for a text.
var ErrNoRoom = errors.New("the outputs of executions take all the room that there is for them")

// Of returns an output of two texts, for a principal. Errors: ErrNoRoom.
func (s *Spool) Of(who cove.Principal, stdout, stderr string) (*Output, error) {
	o := s.New(who, int64(len(stdout)), int64(len(stderr)))
	if o.stdout.Write([]byte(stdout)) < len(stdout) || o.stderr.Write([]byte(stderr)) < len(stderr) {
		o.Release()
		return nil, ErrNoRoom
	}
	return o, nil
}

// empty is the stream of no output.
var empty = &Stream{of: &Output{}}

// Stdout returns the output's first stream.
func (o *Output) Stdout() *Stream {
	if o == nil {
		return empty
	}
	return &o.stdout
}

// Stderr returns the output's second stream.
func (o *Output) Stderr() *Stream {
	if o == nil {
		return empty
	}
	return &o.stderr
}

// Hold adds a holder, and reports whether there was one: what every holder has released is gone.
func (o *Output) Hold() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holders <= 0 {
		return false
	}
	o.holders++
	return true
}

// Release ends what New and Hold begin.
func (o *Output) Release() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holders--; o.holders != 0 {
		return
	}
	var memory, disk int64
	for _, s := range []*Stream{&o.stdout, &o.stderr} {
		at := int64(0)
		for _, p := range s.pieces {
			if at >= always {
				memory += int64(cap(p))
			}
			at += int64(cap(p))
		}
		disk += s.reserved
		s.pieces, s.begun, s.size, s.reserved, s.dropped = nil, 0, 0, 0, true
	}
	if o.file != nil {
		o.file.Close()
		o.file = nil
	}
	o.spool.memory.Give(o.who, memory)
	o.spool.disk.Give(o.who, disk)
}

// Write keeps what there is room for, and returns how much that is: less than all of p where the stream is beyond its
// limit, or the bounds of the Spool or the disk leave no room. Nothing is kept of what follows.
func (s *Stream) Write(p []byte) (kept int) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	for len(p) > 0 && !s.dropped {
		n := s.put(p[:min(int64(len(p)), s.limit-s.size)])
		s.dropped = n == 0
		s.size += int64(n)
		kept += n
		p = p[n:]
	}
	return kept
}

// put keeps a first part of p, and returns its length: zero where there is no room.
func (s *Stream) put(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	if s.size == s.begun { // nothing is in the file
		last := len(s.pieces) - 1
		if last < 0 || len(s.pieces[last]) == cap(s.pieces[last]) {
			if piece := s.of.spool.piece(s.of.who, s.begun, int64(len(p))); piece != nil {
				s.pieces = append(s.pieces, piece)
				last++
			}
		}
		if last >= 0 {
			piece := s.pieces[last]
			n := min(len(p), cap(piece)-len(piece))
			s.pieces[last] = append(piece, p[:n]...)
			s.begun += int64(n)
			if n > 0 {
				return n
			}
		}
	}
	n, err := s.store(p)
	if err != nil {
		s.of.spool.tell(err)
	}
	return n
}

// store writes a first part of p to the file.
func (s *Stream) store(p []byte) (n int, err error) {
	if s.of.file == nil {
		if s.of.file, err = s.of.spool.file(); err != nil {
			return 0, err
		}
	}
	at := s.base + s.size
	left := s.begun + s.reserved - s.size // of what is reserved
	if left == 0 {
		left = min(extent, s.limit-s.size)
		if err := s.of.spool.reserve(s.of.who, s.of.file, at, left); err != nil {
			return 0, err
		}
		s.reserved += left
	}
	return s.of.file.WriteAt(p[:min(int64(len(p)), left)], at)
}

// Size returns how many bytes are kept.
func (s *Stream) Size() int64 {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.size
}

// ReadAt implements io.ReaderAt for what is kept. Only a holder may call it.
func (s *Stream) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("spool: negative offset")
	}
	s.of.mu.Lock()
	want, file := p[:min(int64(len(p)), max(0, s.size-off))], s.of.file
	at := off
	for _, piece := range s.pieces {
		if n < len(want) && at < int64(len(piece)) {
			n += copy(want[n:], piece[at:])
			at = 0
		} else {
			at = max(0, at-int64(len(piece)))
		}
	}
	s.of.mu.Unlock()
	if n < len(want) { // what is in the file stays as it is
		more, err := file.ReadAt(want[n:], s.base+off+int64(n))
		n += more
		if n < len(want) {
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
