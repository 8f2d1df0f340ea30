package sidecar

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// stream is one connection that is carried.
type stream struct {
	session *Session
	id      uint32

	mu      sync.Mutex
	changed sync.Cond
	peer    Peer   // nil until there is one
	arrived []byte // from the other end, for the peer
	pending int    // bytes that arrived and that the other end has no new credit for
	credit  int    // bytes that the other end takes
	ended   bool   // the other end sends nothing more
	off     bool   // broken off
}

var errOff = errors.New("the stream was broken off")

func (st *stream) received(f frame) error {
	if f.kind == kindBreak {
		st.breakOff()
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	switch f.kind {
	case kindData:
		if st.ended || st.pending+len(f.payload) > Window {
			return broken("stream %d gets more than was allowed", st.id)
		}
		if st.off {
			return nil
		}
		st.pending += len(f.payload)
		st.arrived = append(st.arrived, f.payload...)
	case kindCredit:
		if len(f.payload) != 4 {
			return broken("a credit of %d bytes", len(f.payload))
		}
		n := binary.BigEndian.Uint32(f.payload)
		if n > Window || st.credit+int(n) > Window {
			return broken("stream %d is given %d bytes more", st.id, n)
		}
		st.credit += int(n)
	case kindEnd:
		st.ended = true
	}
	st.changed.Broadcast()
	return nil
}

// breakOff ends both directions at once.
func (st *stream) breakOff() {
	st.mu.Lock()
	st.off, st.arrived = true, nil
	peer := st.peer
	st.changed.Broadcast()
	st.mu.Unlock()
	if peer != nil {
		peer.Break()
	}
}

// carry carries both directions between a peer, which it closes, and the other end.
func (st *stream) carry(peer Peer) {
	defer peer.Close()
	defer st.session.remove(st)
	st.mu.Lock()
	st.peer = peer
	off := st.off
	st.mu.Unlock()
	if off {
		peer.Break()
		return
	}
	var sent sync.WaitGroup
	sent.Go(func() { st.settle(st.fromPeer(peer)) })
	st.settle(st.toPeer(peer))
	sent.Wait()
}

// settle breaks the stream off after an error of the peer's.
func (st *stream) settle(err error) {
	if err == nil {
		return
	}
	st.mu.Lock()
	known := st.off
	st.mu.Unlock()
	if !known {
		st.session.send(kindBreak, st.id, nil)
	}
	st.breakOff()
}

// fromPeer sends what the peer says, as far as there is credit.
func (st *stream) fromPeer(peer Peer) error {
	p := make([]byte, maxData)
	for {
		most, err := st.allowed()
		if err != nil {
			return err
		}
		n, err := peer.Read(p[:min(most, maxData)])
		if n > 0 {
			st.mu.Lock()
			st.credit -= n
			st.mu.Unlock()
			if err := st.session.send(kindData, st.id, p[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return st.session.send(kindEnd, st.id, nil)
		case err != nil:
			return err
		}
	}
}

// allowed waits for credit.
func (st *stream) allowed() (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.credit == 0 && !st.off {
		st.changed.Wait()
	}
	if st.off {
		return 0, errOff
	}
	return st.credit, nil
}

// toPeer writes what has arrived, and gives credit for it.
func (st *stream) toPeer(peer Peer) error {
	var spare []byte
	for {
		p, err := st.take(spare)
		if err != nil {
			return err
		}
		if p == nil {
			return peer.CloseWrite()
		}
		if _, err := peer.Write(p); err != nil {
			return err
		}
		st.mu.Lock()
		st.pending -= len(p)
		st.mu.Unlock()
		if err := st.session.send(kindCredit, st.id, binary.BigEndian.AppendUint32(nil, uint32(len(p)))); err != nil {
			return err
		}
		spare = p[:0]
	}
}

// take waits for bytes that have arrived, and takes all; nil is the end. spare takes their place.
func (st *stream) take(spare []byte) ([]byte, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for len(st.arrived) == 0 && !st.ended && !st.off {
		st.changed.Wait()
	}
	switch {
	case st.off:
		return nil, errOff
	case len(st.arrived) == 0:
		return nil, nil
	}
	p := st.arrived
	st.arrived = spare
	return p, nil
}
