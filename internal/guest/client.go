package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

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

// ErrClosed is returned by calls after the connection has ended cleanly.
var ErrClosed = errors.New("the sandbox's guest has gone")

// Client is the host's side of one connection. Its methods may be called concurrently. It treats everything it reads as
// hostile.
type Client struct {
	conn  Conn
	hello Hello
	done  chan struct{} // closed when the reader has ended

	abandoned sync.WaitGroup // starts whose caller returned before the guest's answer

	writeMu sync.Mutex     // serialises frames on conn
	asides  sync.WaitGroup // frames that the reader sends from other goroutines, so that it never blocks on the guest

	mu        sync.Mutex
	err       error // why the connection ended; set before done is closed
	nextID    uint32
	pending   map[uint32]chan answer
	processes map[uint32]*RemoteProcess
}

type answer struct {
	body Body
	err  error
}

// NewClient waits for the guest's Hello and serves the connection until it
// ends or Close is called. The context bounds the wait only.
func NewClient(ctx context.Context, conn Conn) (*Client, error) {
	c := &Client{conn: conn, done: make(chan struct{}), pending: map[uint32]chan answer{},
		processes: map[uint32]*RemoteProcess{}}
	r := bufio.NewReaderSize(conn, 64<<10)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := c.readHello(r)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	go c.read(r)
	return c, nil
}

func (c *Client) readHello(r io.Reader) error {
	f, err := ReadFrame(r)
	if err != nil {
		return err
	}
	if f.Type != FrameHello {
		return violation("frame type %d before the hello", f.Type)
	}
	if err := DecodeJSON(f.Payload, &c.hello); err != nil {
		return err
	}
	if c.hello.Version != Version {
		return violation("the guest speaks version %d, this Cove speaks %d; both binaries must come from one build",
			c.hello.Version, Version)
	}
	for _, id := range c.hello.Processes {
		c.nextID = max(c.nextID, id)
	}
	return nil
}

// Processes returns the ids of the processes that the guest knew when this connection began, for Attach.
func (c *Client) Processes() []uint32 { return c.hello.Processes }

// Close ends the connection and waits for the reader.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	c.abandoned.Wait()
	return err
}

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// read owns the receiving side until the connection ends.
func (c *Client) read(r io.Reader) {
	err := c.receive(r)
	c.conn.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrClosed
	}
	c.mu.Lock()
	c.err = err
	pending, processes := c.pending, c.processes
	c.pending, c.processes = nil, nil
	c.mu.Unlock()
	for _, ch := range pending {
		ch <- answer{err: err}
	}
	for _, p := range processes {
		p.fail(err)
	}
	close(c.done)
}

func (c *Client) receive(r io.Reader) error {
	for {
		f, err := ReadFrame(r)
		if err != nil {
			return err
		}
		if err := c.dispatch(f); err != nil {
			return err
		}
	}
}

func (c *Client) dispatch(f Frame) error {
	switch f.Type {
	case FrameReply:
		body, err := ParseBody(f.Payload)
		if err != nil {
			return err
		}
		return c.answer(f.ID, answer{body: body})
	case FrameFailure:
		failure := new(Failure)
		if err := DecodeJSON(f.Payload, failure); err != nil {
			return err
		}
		return c.answer(f.ID, answer{err: failure})
	case FrameStdout, FrameStderr, FrameAck, FrameExit:
		c.mu.Lock()
		p := c.processes[f.ID]
		c.mu.Unlock()
		if p == nil {
			return violation("frame type %d for unknown process %d", f.Type, f.ID)
		}
		return p.receive(f)
	}
	return violation("frame type %d from the guest", f.Type)
}

func (c *Client) answer(id uint32, a answer) error {
	c.mu.Lock()
	ch := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if ch == nil {
		return violation("answer to unknown request %d", id)
	}
	ch <- a
	return nil
}

// send writes one frame.
func (c *Client) send(f Frame, fds []int) error {
	b, err := AppendFrame(make([]byte, 0, headerSize+len(f.Payload)), f)
	if err != nil {
		return err
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if len(fds) > 0 {
		fc, ok := c.conn.(FDConn)
		if !ok {
			return errors.New("this engine's connection carries no descriptors")
		}
		return fc.WriteFDs(b, fds)
	}
	_, err = c.conn.Write(b)
	return err
}

// reserve registers a request and, unless p is nil, a process under the same id.
func (c *Client) reserve(p *RemoteProcess) (uint32, chan answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		return 0, nil, c.err
	}
	c.nextID++
	id, ch := c.nextID, make(chan answer, 1)
	c.pending[id] = ch
	if p != nil {
		p.id = id
		c.processes[id] = p
	}
	return id, ch, nil
}

// call sends a request, waits for the answer and decodes it into result unless that is nil. It returns the raw bytes
// after the answer's JSON.
func (c *Client) call(ctx context.Context, p *RemoteProcess, op Op, params any, raw []byte, fds []int,
	result any) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, ch, err := c.reserve(p)
	if err != nil {
		return nil, err
	}
	if err := c.sendRequest(ctx, id, op, params, raw, fds); err != nil {
		c.mu.Lock()
		delete(c.pending, id)
		delete(c.processes, id)
		c.mu.Unlock()
		if _, ok := errors.AsType[*ProtocolError](err); ok {
			return nil, err // too large: nothing has been sent
		}
		c.conn.Close()
		<-c.done
		return nil, c.err
	}
	select {
	case a := <-ch:
		if a.err != nil {
			if p != nil {
				c.drop(id)
			}
			return nil, a.err
		}
		if result != nil {
			return a.body.Raw, DecodeJSON(a.body.JSON, result)
		}
		return a.body.Raw, nil
	case <-ctx.Done():
		if p != nil {
			c.abandoned.Go(func() { p.abandon(<-ch) })
		}
		return nil, ctx.Err() // a late answer lands in ch
	}
}

// writeGrace bounds how long a request may still be written after its context has ended. A guest that does not read by
// then is broken. Half a frame cannot be taken back, so the connection ends.
const writeGrace = time.Second

func (c *Client) sendRequest(ctx context.Context, id uint32, op Op, params any, raw []byte, fds []int) error {
	pj, err := json.Marshal(params)
	if err != nil {
		return err
	}
	rj, err := json.Marshal(Request{Op: op, Params: pj, FDs: len(fds)})
	if err != nil {
		return err
	}
	sent := make(chan struct{})
	defer close(sent)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-sent:
		case <-time.After(writeGrace):
			c.conn.Close()
		}
	})
	defer stop()
	return c.send(Frame{Type: FrameRequest, ID: id, Payload: Body{JSON: rj, Raw: raw}.Payload()}, fds)
}

// Health checks that the guest answers.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	_, err := c.call(ctx, nil, OpHealth, nil, nil, nil, &h)
	return h, err
}

// Begin sends the steps that every sandbox needs, before its plan is known.
func (c *Client) Begin(ctx context.Context, b Begin) error {
	_, err := c.call(ctx, nil, OpBegin, b, nil, nil, nil)
	return err
}

// Setup makes the guest build the root filesystem. Step.FD indexes fds.
func (c *Client) Setup(ctx context.Context, s Setup, fds []int) error {
	_, err := c.call(ctx, nil, OpSetup, s, nil, fds, nil)
	return err
}

// Bind hands the sandbox to its user, seals the guest and returns the listeners.
func (c *Client) Bind(ctx context.Context, b Bind, fds []int) ([]*os.File, error) {
	if _, err := c.call(ctx, nil, OpBind, b, nil, fds, nil); err != nil {
		return nil, err
	}
	if len(b.Listeners) == 0 {
		return nil, nil
	}
	return c.takeFDs(len(b.Listeners))
}

// Listed describes the processes whose exit has not been collected, for Attach.
func (c *Client) Listed(ctx context.Context) ([]ProcessInfo, error) {
	var all []ProcessInfo
	if _, err := c.call(ctx, nil, OpProcesses, nil, nil, nil, &all); err != nil {
		return nil, err
	}
	if len(all) > MaxProcesses {
		return nil, violation("%d processes, at most %d are possible", len(all), MaxProcesses)
	}
	for _, p := range all {
		if len(p.Label) > MaxLabel {
			return nil, violation("a label of %d bytes, at most %d are allowed", len(p.Label), MaxLabel)
		}
	}
	return all, nil
}

// Listeners returns copies of Bind's listeners, from a guest that has outlived the connection of the Bind.
func (c *Client) Listeners(ctx context.Context) ([]*os.File, error) {
	var l Listeners
	if _, err := c.call(ctx, nil, OpListeners, nil, nil, nil, &l); err != nil || l.Count == 0 {
		return nil, err
	}
	return c.takeFDs(l.Count)
}

func (c *Client) takeFDs(n int) ([]*os.File, error) {
	fc, ok := c.conn.(FDConn)
	if !ok {
		return nil, errors.New("this engine's connection carries no descriptors")
	}
	return fc.TakeFDs(n)
}

// SignalAll sends sig to every process of the sandbox except the guest.
func (c *Client) SignalAll(ctx context.Context, sig int) error {
	_, err := c.call(ctx, nil, OpSignal, Signal{All: true, Signal: sig}, nil, nil, nil)
	return err
}

// Stats returns the counters that are visible only inside the sandbox.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	_, err := c.call(ctx, nil, OpStats, nil, nil, nil, &s)
	return s, err
}

// WriteFile writes a file inside as the sandbox's user and makes missing parents.
func (c *Client) WriteFile(ctx context.Context, path string, mode uint32, data []byte) error {
	for offset := 0; ; {
		n := min(len(data)-offset, MaxPayload/2)
		w := WriteFile{Path: path, Mode: mode, Offset: int64(offset)}
		if _, err := c.call(ctx, nil, OpWrite, w, data[offset:offset+n], nil, nil); err != nil {
			return err
		}
		if offset += n; offset >= len(data) {
			return nil
		}
	}
}

// ReadFile reads a regular file inside, at most limit bytes; a longer file is an error.
func (c *Client) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	var data []byte
	for {
		var info FileInfo
		raw, err := c.call(ctx, nil, OpRead, ReadFile{Path: path, Offset: int64(len(data))}, nil, nil, &info)
		if err != nil {
			return nil, err
		}
		if len(raw) > MaxChunk {
			return nil, violation("file chunk of %d bytes", len(raw))
		}
		if len(raw) == 0 {
			return data, nil
		}
		if data = append(data, raw...); int64(len(data)) > limit {
			return nil, &Failure{Kind: FailInvalid, Message: "the file is larger than what was asked for"}
		}
	}
}

// Stat describes a file inside; symlinks are not followed.
func (c *Client) Stat(ctx context.Context, path string) (FileInfo, error) {
	var info FileInfo
	_, err := c.call(ctx, nil, OpStat, Path{Path: path}, nil, nil, &info)
	return info, err
}

// List lists a directory inside.
func (c *Client) List(ctx context.Context, path string) ([]FileInfo, error) {
	var infos []FileInfo
	_, err := c.call(ctx, nil, OpList, Path{Path: path}, nil, nil, &infos)
	return infos, err
}

// Mkdir makes a directory inside, with missing parents.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32) error {
	_, err := c.call(ctx, nil, OpMkdir, WriteFile{Path: path, Mode: mode}, nil, nil, nil)
	return err
}

// Remove removes a file or a tree inside.
func (c *Client) Remove(ctx context.Context, path string) error {
	_, err := c.call(ctx, nil, OpRemove, Path{Path: path}, nil, nil, nil)
	return err
}
