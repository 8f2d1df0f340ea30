package sidecar

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"
)

// Peer is a connection to which a stream is carried. Its methods may be called concurrently.
type Peer interface {
	io.ReadWriter      // Read's io.EOF: it sends nothing more
	CloseWrite() error // it is sent nothing more
	Break()            // ends it with an error, and calls on it; also after Close
	io.Closer
}

// Session is one end of a connection between a sidecar and the host. Its streams end with it.
type Session struct {
	conn io.ReadWriteCloser
	in   reader
	most int // streams

	opening sync.Mutex // from the choice of a stream's id until that is sent: ids rise
	writing sync.Mutex
	out     []byte // guarded by writing

	mu      sync.Mutex
	closed  bool
	last    uint32 // the highest id so far
	streams map[uint32]*stream
	running sync.WaitGroup // carriers of streams
}

// Host takes what a session of the host's end brings.
type Host interface {
	// Open connects to the socket of an index of the setup, for a client that wanted to go to a place. It may wait.
	Open(index int, to netip.AddrPort) (Peer, error)
	// Packet takes a datagram for the socket of an index, and must not wait; p is valid until it returns.
	Packet(index int, from netip.AddrPort, p []byte)
}

func newSession(conn io.ReadWriteCloser, most int) *Session {
	return &Session{conn: conn, in: reader{r: conn}, most: most, streams: map[uint32]*stream{}}
}

// Outside begins the host's end: it returns when the sidecar is ready. It closes conn on error.
func Outside(conn io.ReadWriteCloser, setup Setup) (*Session, error) {
	s := newSession(conn, 2*MaxStreams)
	text, err := json.Marshal(setup)
	if err == nil && len(text) > MaxPayload {
		err = fmt.Errorf("a setup of %d bytes", len(text))
	}
	if err == nil {
		err = s.send(kindSetup, 0, text)
	}
	var f frame
	if err == nil {
		f, err = s.in.next()
	}
	switch {
	case err != nil:
	case f.kind != kindReady:
		err = broken("it begins with a frame of kind %d", f.kind)
	case len(f.payload) > 0:
		err = &Failure{string(f.payload)}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Failure is why a sidecar cannot do what was asked of it, in its own words.
type Failure struct{ Reason string }

func (f *Failure) Error() string { return f.Reason }

// Inside begins the sidecar's end: it reads the setup, and answers as do does.
func Inside(conn io.ReadWriteCloser, do func(Setup) error) (*Session, error) {
	s := newSession(conn, MaxStreams)
	f, err := s.in.next()
	var setup Setup
	switch {
	case err != nil:
		return nil, err
	case f.kind != kindSetup:
		return nil, broken("it begins with a frame of kind %d", f.kind)
	}
	if err := json.Unmarshal(f.payload, &setup); err != nil {
		return nil, err
	}
	if len(setup.Sockets) > MaxSockets {
		return nil, broken("%d sockets", len(setup.Sockets))
	}
	if err := do(setup); err != nil {
		reason := err.Error()
		return nil, errors.Join(err, s.send(kindReady, 0, []byte(reason[:min(len(reason), maxReason)])))
	}
	return s, s.send(kindReady, 0, nil)
}

// Serve carries what the sidecar sends until the session ends, and says why it has.
func (s *Session) Serve(h Host, sockets int) error {
	err := s.serve(func(f frame) error {
		switch f.kind {
		case kindOpen:
			return s.opened(h, sockets, f)
		case kindPacket:
			from, p, err := parseAddress(f.payload)
			if err == nil && f.id >= uint32(sockets) {
				err = broken("a packet for socket %d", f.id)
			}
			if err == nil {
				h.Packet(int(f.id), from, p)
			}
			return err
		}
		return broken("a frame of kind %d", f.kind)
	})
	return err
}

// ServeInside carries what the host sends until the session ends. It has packets sent to the clients.
func (s *Session) ServeInside(packet func(index int, to netip.AddrPort, p []byte)) error {
	return s.serve(func(f frame) error {
		if f.kind != kindPacket {
			return broken("a frame of kind %d", f.kind)
		}
		to, p, err := parseAddress(f.payload)
		if err == nil {
			packet(int(f.id), to, p)
		}
		return err
	})
}

// serve never waits for the other end to read: what it sends, streams send.
func (s *Session) serve(other func(frame) error) error {
	defer s.running.Wait()
	defer s.Close()
	for {
		f, err := s.in.next()
		if err != nil {
			return err
		}
		switch f.kind {
		case kindData, kindCredit, kindEnd, kindBreak:
			err = s.received(f)
		default:
			err = other(f)
		}
		if err != nil {
			return err
		}
	}
}

// received gives a frame to its stream. One that has ended already may get some that were on their way.
func (s *Session) received(f frame) error {
	s.mu.Lock()
	st, last := s.streams[f.id], s.last
	s.mu.Unlock()
	switch {
	case f.id > last:
		return broken("a frame of stream %d, which was not opened", f.id)
	case st == nil:
		return nil
	}
	return st.received(f)
}

func (s *Session) opened(h Host, sockets int, f frame) error {
	if len(f.payload) == 0 || int(f.payload[0]) >= sockets {
		return broken("a stream of no socket")
	}
	index := int(f.payload[0])
	to, rest, err := parseAddress(f.payload[1:])
	if err != nil || len(rest) > 0 {
		return broken("a stream to nowhere")
	}
	st, err := s.add(f.id)
	if err != nil {
		return err
	}
	s.running.Go(func() {
		peer, err := h.Open(index, to)
		if err != nil {
			s.send(kindBreak, st.id, nil)
			s.remove(st)
			return
		}
		st.carry(peer)
	})
	return nil
}

var errMany = broken("more than %d streams", 2*MaxStreams)

// add adds a stream, whose id is 0 for the next one.
func (s *Session) add(id uint32) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, io.ErrClosedPipe
	case len(s.streams) >= s.most:
		return nil, errMany
	case id == 0:
		id = s.last + 1
	case id <= s.last:
		return nil, broken("stream %d is opened after %d", id, s.last)
	}
	s.last = id
	st := &stream{session: s, id: id, credit: Window}
	st.changed.L = &st.mu
	s.streams[id] = st
	return st, nil
}

func (s *Session) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st.id)
}

// Carry has the host connect a client of the socket of an index, and carries what they say until both have ended.
func (s *Session) Carry(index int, to netip.AddrPort, client Peer) {
	s.opening.Lock()
	st, err := s.add(0)
	if err == nil {
		err = s.send(kindOpen, st.id, appendAddress([]byte{byte(index)}, to))
	}
	s.opening.Unlock()
	if err != nil {
		if st != nil {
			s.remove(st)
		}
		client.Break()
		client.Close()
		return
	}
	st.carry(client)
}

// SendPacket sends a datagram of a client, or to one.
func (s *Session) SendPacket(index int, client netip.AddrPort, p []byte) error {
	if len(p) > MaxDatagram {
		return nil // as a network does
	}
	return s.send(kindPacket, uint32(index), append(appendAddress(nil, client), p...))
}

// patience is how long the other end may take to read a frame.
const patience = 30 * time.Second

func (s *Session) send(k kind, id uint32, payload []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.out = append(s.out[:0], byte(k))
	s.out = binary.BigEndian.AppendUint32(s.out, id)
	s.out = binary.BigEndian.AppendUint16(s.out, uint16(len(payload)))
	s.out = append(s.out, payload...)
	if d, ok := s.conn.(interface{ SetWriteDeadline(time.Time) error }); ok {
		d.SetWriteDeadline(time.Now().Add(patience))
	}
	_, err := s.conn.Write(s.out)
	if err != nil {
		s.Close() // half a frame may have been sent
	}
	return err
}

// Close ends the session and breaks its streams off.
func (s *Session) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	all := s.streams
	s.streams = map[uint32]*stream{}
	s.mu.Unlock()
	for _, st := range all {
		st.breakOff()
	}
	if again {
		return nil
	}
	return s.conn.Close()
}
