package fake

import (
	"io"
	"sync"
	"syscall"
)

// pipeSize is what fits into a pipe without a reader, as on Linux.
const pipeSize = 64 << 10

// pipe is a pipe between programs and the guest: it ends when every writer has
// closed it, and breaks when the reader has.
type pipe struct {
	mu      sync.Mutex
	cond    sync.Cond
	buf     []byte
	writers int
	broken  bool
	cut     bool
	rest    int // bytes that are still read; set once it is cut
}

func newPipe() *pipe {
	p := &pipe{writers: 1}
	p.cond.L = &p.mu
	return p
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 && p.writers > 0 && !p.broken && !p.cut {
		p.cond.Wait()
	}
	if p.broken {
		return 0, io.ErrClosedPipe
	}
	if p.cut {
		b = b[:min(len(b), p.rest)]
	}
	n := copy(b, p.buf)
	if n == 0 {
		return 0, io.EOF
	}
	p.buf, p.rest = p.buf[n:], p.rest-n
	p.cond.Broadcast()
	return n, nil
}

// Cut implements guestd.Output.
func (p *pipe) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut {
		p.cut, p.rest = true, len(p.buf)
		p.cond.Broadcast()
	}
}

// Close implements io.Closer for the reader.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.cond.Broadcast()
	return nil
}

// writer is one writer's end of a pipe.
type writer struct {
	pipe *pipe
	crlf bool // a terminal's output processing

	mu     sync.Mutex
	closed bool // guarded by pipe.mu
}

// dup makes another writer of the same pipe.
func (w *writer) dup() *writer {
	w.pipe.mu.Lock()
	defer w.pipe.mu.Unlock()
	w.pipe.writers++
	return &writer{pipe: w.pipe, crlf: w.crlf}
}

// Write implements io.Writer; a write without a reader fails like a pipe's.
func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock() // one write is one piece
	defer w.mu.Unlock()
	if w.crlf {
		return len(b), w.write(crlf(b))
	}
	return len(b), w.write(b)
}

func (w *writer) write(b []byte) error {
	p := w.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		for len(p.buf) >= pipeSize && !p.broken && !w.closed {
			p.cond.Wait()
		}
		if p.broken || w.closed {
			return syscall.EPIPE
		}
		n := min(len(b), pipeSize-len(p.buf))
		p.buf = append(p.buf, b[:n]...)
		b = b[n:]
		p.cond.Broadcast()
	}
	return nil
}

func crlf(b []byte) []byte {
	var out []byte
	for _, c := range b {
		if c == '\n' {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	return out
}

// Close implements io.Closer; a write under way is given up.
func (w *writer) Close() error {
	w.pipe.mu.Lock()
	defer w.pipe.mu.Unlock()
	if !w.closed {
		w.closed = true
		w.pipe.writers--
		w.pipe.cond.Broadcast()
	}
	return nil
}
