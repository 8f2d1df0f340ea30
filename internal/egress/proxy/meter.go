package proxy

import (
	"errors"
	"sync/atomic"
	"time"
)

// meter ends an HTTP/2 connection on which much is sent and next to nothing
// carried: PING, SETTINGS, PRIORITY, empty CONTINUATION or DATA and the like
// cost the gateway work, however little memory.
type meter struct {
	useful atomic.Int64 // bytes of heads and bodies, both ways

	since    time.Time // of what follows; the reader's alone
	received int64     // bytes on the wire
	before   int64     // useful until then
}

const (
	meterFree    = 4 << 20 // bytes a minute that need no use
	meterFactor  = 32      // bytes for each useful one: small messages have large frames
	meterRequest = 4 << 10 // a request is worth that, whatever its head
)

var errIdleTalk = errors.New("an HTTP/2 connection that carries next to nothing")

// allows counts n bytes that have come.
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
