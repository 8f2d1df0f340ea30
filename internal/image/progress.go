package image

import (
	"io"
	"sync"
)

// Stage is the current work on a layer.
type Stage string

const (
	Download Stage = "download"
	Unpack   Stage = "unpack"
)

// Event is progress with one layer.
type Event struct {
	Stage  Stage
	Layer  int    // from 0
	Layers int    // count
	Digest string // "sha256:…"; may be empty
	Done   int64  // bytes transferred or read; falls when a transfer restarts
	Total  int64  // -1 when unknown
}

// Progress receives events. One goroutine at a time calls it, often, so it should return quickly.
type Progress func(Event)

// reporter serialises calls of a Progress. A nil reporter is silent.
type reporter struct {
	mu   sync.Mutex
	call Progress
}

func newReporter(p Progress) *reporter {
	if p == nil {
		return nil
	}
	return &reporter{call: p}
}

func (r *reporter) send(e Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.call(e)
}

// reader reports the bytes read through it.
func (r *reporter) reader(from io.Reader, e Event) io.Reader {
	if r == nil {
		return from
	}
	r.send(e)
	return &reported{from: from, to: r, event: e}
}

type reported struct {
	from  io.Reader
	to    *reporter
	event Event
}

func (r *reported) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		r.event.Done += int64(n)
		r.to.send(r.event)
	}
	return n, err
}
