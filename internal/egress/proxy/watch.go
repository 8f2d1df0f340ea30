package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// watchdog calls bark once after a period without activity.
type watchdog struct {
	period time.Duration
	last   atomic.Int64 // nanoseconds since start
	start  time.Time
	bark   func()

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	stopped bool        // guarded by mu
}

func watch(period time.Duration, bark func()) *watchdog {
	w := &watchdog{period: period, start: time.Now(), bark: bark}
	w.timer = time.AfterFunc(period, w.look)
	return w
}

// moved records activity.
func (w *watchdog) moved() { w.last.Store(int64(time.Since(w.start))) }

func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if rest := w.period - (time.Since(w.start) - time.Duration(w.last.Load())); rest > 0 {
		w.timer.Reset(rest)
		return
	}
	w.stopped = true
	w.bark()
}

// stop returns when bark is not running and will not run.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}
