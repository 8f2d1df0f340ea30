package guest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// RemoteProcess is one process inside, seen from the host.
type RemoteProcess struct {
	client         *Client
	id             uint32
	pid            int
	stdout, stderr inbound
	stdin          outbound
	exited         chan struct{} // closed when exit or err is set
	exit           Exit
	err            error
	once           sync.Once
	keep           bool // the guest remembers it until Forget
	left           sync.Once
}

func newRemoteProcess(c *Client, keep bool) *RemoteProcess {
	p := &RemoteProcess{client: c, exited: make(chan struct{}), keep: keep}
	p.stdout.init(func(off uint64) error { return p.ack(Stdout, off) })
	p.stderr.init(func(off uint64) error { return p.ack(Stderr, off) })
	p.stdin.init(func(chunk Chunk) error {
		return c.link.SendChunk(FrameStdin, p.id, chunk)
	})
	return p
}

// Start starts a process. The caller must read both streams to their end and then call Wait.
func (c *Client) Start(ctx context.Context, spec ProcessSpec) (*RemoteProcess, error) {
	if c.keeper != nil {
		return kept(ctx, c.keeper, true, nil, func(k *Client) (*RemoteProcess, error) {
			// A program inside may have the keeper's user, and stop it.
			soon, cancel := context.WithTimeoutCause(ctx, c.keeper.Patience, ErrKeeperStopped)
			defer cancel()
			p, err := k.Start(soon, spec)
			if err != nil && ctx.Err() == nil && soon.Err() != nil {
				err = context.Cause(soon)
			}
			return p, err
		})
	}
	p := newRemoteProcess(c, spec.Keep)
	var started Started
	if _, err := c.call(ctx, p, OpStart, spec, nil, nil, &started); err != nil {
		return nil, err
	}
	p.pid = started.PID
	return p, nil
}

// Attach adopts a process that was started over an earlier connection. stdout and stderr are the bytes of each stream
// received so far, or the offsets of ProcessInfo, where the retained output begins.
func (c *Client) Attach(ctx context.Context, id uint32, stdout, stderr uint64) (*RemoteProcess, error) {
	return attach(ctx, c, false, id, stdout, stderr)
}

// AttachKept is Attach for a process that the guest remembers until Forget.
func (c *Client) AttachKept(ctx context.Context, id uint32, stdout, stderr uint64) (*RemoteProcess, error) {
	return attach(ctx, c, true, id, stdout, stderr)
}

func attach(ctx context.Context, c *Client, keep bool, id uint32, stdout, stderr uint64) (*RemoteProcess, error) {
	if c.keeper == nil {
		return newRemoteProcess(c, keep).attach(ctx, id, stdout, stderr)
	}
	p, err := kept(ctx, c.keeper, false, nil, func(k *Client) (*RemoteProcess, error) {
		return attach(ctx, k, keep, id, stdout, stderr)
	})
	if p == nil && err == nil {
		err = noProcess(id)
	}
	return p, err
}

func noProcess(id uint32) *Failure {
	return &Failure{Kind: FailNotFound, Message: fmt.Sprintf("no process %d", id)}
}

func (p *RemoteProcess) attach(ctx context.Context, id uint32, stdout, stderr uint64) (*RemoteProcess, error) {
	c := p.client
	p.id = id
	p.stdout.skip(stdout)
	p.stderr.skip(stderr)
	p.stdin.pause()
	c.mu.Lock()
	if c.processes == nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	c.processes[id] = p
	c.held++
	c.mu.Unlock()
	attached, err := ask[Attached](ctx, c, OpAttach, Attach{Process: id, Stdout: stdout, Stderr: stderr})
	if err == nil {
		taken := attached.Stdin
		if attached.StdinTaken != nil {
			taken = *attached.StdinTaken
		}
		err = p.stdin.resume(attached.Stdin, taken)
	}
	if err != nil {
		c.drop(id)
		p.leave()
		return nil, err
	}
	return p, nil
}

// leave notes that the guest need not hold the process for this host any more.
func (p *RemoteProcess) leave() {
	p.left.Do(func() {
		c := p.client
		c.mu.Lock()
		c.held--
		idle := c.held == 0
		c.mu.Unlock()
		if idle && c.idle != nil {
			c.idle(c)
		}
	})
}

func (c *Client) drop(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.processes, id)
}

// ID returns the process's id, valid on this and later connections.
func (p *RemoteProcess) ID() uint32 { return p.id }

// PID returns the process's id inside the sandbox; 0 after Attach.
func (p *RemoteProcess) PID() int { return p.pid }

// Stdout returns the process's output, which includes its errors when it has a terminal.
func (p *RemoteProcess) Stdout() io.Reader { return &p.stdout }

// Stderr returns the process's error output.
func (p *RemoteProcess) Stderr() io.Reader { return &p.stderr }

// Sent returns how much of the process's input has been sent, by this host and those before.
func (p *RemoteProcess) Sent() uint64 {
	p.stdin.mu.Lock()
	defer p.stdin.mu.Unlock()
	return p.stdin.sent
}

// Stdin returns a writer to the process; Close is end of file. Writes block while the process does not read.
func (p *RemoteProcess) Stdin() io.WriteCloser { return &p.stdin }

// Wait waits for the exit. The guest then forgets the process, unless it keeps it.
func (p *RemoteProcess) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
	return p.exit, p.err
}

// Forget has the guest forget a process that it keeps and that has ended: its exit, and what was not released of its
// output. A host that attaches until then receives them again.
func (p *RemoteProcess) Forget() error {
	defer p.leave()
	return p.client.link.Send(Frame{Type: FrameExit, ID: p.id})
}

// Exited returns a channel that is closed when the process or the connection has ended.
func (p *RemoteProcess) Exited() <-chan struct{} { return p.exited }

// Signal sends sig to the process's group.
func (p *RemoteProcess) Signal(ctx context.Context, sig int) error {
	return p.client.do(ctx, OpSignal, Signal{Process: p.id, Signal: sig})
}

// Resize changes the process's terminal.
func (p *RemoteProcess) Resize(ctx context.Context, rows, cols uint16) error {
	return p.client.do(ctx, OpResize, Resize{Process: p.id, Rows: rows, Cols: cols})
}

// Retain makes the guest retain output that has been read until Release. A process stalls at Window bytes of retained
// output. Retain must be called before the first Read.
func (p *RemoteProcess) Retain() { p.stdout.retain() }

// Release frees the output before offset, counted from the process's beginning.
func (p *RemoteProcess) Release(offset uint64) error { return p.stdout.release(offset) }

// Note stores data with the process, at most MaxNote bytes, for hosts that attach later; it replaces an earlier note.
func (p *RemoteProcess) Note(ctx context.Context, data []byte) error {
	_, err := p.client.call(ctx, nil, OpNote, Note{Process: p.id}, data, nil, nil)
	return err
}

// Noted returns the note of a process, or nothing.
func (c *Client) Noted(ctx context.Context, process uint32) ([]byte, error) {
	if c.keeper != nil {
		data, err := kept(ctx, c.keeper, false, nil, func(k *Client) ([]byte, error) { return k.Noted(ctx, process) })
		return data, err
	}
	data, err := c.call(ctx, nil, OpNoted, Note{Process: process}, nil, nil, nil)
	if err == nil && len(data) > MaxNote {
		return nil, violation("a note of %d bytes, at most %d are allowed", len(data), MaxNote)
	}
	return data, err
}

// abandon ends a process whose caller returned before the start was answered; its output and exit remain unread.
func (p *RemoteProcess) abandon(a answer) {
	if a.err != nil {
		p.client.drop(p.id)
		p.leave()
		return
	}
	var readers sync.WaitGroup
	readers.Go(func() { io.Copy(io.Discard, &p.stdout) })
	readers.Go(func() { io.Copy(io.Discard, &p.stderr) })
	p.Signal(context.Background(), int(syscall.SIGKILL))
	<-p.exited
	readers.Wait()
}

func (p *RemoteProcess) ack(s Stream, off uint64) error {
	return p.client.link.Send(Frame{Type: FrameAck, ID: p.id, Payload: Ack{Stream: s, Offset: off}.Payload()})
}

// receive handles a frame for this process; an error is a violation.
func (p *RemoteProcess) receive(f Frame) error {
	switch f.Type {
	case FrameStdout, FrameStderr:
		chunk, err := ParseChunk(f.Payload)
		if err != nil {
			return err
		}
		if f.Type == FrameStdout {
			return p.stdout.put(chunk)
		}
		return p.stderr.put(chunk)
	case FrameAck:
		ack, err := ParseAck(f.Payload)
		if err != nil {
			return err
		}
		if ack.Stream != Stdin {
			return violation("acknowledgement of stream %d", ack.Stream)
		}
		return p.stdin.acked(ack.Offset)
	}
	var exit Exit
	if err := DecodeJSON(f.Payload, &exit); err != nil {
		return err
	}
	p.client.drop(p.id)
	// The guest is told to forget the process before the caller learns of the exit, so that its next request finds it so.
	p.client.asides.Go(func() {
		if !p.keep {
			p.Forget()
		}
		p.finish(exit, nil)
	})
	return nil
}

// finish ends the process: with its exit, or with an error because the connection has ended.
func (p *RemoteProcess) finish(exit Exit, err error) {
	p.once.Do(func() {
		p.exit, p.err = exit, err
		eof := cmp.Or(err, io.EOF)
		p.stdout.end(eof)
		p.stderr.end(eof)
		p.stdin.end(io.ErrClosedPipe)
		close(p.exited)
	})
}

type window struct {
	mu   sync.Mutex // guards the fields of either end
	cond sync.Cond
	err  error // why the stream has ended
}

func (w *window) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
	w.cond.Broadcast()
}

// inbound is the receiving end of a windowed stream. Its error follows buf.
type inbound struct {
	window
	ack   func(offset uint64) error
	space []byte // that buf is a part of
	buf   []byte
	taken uint64 // offset of buf[0]
	acked uint64
	kept  bool // read bytes are acknowledged by release only
}

func (s *inbound) init(ack func(uint64) error) { s.ack, s.cond.L = ack, &s.mu }

// maxOffset exceeds any real stream, and keeps sums of offsets far from overflow.
const maxOffset = 1 << 62

func (s *inbound) skip(offset uint64) { s.taken, s.acked = offset, offset }

func (s *inbound) put(c Chunk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := s.taken + uint64(len(s.buf)); c.Offset != want || want > maxOffset {
		return violation("stream continues at %d instead of %d", c.Offset, want)
	}
	if s.taken+uint64(len(s.buf)+len(c.Data)) > s.acked+Window {
		return violation("stream overruns its window")
	}
	s.add(c.Data)
	s.cond.Broadcast()
	return nil
}

// add appends to buf, in the space that has been read if there is enough of it.
func (s *inbound) add(data []byte) {
	switch need := len(s.buf) + len(data); {
	case need > cap(s.space):
		grown := newSpace(max(need, min(2*cap(s.space), Window)))[:len(s.buf)]
		copy(grown, s.buf)
		dropSpace(s.space)
		s.space, s.buf = grown, grown
	case need > cap(s.buf):
		s.buf = s.space[:copy(s.space[:len(s.buf)], s.buf)]
	}
	s.buf = append(s.buf, data...)
}

// spaces holds spaces for a chunk or two: a stream whose reader keeps up has one for a moment, again and again.
var spaces = sync.Pool{New: func() any { return new([2 * MaxChunk]byte) }}

// newSpace returns a space for n bytes.
func newSpace(n int) []byte {
	if n < MaxChunk/8 || n > 2*MaxChunk {
		return make([]byte, n)
	}
	return spaces.Get().(*[2 * MaxChunk]byte)[:]
}

// dropSpace ends the use of a space.
func dropSpace(space []byte) {
	if cap(space) == 2*MaxChunk {
		spaces.Put((*[2 * MaxChunk]byte)(space[:cap(space)]))
	}
}

// Read implements io.Reader. Bytes that have been read are acknowledged in steps.
func (s *inbound) Read(p []byte) (int, error) {
	s.mu.Lock()
	for len(s.buf) == 0 && s.err == nil {
		s.cond.Wait()
	}
	n := copy(p, s.buf)
	if n == 0 {
		defer s.mu.Unlock()
		return 0, s.err
	}
	s.taken += uint64(n)
	if s.buf = s.buf[n:]; len(s.buf) == 0 {
		dropSpace(s.space)
		s.space, s.buf = nil, nil
	}
	due := s.err == nil && !s.kept && s.taken-s.acked >= Window/4
	if due {
		s.acked = s.taken
	}
	offset := s.acked
	s.mu.Unlock()
	if due {
		s.ack(offset) // a failed connection shows at the next Read
	}
	return n, nil
}

func (s *inbound) retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = true
}

// release acknowledges the bytes before offset that have been read.
func (s *inbound) release(offset uint64) error {
	s.mu.Lock()
	if offset = min(offset, s.taken); s.err != nil || offset <= s.acked {
		defer s.mu.Unlock()
		return nil
	}
	s.acked = offset
	s.mu.Unlock()
	return s.ack(offset)
}

// outbound is the sending end of a windowed stream without resending; a lost connection ends it. sendMu keeps chunks in
// order. The receiver of acknowledgements never holds it, so that two full connections cannot wait for each other.
type outbound struct {
	sendMu sync.Mutex // acquired before mu
	window
	send   func(Chunk) error
	sent   uint64
	taken  uint64
	paused bool // what has been sent is not known yet
	closed bool
}

func (s *outbound) init(send func(Chunk) error) { s.send, s.cond.L = send, &s.mu }

// pause is for a stream that another host has begun, until resume.
func (s *outbound) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// resume goes on where another host has stopped. Acknowledgements may have come before.
func (s *outbound) resume(sent, taken uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.taken, s.paused = sent, max(s.taken, taken), false
	if s.taken > sent || sent > maxOffset || sent-s.taken > Window {
		return violation("input continues at %d, and %d was taken", sent, s.taken)
	}
	return nil
}

func (s *outbound) acked(offset uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset < s.taken || offset > s.sent && !s.paused {
		return violation("acknowledgement of %d, %d sent", offset, s.sent)
	}
	s.taken = offset
	s.cond.Broadcast()
	return nil
}

func (s *outbound) Write(p []byte) (int, error) {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	n := 0
	for n < len(p) {
		offset, k, err := s.reserve(len(p) - n)
		if err != nil {
			return n, err
		}
		if err := s.send(Chunk{Offset: offset, Data: p[n : n+k]}); err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// reserve waits for room in the window and takes at most want bytes of it.
func (s *outbound) reserve(want int) (offset uint64, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && !s.closed && s.sent-s.taken >= Window {
		s.cond.Wait()
	}
	if s.err != nil {
		return 0, 0, s.err
	}
	if s.closed {
		return 0, 0, io.ErrClosedPipe
	}
	offset, n = s.sent, min(want, MaxChunk, int(Window-(s.sent-s.taken)))
	s.sent += uint64(n)
	return offset, n, nil
}

// Close implements io.Closer: end of file for the process. A Write that waits for room is abandoned.
func (s *outbound) Close() error {
	s.mu.Lock()
	done := s.closed || s.err != nil
	s.closed = true
	s.cond.Broadcast()
	s.mu.Unlock()
	if done {
		return nil
	}
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.send(Chunk{Offset: s.sent})
}
