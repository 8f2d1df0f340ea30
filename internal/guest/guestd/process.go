package guestd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/internal/guest"
)

// lingering bounds the wait for more output after a process has exited while a process it left behind holds its streams
// open. Bytes written by then are collected, however late they can be sent.
const lingering = 250 * time.Millisecond

type process struct {
	Process
	id      uint32
	server  *Server
	spec    guest.ProcessSpec
	sources []Output   // the process's ends of its outputs: one or two
	outputs [3]*output // by guest.Stream; Stdin has none
	input   *input
	total   atomic.Int64 // bytes read from both streams
	capped  atomic.Bool  // OutputCap was exceeded
	link    *guest.Link  // of the host that started or attached to it; guarded by server.mu
	exit    []byte       // JSON; guarded by server.mu
	note    []byte       // set by the host; guarded by server.mu, and replaced rather than changed
}

// send writes to the host that is attached. The windows keep the bytes that cannot be sent for the next host.
func (p *process) send(f guest.Frame) {
	p.server.mu.Lock()
	l := p.link
	p.server.mu.Unlock()
	l.Send(f) // a broken connection shows at its reader
}

func (s *Server) start(l *guest.Link, id uint32, spec guest.ProcessSpec) (guest.Started, error) {
	if len(spec.Args) == 0 {
		return guest.Started{}, &guest.Failure{Kind: guest.FailInvalid, Message: "no command"}
	}
	if len(spec.Label) > guest.MaxLabel {
		return guest.Started{}, &guest.Failure{Kind: guest.FailInvalid,
			Message: fmt.Sprintf("a label of %d bytes, at most %d are allowed", len(spec.Label), guest.MaxLabel)}
	}
	s.mu.Lock()
	_, taken := s.processes[id]
	n := len(s.processes)
	s.mu.Unlock()
	if taken || n >= guest.MaxProcesses {
		return guest.Started{}, &guest.Failure{Kind: guest.FailState,
			Message: "the process's id is taken, or there are too many processes"}
	}
	proc, err := s.world.Spawner.Start(spec)
	if err != nil {
		return guest.Started{}, err
	}
	p := &process{Process: proc, id: id, server: s, spec: spec, link: l}
	p.sources = []Output{proc.Stdout()}
	if r := proc.Stderr(); r != nil {
		p.sources = append(p.sources, r)
	}
	p.outputs[guest.Stdout] = newOutput(id, guest.FrameStdout, s.room, l)
	p.outputs[guest.Stderr] = newOutput(id, guest.FrameStderr, s.room, l)
	p.input = newInput(proc.Stdin(), func(offset uint64) {
		p.send(guest.Frame{Type: guest.FrameAck, ID: id, Payload: guest.Ack{Stream: guest.Stdin, Offset: offset}.Payload()})
	})
	s.mu.Lock()
	s.processes[id] = p
	if s.ended {
		p.end()
	}
	s.mu.Unlock()
	go p.run()
	return guest.Started{PID: proc.PID()}, nil
}

func (p *process) end() {
	p.outputs[guest.Stdout].end()
	p.outputs[guest.Stderr].end()
}

// run owns the process until its exit has been sent.
func (p *process) run() {
	var pumps sync.WaitGroup
	limits := []int64{p.spec.StdoutLimit, p.spec.StderrLimit}
	for i, r := range p.sources {
		pumps.Go(func() { p.pump(p.outputs[guest.Stdout+guest.Stream(i)], r, limits[i]) })
	}
	go p.input.run()
	code, signal := p.Wait()
	if p.spec.Alone {
		p.server.world.Spawner.SignalAll(syscall.SIGKILL)
	} else {
		t := time.AfterFunc(lingering, func() {
			for _, r := range p.sources {
				r.Cut()
			}
		})
		defer t.Stop()
	}
	pumps.Wait()
	for _, r := range p.sources {
		r.Close() // of a terminal its input, too, where a write may wait for room
	}
	p.input.close()
	p.input.silence()
	p.sendExit(code, signal)
}

func (p *process) sendExit(code int, signal syscall.Signal) {
	e := guest.Exit{
		Code: code, Signal: int(signal), OutputCapped: p.capped.Load(),
		StdoutDropped: p.outputs[guest.Stdout].dropped, StderrDropped: p.outputs[guest.Stderr].dropped,
		Stats: p.server.world.Spawner.Stats(),
	}
	if signal != 0 {
		e.Code = 128 + int(signal)
	}
	j, _ := json.Marshal(e)
	p.server.mu.Lock()
	p.exit = j
	l := p.link // a host that attaches from now on gets the exit from attach, once
	p.server.mu.Unlock()
	l.Send(guest.Frame{Type: guest.FrameExit, ID: p.id, Payload: j})
}

// pump moves one stream from the process into its window. Bytes beyond limit are read and dropped.
func (p *process) pump(o *output, r io.Reader, limit int64) {
	buf := make([]byte, guest.MaxChunk/8) // grows with the stream: most have little to say
	passed := int64(0)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			keep := n
			if limit > 0 {
				keep = int(min(int64(n), limit-passed))
			}
			passed += int64(keep)
			o.dropped += uint64(n - keep)
			if keep > 0 {
				o.write(buf[:keep])
			}
			if total := p.total.Add(int64(n)); p.spec.OutputCap > 0 && total > p.spec.OutputCap && !p.capped.Swap(true) {
				p.Signal(syscall.SIGKILL)
			}
		}
		if err != nil {
			return
		}
		if n == len(buf) && n < guest.MaxChunk {
			buf = make([]byte, 2*n)
		}
	}
}

// attach connects the process to the host on l, and sends what that host lacks of its output, then the exit if any.
func (s *Server) attach(l *guest.Link, a guest.Attach) (guest.Attached, error) {
	p := s.process(a.Process)
	if p == nil {
		return guest.Attached{}, noProcess(a.Process)
	}
	if !p.outputs[guest.Stdout].resend(l, a.Stdout) || !p.outputs[guest.Stderr].resend(l, a.Stderr) {
		return guest.Attached{}, &guest.Failure{Kind: guest.FailInvalid, Message: "that part of the output is gone"}
	}
	s.mu.Lock()
	p.link = l
	exit := p.exit
	s.mu.Unlock()
	if exit != nil {
		l.Send(guest.Frame{Type: guest.FrameExit, ID: p.id, Payload: exit})
	}
	return p.input.attached(), nil
}

// list describes the processes whose exit has not been collected, oldest first.
func (s *Server) list() []guest.ProcessInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]guest.ProcessInfo, 0, len(s.processes))
	for id, p := range s.processes {
		info := guest.ProcessInfo{ID: id, Label: p.spec.Label, TTY: p.spec.TTY}
		info.Stdout, info.StdoutEnd = p.outputs[guest.Stdout].extent()
		info.Stderr, _ = p.outputs[guest.Stderr].extent()
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b guest.ProcessInfo) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (s *Server) note(n guest.Note, data []byte) error {
	if len(data) > guest.MaxNote {
		return &guest.Failure{Kind: guest.FailInvalid, Message: fmt.Sprintf("a note of %d bytes, at most %d are allowed",
			len(data), guest.MaxNote)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[n.Process]
	if p == nil {
		return noProcess(n.Process)
	}
	p.note = data
	return nil
}

func (s *Server) noted(n guest.Note) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[n.Process]
	if p == nil {
		return nil, noProcess(n.Process)
	}
	return p.note, nil
}

// output is the sending window of one stream; it retains bytes until the host acknowledges them. sendMu keeps chunks in
// order; acknowledgements take only mu.
type output struct {
	id      uint32
	frame   guest.FrameType
	room    int    // bytes that are retained at most
	dropped uint64 // owned by the pump; read after it has ended

	sendMu sync.Mutex // acquired before mu
	link   *guest.Link

	mu   sync.Mutex
	cond sync.Cond
	base uint64 // offset of kept[0]
	kept []byte
	over bool // no host takes any more
}

func newOutput(id uint32, frame guest.FrameType, room int, l *guest.Link) *output {
	o := &output{id: id, frame: frame, room: room, link: l}
	o.cond.L = &o.mu
	return o
}

// send requires sendMu.
func (o *output) send(c guest.Chunk) {
	o.link.SendChunk(o.frame, o.id, c)
}

// write retains p and sends it, in parts as the window has room for them.
func (o *output) write(p []byte) {
	for len(p) > 0 {
		o.mu.Lock()
		for !o.over && len(o.kept) >= o.room {
			o.cond.Wait()
		}
		n := min(len(p), o.room-len(o.kept))
		over := o.over
		o.mu.Unlock()
		if over {
			return
		}
		o.retain(p[:n]) // only the pump adds bytes, so the room cannot shrink meanwhile
		p = p[n:]
	}
}

// retain retains p, for which there is room, and sends it.
func (o *output) retain(p []byte) {
	o.sendMu.Lock()
	defer o.sendMu.Unlock()
	o.mu.Lock()
	offset := o.base + uint64(len(o.kept))
	o.kept = append(o.kept, p...)
	o.mu.Unlock()
	o.send(guest.Chunk{Offset: offset, Data: p})
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.cond.Broadcast()
}

func (o *output) extent() (from, to uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.base, o.base + uint64(len(o.kept))
}

func (o *output) acked(offset uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset <= o.base || offset > o.base+uint64(len(o.kept)) {
		return
	}
	o.kept = o.kept[:copy(o.kept, o.kept[offset-o.base:])]
	o.base = offset
	o.cond.Broadcast()
}

// resend switches to the host on l and sends it everything from offset on; false: that is no longer retained.
func (o *output) resend(l *guest.Link, offset uint64) bool {
	o.sendMu.Lock()
	defer o.sendMu.Unlock()
	o.link = l
	o.acked(offset)
	o.mu.Lock()
	base, kept := o.base, bytes.Clone(o.kept)
	o.mu.Unlock()
	if offset != base {
		return false
	}
	for chunk := range slices.Chunk(kept, guest.MaxChunk) {
		o.send(guest.Chunk{Offset: base, Data: chunk})
		base += uint64(len(chunk))
	}
	return true
}

// input is the receiving window of standard input.
type input struct {
	to  io.WriteCloser // nil: input is dropped
	ack func(offset uint64)

	ackMu  sync.Mutex // held while an acknowledgement is sent
	silent bool       // guarded by ackMu: no more acknowledgements

	mu       sync.Mutex
	cond     sync.Cond
	buf      []byte
	received uint64
	taken    uint64
	ended    bool
}

func newInput(to io.WriteCloser, ack func(uint64)) *input {
	i := &input{to: to, ack: ack}
	i.cond.L = &i.mu
	return i
}

// put takes a chunk from the host; an empty chunk is end of file.
func (i *input) put(c guest.Chunk) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return nil
	}
	if c.Offset != i.received || i.received+uint64(len(c.Data)) > i.taken+guest.Window {
		return &guest.ProtocolError{Reason: "input out of order or beyond its window"}
	}
	if len(c.Data) == 0 {
		i.ended = true
	}
	i.received += uint64(len(c.Data))
	i.buf = append(i.buf, c.Data...)
	i.cond.Broadcast()
	return nil
}

// attached says where another host goes on.
func (i *input) attached() guest.Attached {
	i.mu.Lock()
	defer i.mu.Unlock()
	return guest.Attached{Stdin: i.received, StdinTaken: new(i.taken)}
}

// close ends the input and abandons a blocked write.
func (i *input) close() {
	i.mu.Lock()
	i.ended = true
	i.cond.Broadcast()
	i.mu.Unlock()
	if i.to != nil {
		i.to.Close()
	}
}

// silence stops all acknowledgements: the host knows the process no more once it has received the exit.
func (i *input) silence() {
	i.ackMu.Lock()
	defer i.ackMu.Unlock()
	i.silent = true
}

// run writes to the process until either ends. Input that the process refuses is acknowledged and dropped.
func (i *input) run() {
	wanted := i.to != nil
	for {
		i.mu.Lock()
		for len(i.buf) == 0 && !i.ended {
			i.cond.Wait()
		}
		data := i.buf
		i.buf = nil
		i.mu.Unlock()
		if len(data) == 0 {
			i.close()
			return
		}
		if wanted {
			_, err := i.to.Write(data)
			wanted = err == nil
		}
		i.mu.Lock()
		i.taken += uint64(len(data))
		offset := i.taken
		i.mu.Unlock()
		i.ackMu.Lock()
		if !i.silent {
			i.ack(offset)
		}
		i.ackMu.Unlock()
	}
}
