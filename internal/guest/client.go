package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
)

// ErrClosed is returned by calls after the connection has ended cleanly.
var ErrClosed = errors.New("the sandbox's guest has gone")

// Client is the host's side of one connection, for concurrent use. It treats everything it reads as hostile.
type Client struct {
	link      Link
	hello     Hello
	done      chan struct{}  // closed when the reader has ended
	abandoned sync.WaitGroup // starts whose caller returned before the guest's answer
	asides    sync.WaitGroup // frames that the reader sends from other goroutines, so that it never blocks on the guest

	keeper *Keeper                    // holds the processes, if that is another guest
	idle   func(*Client)              // called when the guest holds no process; nil if that makes no difference
	ending func(*Client, error) error // turns the error of the connection's end into that of the calls; may be nil

	mu        sync.Mutex
	err       error // why the connection ended; set before done is closed
	nextID    uint32
	pending   map[uint32]chan answer
	processes map[uint32]*RemoteProcess
	held      int // processes of this client that the guest has not been told to forget
}

type answer struct {
	body Body
	err  error
}

// NewClient waits for the guest's Hello, within the context, and serves the connection until its end or Close.
func NewClient(ctx context.Context, conn Conn) (*Client, error) {
	c := newClient(conn)
	if err := begin(ctx, c); err != nil {
		return nil, err
	}
	return c, nil
}

func newClient(conn Conn) *Client {
	return &Client{link: Link{Conn: conn}, done: make(chan struct{}), pending: map[uint32]chan answer{},
		processes: map[uint32]*RemoteProcess{}}
}

// begin waits for the hello and starts the reader.
func begin(ctx context.Context, c *Client) error {
	conn := c.link.Conn
	r := bufio.NewReaderSize(conn, 8<<10) // a large payload is read past it
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
		return err
	}
	go c.read(r)
	return nil
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
	if c.keeper != nil {
		c.keeper.close()
	}
	err := c.link.Close()
	<-c.done
	c.abandoned.Wait()
	return err
}

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// read owns the receiving side until the connection ends.
func (c *Client) read(r io.Reader) {
	var err error
	for err == nil {
		err = receive(c, r)
	}
	c.link.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrClosed
	}
	if c.ending != nil {
		err = c.ending(c, err)
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
		p.finish(Exit{}, err)
	}
	close(c.done)
}

// receive reads one frame and dispatches it, which copies output.
func receive(c *Client, r io.Reader) error {
	var output *chunkBuffer
	f, err := readFrame(r, func() []byte {
		output = chunkBuffers.Get().(*chunkBuffer)
		return output[:]
	})
	if err == nil {
		err = c.dispatch(f)
	}
	if output != nil {
		chunkBuffers.Put(output)
	}
	return err
}

// maxMessage bounds the words of a guest, in bytes, which go into answers, logs and records.
const maxMessage = 4 << 10

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
		failure.Message = strings.ToValidUTF8(failure.Message[:min(len(failure.Message), maxMessage)], "")
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

// reserve registers a request and, unless p is nil, a process under the same id.
func (c *Client) reserve(p *RemoteProcess) (uint32, chan answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		return 0, nil, c.err
	}
	c.nextID++
	for c.nextID == 0 || c.pending[c.nextID] != nil || c.processes[c.nextID] != nil { // ids have come round
		c.nextID++
	}
	id, ch := c.nextID, make(chan answer, 1)
	c.pending[id] = ch
	if p != nil {
		p.id = id
		c.processes[id] = p
		c.held++
	}
	return id, ch, nil
}

// call sends a request and decodes its answer into result, unless that is nil. It returns the raw bytes after the JSON.
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
		if p != nil {
			p.leave()
		}
		if _, ok := errors.AsType[*ProtocolError](err); ok {
			return nil, err // too large: nothing has been sent
		}
		c.link.Close()
		<-c.done
		return nil, c.err
	}
	select {
	case a := <-ch:
		if a.err != nil {
			if p != nil {
				c.drop(id)
				p.leave()
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
		if clock.Await(context.Background(), sent, time.After(writeGrace)) != nil {
			c.link.Close()
		}
	})
	defer stop()
	return c.link.Send(Frame{Type: FrameRequest, ID: id, Payload: Body{JSON: rj, Raw: raw}.Payload()}, fds...)
}

// do sends a request whose answer is empty.
func (c *Client) do(ctx context.Context, op Op, params any, fds ...int) error {
	_, err := c.call(ctx, nil, op, params, nil, fds, nil)
	return err
}

// ask sends a request and returns its answer.
func ask[T any](ctx context.Context, c *Client, op Op, params any) (result T, err error) {
	_, err = c.call(ctx, nil, op, params, nil, nil, &result)
	return result, err
}

// Health checks that the guest answers.
func (c *Client) Health(ctx context.Context) (Health, error) {
	h, err := ask[Health](ctx, c, OpHealth, nil)
	if err != nil || c.keeper == nil {
		return h, err
	}
	keeper, err := kept(ctx, c.keeper, false, Health{}, func(k *Client) (Health, error) { return k.Health(ctx) })
	h.Processes = keeper.Processes
	return h, err
}

// Begin sends the steps that every sandbox needs, before its plan is known.
func (c *Client) Begin(ctx context.Context, b Begin) error { return c.do(ctx, OpBegin, b) }

// Setup makes the guest build the root filesystem. Step.FD indexes fds.
func (c *Client) Setup(ctx context.Context, s Setup, fds []int) error {
	return c.do(ctx, OpSetup, s, fds...)
}

// Bind hands the sandbox to its user, seals the guest and returns the listeners.
func (c *Client) Bind(ctx context.Context, b Bind, fds []int) ([]*os.File, error) {
	if err := c.do(ctx, OpBind, b, fds...); err != nil {
		return nil, err
	}
	return c.link.TakeFDs(len(b.Listeners))
}

// Listed describes the processes whose exit has not been collected, for Attach.
func (c *Client) Listed(ctx context.Context) ([]ProcessInfo, error) {
	if c.keeper != nil {
		return kept(ctx, c.keeper, false, nil, func(k *Client) ([]ProcessInfo, error) { return k.Listed(ctx) })
	}
	all, err := ask[[]ProcessInfo](ctx, c, OpProcesses, nil)
	if err != nil {
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
	l, err := ask[Listeners](ctx, c, OpListeners, nil)
	if err != nil {
		return nil, err
	}
	return c.link.TakeFDs(l.Count)
}

// SignalAll sends sig to every process of the sandbox except the guest.
func (c *Client) SignalAll(ctx context.Context, sig int) error {
	if c.keeper != nil { // which spares itself, as PID 1 would not
		sent, err := kept(ctx, c.keeper, false, false, func(k *Client) (bool, error) { return true, k.SignalAll(ctx, sig) })
		if sent || err != nil {
			return err
		}
	}
	return c.do(ctx, OpSignal, Signal{All: true, Signal: sig})
}

// Stats returns the counters that are visible only inside the sandbox.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	s, err := ask[Stats](ctx, c, OpStats, nil)
	if err != nil || c.keeper == nil {
		return s, err
	}
	keeper, err := kept(ctx, c.keeper, false, Stats{}, func(k *Client) (Stats, error) { return k.Stats(ctx) })
	s.BytesWritten += keeper.BytesWritten // PID 1 has those of keepers that have ended
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
	return ask[FileInfo](ctx, c, OpStat, Path{Path: path})
}

// List lists a directory inside.
func (c *Client) List(ctx context.Context, path string) ([]FileInfo, error) {
	return ask[[]FileInfo](ctx, c, OpList, Path{Path: path})
}

// Mkdir makes a directory inside, with missing parents.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32) error {
	return c.do(ctx, OpMkdir, WriteFile{Path: path, Mode: mode})
}

// Remove removes a file or a tree inside.
func (c *Client) Remove(ctx context.Context, path string) error {
	return c.do(ctx, OpRemove, Path{Path: path})
}

// MaxParked bounds what a parked reader is given, in bytes: a pipe takes it at once.
const MaxParked = 32 << 10

// ReleaseName is the name of the file that OpRelease writes before it puts it in its place.
const ReleaseName = ".cove-release"

// Park makes a named pipe at a path, as the sandbox's user. A program that reads it waits for Release.
func Park(ctx context.Context, c *Client, path string) error {
	return c.do(ctx, OpPark, Path{Path: path})
}

// MakeZygote returns a zygote of a process that waits at the pipe of Park, for Bind.Copy.
func MakeZygote(ctx context.Context, p *RemoteProcess, path string) (*os.File, error) {
	if err := p.client.do(ctx, OpZygote, Zygote{Process: p.id, Path: path}); err != nil {
		return nil, err
	}
	files, err := p.client.link.TakeFDs(1)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// MakeSocket returns a TCP socket of the sandbox's network namespace that is connected to nothing.
func MakeSocket(ctx context.Context, c *Client) (*os.File, error) {
	if err := c.do(ctx, OpSocket, nil); err != nil {
		return nil, err
	}
	files, err := c.link.TakeFDs(1)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// Release puts a file in the place of the pipe that Park has made, and gives the pipe's reader the file's content, of
// at most MaxParked bytes, and its end. After an error the reader may have a part of it.
func Release(ctx context.Context, c *Client, path string, mode uint32, data []byte) error {
	_, err := c.call(ctx, nil, OpRelease, WriteFile{Path: path, Mode: mode}, data, nil, nil)
	return err
}
