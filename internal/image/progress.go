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
	Pack     Stage = "pack"
	Upload   Stage = "upload"
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

// oneAtATime serialises calls of a Progress, which may be nil.
func oneAtATime(p Progress) Progress {
	if p == nil {
		return func(Event) {}
	}
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		p(e)
	}
}

// reader reports e at once, and the bytes read through it.
func (p Progress) reader(from io.Reader, e Event) io.Reader {
	p(e)
	return readerFunc(func(buf []byte) (int, error) {
		n, err := from.Read(buf)
		if n > 0 {
			e.Done += int64(n)
			p(e)
		}
		return n, err
	})
}
