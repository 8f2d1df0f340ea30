// Package guestd is the serving side of the guest protocol. It owns the processes of one sandbox and their streams, and
// knows nothing of how processes are made.
//
// A [Server] outlives its connections. Output that a process writes while no host is connected waits in its window, and
// a returning host attaches to it. The interfaces of [World] make processes, files and the root filesystem: package
// pid1 implements them for Linux, the in-memory engine for tests.
package guestd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/cove-sandbox/cove/internal/guest"
)

// World is the environment that a Server acts on.
type World struct {
	Wall    Wall
	Spawner Spawner
	Files   Files
	Holder  Holder // nil where the Server itself holds what outlives its connections
}

// Holder is PID 1 of a sandbox, apart from the Server, and holds what Bind has it hold.
type Holder interface {
	// Listeners returns Bind's listeners.
	Listeners() ([]*os.File, error)
	// Socket makes a TCP socket.
	Socket() (*os.File, error)
	// Keep starts a keeper.
	Keep(k guest.Keep, fds []*os.File) error
}

// Wall builds the sandbox around the guest. Its methods are called once each, in this order.
type Wall interface {
	Begin(b guest.Begin) error
	Setup(s guest.Setup, fds []*os.File) error
	// Bind returns the listeners, in the order of the request.
	Bind(b guest.Bind, fds []*os.File) ([]*os.File, error)
}

// Spawner starts processes as the sandbox's user.
type Spawner interface {
	Start(spec guest.ProcessSpec) (Process, error)
	// SignalAll signals every process except the guest.
	SignalAll(sig syscall.Signal) error
	Stats() guest.Stats
}

// Process is a running process. Its streams end when their last writer closes them, which may be after Wait.
type Process interface {
	PID() int
	Stdin() io.WriteCloser // nil when the spec asked for none
	Stdout() Output
	Stderr() Output // nil when output is one stream (a terminal)
	Signal(sig syscall.Signal) error
	Resize(rows, cols uint16) error
	// Wait returns the exit code, or the signal that ended it.
	Wait() (code int, signal syscall.Signal)
}

// Parent is a Process of which zygotes can be made.
type Parent interface {
	// Zygote returns one. The process waits at the named pipe of a path.
	Zygote(path string) (*os.File, error)
}

// Output is the reading end of a stream that a process writes.
type Output interface {
	io.ReadCloser
	// Cut ends the stream after the bytes written so far. From then on Read, including a pending one, returns available
	// bytes without waiting, and then io.EOF.
	Cut()
}

// Files are the sandbox's files, accessed with the rights of its user. Paths are absolute.
type Files interface {
	Write(w guest.WriteFile, data []byte) error
	Read(r guest.ReadFile) ([]byte, guest.FileInfo, error)
	Stat(path string) (guest.FileInfo, error)
	List(path string) ([]guest.FileInfo, error)
	Mkdir(w guest.WriteFile) error
	Remove(path string) error
	// Park makes a named pipe at a path and holds it open, in the place of an earlier one.
	Park(path string) error
	// Release puts a file in the place of the pipe that is held, and writes its content to that.
	Release(w guest.WriteFile, data []byte) error
}

// Server serves one sandbox.
type Server struct {
	world    World
	room     int            // bytes of each output that are retained
	threads  int64          // of a keeper
	requests sync.WaitGroup // under way

	mu        sync.Mutex
	phase     phase
	processes map[uint32]*process
	detached  detached
	parked    string // where a reader waits; empty for nowhere
	ended     bool   // no host comes any more
}

type detached struct {
	door      *os.File   // nil if the guest ends with its connection
	listeners []*os.File // as Bind made them
	held      []*os.File
}

// Door returns the listening socket on which the next connection arrives, or nil.
func (s *Server) Door() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.detached.door
}

type phase int

const (
	phaseNew phase = iota
	phaseBegun
	phaseSetUp
	phaseBound
	phaseBroken // a step failed half-way
)

// New returns a Server; with setUp a container engine built the root filesystem, and OpBegin and OpSetup are refused.
func New(w World, setUp bool) *Server {
	s := &Server{world: w, room: guest.Window, processes: map[uint32]*process{}}
	if setUp {
		s.phase = phaseSetUp
	}
	return s
}

// NewBeside returns a Server in the host's own process, whose memory has both ends of each output: the host's is as
// large as the protocol has it, and this one retains half of that. The sandbox may be bound already.
func NewBeside(w World, bound bool) *Server {
	s := New(w, false)
	s.room = guest.Window / 2
	if bound {
		s.phase = phaseBound
	}
	return s
}

// NewKeeper returns a Server of processes alone, in a sandbox that is bound. It tells the host its number of threads.
func NewKeeper(w World, threads int64) *Server {
	s := New(w, true)
	s.phase, s.threads = phaseBound, threads
	return s
}

// Unused reports whether the Server holds no process. No connection is served meanwhile.
func (s *Server) Unused() bool {
	s.requests.Wait() // one may be the start of a process
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.processes) == 0
}

// End drops output that waits for a host: none comes any more.
func (s *Server) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, p := range s.processes {
		p.end()
	}
}

// Serve speaks the protocol on conn until it ends, nil if cleanly, and closes conn. Another may be served afterwards.
func (s *Server) Serve(conn guest.Conn) error {
	l := &guest.Link{Conn: conn}
	defer conn.Close()
	hello, _ := json.Marshal(guest.Hello{Version: guest.Version, Processes: s.ids(), Threads: s.threads})
	if err := l.Send(guest.Frame{Type: guest.FrameHello, Payload: hello}); err != nil {
		return err
	}
	r := bufio.NewReaderSize(conn, 8<<10) // a large payload is read past it
	for {
		f, err := guest.ReadFrame(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.handle(l, f); err != nil {
			return err
		}
	}
}

func (s *Server) ids() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.processes))
}

// handle processes one frame; an error ends the connection. It never waits for the host to read: both might wait.
func (s *Server) handle(l *guest.Link, f guest.Frame) error {
	switch f.Type {
	case guest.FrameRequest:
		return s.request(l, f)
	case guest.FrameStdin:
		chunk, err := guest.ParseChunk(f.Payload)
		if err != nil {
			return err
		}
		if p := s.process(f.ID); p != nil {
			return p.input.put(chunk)
		}
		return nil // the process has exited meanwhile
	case guest.FrameAck:
		ack, err := guest.ParseAck(f.Payload)
		if err != nil {
			return err
		}
		if p := s.process(f.ID); p != nil && p.outputs[ack.Stream] != nil {
			p.outputs[ack.Stream].acked(ack.Offset)
		}
		return nil
	case guest.FrameExit:
		s.mu.Lock()
		defer s.mu.Unlock()
		if p := s.processes[f.ID]; p != nil && p.exit != nil {
			delete(s.processes, f.ID)
		}
		return nil
	}
	return &guest.ProtocolError{Reason: fmt.Sprintf("frame type %d from the host", f.Type)}
}

func (s *Server) process(id uint32) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[id]
}

// request starts the operation in a goroutine, which sends the answer.
func (s *Server) request(l *guest.Link, f guest.Frame) error {
	body, err := guest.ParseBody(f.Payload)
	if err != nil {
		return err
	}
	var req guest.Request
	if err := guest.DecodeJSON(body.JSON, &req); err != nil {
		return err
	}
	fds, err := l.TakeFDs(req.FDs)
	if err != nil {
		return err
	}
	s.requests.Go(func() {
		result, raw, out, err := s.do(l, f.ID, req, body.Raw, fds)
		CloseAll(fds)
		var numbers []int
		for _, fd := range out {
			numbers = append(numbers, int(fd.Fd()))
		}
		l.Send(answer(f.ID, result, raw, err), numbers...) // a broken connection shows at its reader
		CloseAll(out)
	})
	return nil
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func answer(id uint32, result any, raw []byte, err error) guest.Frame {
	if err == nil {
		var j []byte
		if j, err = json.Marshal(result); err == nil {
			f := guest.Frame{Type: guest.FrameReply, ID: id, Payload: guest.Body{JSON: j, Raw: raw}.Payload()}
			if len(f.Payload) <= guest.MaxPayload {
				return f
			}
			err = &guest.Failure{Kind: guest.FailInvalid, Message: "the answer is larger than a message may be"}
		}
	}
	j, _ := json.Marshal(failure(err))
	return guest.Frame{Type: guest.FrameFailure, ID: id, Payload: j}
}

func failure(err error) *guest.Failure {
	if f, ok := errors.AsType[*guest.Failure](err); ok {
		return f
	}
	kind := guest.FailOther
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = guest.FailNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		kind = guest.FailPermission
	case errors.Is(err, fs.ErrExist):
		kind = guest.FailExists
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		kind = guest.FailNoSpace
	case errors.Is(err, syscall.EAGAIN):
		kind = guest.FailNoProcess
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		kind = guest.FailInvalid
	}
	return &guest.Failure{Kind: kind, Message: err.Error()}
}

func (s *Server) do(l *guest.Link, id uint32, req guest.Request, raw []byte,
	fds []*os.File) (result any, out []byte, outFDs []*os.File, err error) {
	early := []guest.Op{guest.OpHealth, guest.OpBegin, guest.OpSetup, guest.OpBind}
	if !slices.Contains(early, req.Op) && !s.health().Bound {
		return nil, nil, nil, &guest.Failure{Kind: guest.FailState, Message: "the sandbox is not bound yet"}
	}
	files := s.world.Files
	switch req.Op {
	case guest.OpHealth:
		result = s.health()
	case guest.OpBegin:
		err = with(req, s.begin)
	case guest.OpSetup:
		err = with(req, func(p guest.Setup) error { return s.setup(p, fds) })
	case guest.OpBind:
		err = with(req, func(p guest.Bind) (err error) { outFDs, err = s.bind(p, fds); return err })
	case guest.OpStart:
		err = with(req, func(p guest.ProcessSpec) (err error) { result, err = s.start(l, id, p); return err })
	case guest.OpAttach:
		err = with(req, func(p guest.Attach) (err error) { result, err = s.attach(l, p); return err })
	case guest.OpProcesses:
		result = s.list()
	case guest.OpNote:
		err = with(req, func(p guest.Note) error { return s.note(p, raw) })
	case guest.OpNoted:
		err = with(req, func(p guest.Note) (err error) { out, err = s.noted(p); return err })
	case guest.OpSignal:
		err = with(req, s.signal)
	case guest.OpResize:
		err = with(req, s.resize)
	case guest.OpStats:
		result = s.world.Spawner.Stats()
	case guest.OpListeners:
		outFDs, err = s.listeners()
		result = guest.Listeners{Count: len(outFDs)}
	case guest.OpSocket:
		outFDs, err = s.socket()
	case guest.OpKeep:
		err = with(req, func(p guest.Keep) error { return s.keepOthers(p, fds) })
	case guest.OpWrite:
		err = with(req, func(p guest.WriteFile) error { return files.Write(p, raw) })
	case guest.OpRead:
		err = with(req, func(p guest.ReadFile) (err error) { out, result, err = files.Read(p); return err })
	case guest.OpStat:
		err = with(req, func(p guest.Path) (err error) { result, err = files.Stat(p.Path); return err })
	case guest.OpList:
		err = with(req, func(p guest.Path) (err error) { result, err = files.List(p.Path); return err })
	case guest.OpMkdir:
		err = with(req, files.Mkdir)
	case guest.OpRemove:
		err = with(req, func(p guest.Path) error { return files.Remove(p.Path) })
	case guest.OpPark:
		err = with(req, s.park)
	case guest.OpZygote:
		err = with(req, func(p guest.Zygote) (err error) { outFDs, err = s.zygote(p); return err })
	case guest.OpRelease:
		err = with(req, func(p guest.WriteFile) error { return s.release(p, raw) })
	default:
		err = &guest.Failure{Kind: guest.FailInvalid, Message: fmt.Sprintf("unknown operation %q", req.Op)}
	}
	return result, out, outFDs, err
}

func (s *Server) park(p guest.Path) error {
	err := s.world.Files.Park(p.Path)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.parked = p.Path
	}
	return err
}

func (s *Server) zygote(p guest.Zygote) ([]*os.File, error) {
	proc := s.process(p.Process)
	if proc == nil {
		return nil, noProcess(p.Process)
	}
	parent, ok := proc.Process.(Parent)
	if !ok {
		return nil, &guest.Failure{Kind: guest.FailInvalid, Message: "no zygotes are made of the processes of this guest"}
	}
	made, err := parent.Zygote(p.Path)
	if err != nil {
		return nil, err
	}
	return []*os.File{made}, nil
}

func (s *Server) release(w guest.WriteFile, data []byte) error {
	s.mu.Lock()
	parked := s.parked == w.Path && w.Path != ""
	s.parked = ""
	s.mu.Unlock()
	if !parked {
		return &guest.Failure{Kind: guest.FailState, Message: fmt.Sprintf("no reader is parked at %q", w.Path)}
	}
	if len(data) > guest.MaxParked {
		return &guest.Failure{Kind: guest.FailInvalid,
			Message: fmt.Sprintf("%d bytes for a parked reader, at most %d are allowed", len(data), guest.MaxParked)}
	}
	return s.world.Files.Release(w, data)
}

func with[T any](req guest.Request, f func(T) error) error {
	var p T
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return &guest.Failure{Kind: guest.FailInvalid, Message: err.Error()}
	}
	return f(p)
}

func (s *Server) health() guest.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return guest.Health{Bound: s.phase == phaseBound, Processes: len(s.processes)}
}

// advance runs step if the server is in phase from, and leaves it in phase to, or broken. The lock is not held
// meanwhile: other operations are refused by the phase.
func (s *Server) advance(from, to phase, step func() error) error {
	s.mu.Lock()
	if s.phase != from {
		s.mu.Unlock()
		return &guest.Failure{
			Kind: guest.FailState, Message: "out of order: begin, set up and bind each run once, in this order",
		}
	}
	s.phase = phaseBroken
	s.mu.Unlock()
	if err := step(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = to
	return nil
}

func (s *Server) begin(p guest.Begin) error {
	return s.advance(phaseNew, phaseBegun, func() error { return s.world.Wall.Begin(p) })
}

func (s *Server) setup(p guest.Setup, fds []*os.File) error {
	return s.advance(phaseBegun, phaseSetUp, func() error { return s.world.Wall.Setup(p, fds) })
}

func (s *Server) bind(p guest.Bind, fds []*os.File) (listeners []*os.File, err error) {
	err = s.advance(phaseSetUp, phaseBound, func() (err error) {
		if listeners, err = s.world.Wall.Bind(p, fds); err == nil && p.Copy != nil {
			s.mu.Lock()
			s.parked = p.Copy.Path
			s.mu.Unlock()
		}
		if err != nil || p.Door == nil || s.world.Holder != nil {
			return err
		}
		if err = s.keep(p, fds, listeners); err == nil {
			listeners, err = s.listeners()
		}
		return err
	})
	return listeners, err
}

func (s *Server) keep(p guest.Bind, fds, listeners []*os.File) error {
	kept := detached{listeners: listeners}
	for _, i := range append([]int{*p.Door}, p.Hold...) {
		if i < 0 || i >= len(fds) || fds[i] == nil {
			return &guest.Failure{Kind: guest.FailInvalid, Message: fmt.Sprintf("no descriptor %d to keep", i)}
		}
		kept.held = append(kept.held, fds[i])
		fds[i] = nil
	}
	kept.door = kept.held[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detached = kept
	return nil
}

func (s *Server) keepOthers(p guest.Keep, fds []*os.File) error {
	if s.world.Holder == nil {
		return &guest.Failure{Kind: guest.FailInvalid, Message: "this guest holds its processes itself"}
	}
	return s.world.Holder.Keep(p, fds)
}

func (s *Server) socket() ([]*os.File, error) {
	if s.world.Holder == nil {
		return nil, &guest.Failure{Kind: guest.FailInvalid, Message: "this guest makes no sockets for the host"}
	}
	f, err := s.world.Holder.Socket()
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

func (s *Server) listeners() (copies []*os.File, err error) {
	if s.world.Holder != nil {
		return s.world.Holder.Listeners()
	}
	s.mu.Lock()
	kept := s.detached.listeners
	s.mu.Unlock()
	for _, l := range kept {
		copied, err := duplicate(l)
		if err != nil {
			CloseAll(copies)
			return nil, err
		}
		copies = append(copies, copied)
	}
	return copies, nil
}

func duplicate(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (s *Server) signal(p guest.Signal) error {
	sig := syscall.Signal(p.Signal)
	if sig < 0 || sig > 64 {
		return &guest.Failure{Kind: guest.FailInvalid, Message: fmt.Sprintf("no signal %d", p.Signal)}
	}
	if p.All {
		return s.world.Spawner.SignalAll(sig)
	}
	proc := s.process(p.Process)
	if proc == nil {
		return noProcess(p.Process)
	}
	return proc.Signal(sig)
}

func (s *Server) resize(p guest.Resize) error {
	proc := s.process(p.Process)
	if proc == nil {
		return noProcess(p.Process)
	}
	return proc.Resize(p.Rows, p.Cols)
}

func noProcess(id uint32) error {
	return &guest.Failure{Kind: guest.FailNotFound, Message: fmt.Sprintf("no process %d", id)}
}
