package proxy

import (
	"errors"
	"sync/atomic"
	"time"
)

// meter ends an HTTP/2 connection with much traffic and next to no payload: PING, SETTINGS, PRIORITY, empty
// CONTINUATION or DATA and the like cost the gateway work, if little memory.
type meter struct {
	useful atomic.Int64 // bytes of heads and bodies, both ways

	since    time.Time // start of the period; owned by the reader
	received int64     // bytes on the wire
	before   int64     // useful at the start of the period
}

const (
	meterFree    = 4 << 20 // bytes a minute without payload
	meterFactor  = 32      // bytes per payload byte: small messages have large frames
	meterRequest = 4 << 10 // payload credit of a request, whatever its head
)

var errIdleTalk = errors.New("an HTTP/2 connection that carries next to nothing")

// allows counts n received bytes and reports whether the connection may go on.
func (m *meter) allows(n int, now func() time.Time) bool {
	m.received += int64(n)
	useful := m.useful.Load()
	if m.received <= meterFree+meterFactor*(useful-m.before) {
		return true
	}
	at := now()
	if at.Sub(m.since) < time.Minute {
		return false
	}
	m.since, m.received, m.before = at, 0, useful
	return true
}
