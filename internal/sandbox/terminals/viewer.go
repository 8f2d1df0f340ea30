package terminals

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/terminal"
)

const (
	// maxQueued is how much output is kept for a viewer that reads slowly, in bytes.
	// Beyond it, the viewer is sent the whole screen when it reads.
	maxQueued = 256 << 10

	// frameInterval is how often a viewer whose size is not the terminal's is sent the screen.
	frameInterval = 50 * time.Millisecond
)

// Viewer shows a terminal to its user, and sends what the user types. As in tmux, a
// terminal has the size of the viewer that did something last.
type Viewer struct {
	terminal *Terminal
	news     chan struct{} // holds one value when there is something for Next

	// Terminal.mu guards the rest.
	size      terminal.Size
	history   bool   // the history comes first
	redraw    bool   // the whole screen is due
	stale     bool   // the screen has changed since the last frame; for other sizes
	alternate bool   // the last frame was of the alternate screen
	queued    []byte // due, of the terminal's own size
	lastFrame clock.Instant
	detached  error
}

// ID is the terminal's.
func (v *Viewer) ID() string { return v.terminal.id }

// Close detaches the viewer. The program runs on.
func (v *Viewer) Close() { v.terminal.detach(v, cove.Errorf(cove.Canceled, "detached")) }

// detach, notify, queue and next are called with Terminal.mu held.
func (v *Viewer) detach(why error) {
	v.detached = cmp.Or(v.detached, why)
	v.notify()
}

func (v *Viewer) notify() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// queue keeps what the terminal shows until the viewer reads it.
func (v *Viewer) queue(shown []byte) {
	switch {
	case len(shown) == 0:
		return
	case v.redraw:
	case v.size != v.terminal.model.Size():
		v.stale = true
	case len(v.queued)+len(shown) > maxQueued:
		v.redraw, v.queued = true, nil
	default:
		v.queued = append(v.queued, shown...)
	}
	v.notify()
}

// next takes what is due; nothing, with how long that stays so at most.
func (v *Viewer) next() (p []byte, wait time.Duration) {
	t := v.terminal
	clk := t.set.o.Clock
	switch {
	case v.redraw:
	case v.stale:
		if wait = frameInterval - clk.Since(v.lastFrame); wait > 0 && !t.Ended() {
			return nil, wait
		}
	default:
		p, v.queued = v.queued, nil
		return p, 0
	}
	whole := v.redraw || v.alternate != t.model.Alternate()
	if v.history && !t.model.Alternate() && v.size == t.model.Size() {
		p = t.model.History(historyLines)
	}
	p = append(p, t.model.Redraw(v.size, whole)...)
	v.history, v.redraw, v.stale, v.queued = false, false, false, nil
	v.alternate, v.lastFrame = t.model.Alternate(), clk.Monotonic()
	return p, 0
}

// Next waits for what is to be shown next. It returns io.EOF when the program has ended and everything has been shown,
// and otherwise why nothing is shown any more: Canceled after Close and with ctx, Unavailable when this server goes,
// Conflict when the sandbox does not run any more.
func (v *Viewer) Next(ctx context.Context) ([]byte, error) {
	t := v.terminal
	for {
		t.mu.Lock()
		p, wait := v.next()
		ended, why := t.Ended(), cmp.Or(v.detached, t.lost)
		t.mu.Unlock()
		switch {
		case len(p) > 0:
			return p, nil
		case why != nil:
			return nil, why
		case ended:
			return nil, io.EOF
		}
		var later <-chan time.Time
		if wait > 0 {
			later = t.set.o.Clock.After(wait)
		}
		select {
		case <-v.news:
		case <-later:
		case <-ctx.Done():
			return nil, cove.Errorf(cove.Canceled, "the viewer went away: %w", ctx.Err())
		}
	}
}

// ExitCode is how the program has ended, after Next has returned io.EOF.
func (v *Viewer) ExitCode() int {
	v.terminal.mu.Lock()
	defer v.terminal.mu.Unlock()
	return v.terminal.exit
}

// Type sends what was typed. It waits while the program does not read. Errors: Canceled with ctx.
func (v *Viewer) Type(ctx context.Context, p []byte) error {
	v.terminal.resizeTo(v)
	select {
	case v.terminal.input <- slices.Clone(p):
		return nil
	case <-v.terminal.ended:
		return nil // Next says so
	case <-ctx.Done():
		return cove.Errorf(cove.Canceled, "the viewer went away: %w", ctx.Err())
	}
}

// Resize gives the viewer another size.
func (v *Viewer) Resize(size terminal.Size) {
	t := v.terminal
	t.mu.Lock()
	if size = size.Clamp(); v.size != size {
		v.size, v.redraw = size, true
		v.notify()
	}
	t.mu.Unlock()
	t.resizeTo(v)
}

// Colors sets the colors of the viewer's own terminal, as in "rgb:0000/0000/0000",
// for programs that ask. Others are ignored.
func (v *Viewer) Colors(foreground, background string) {
	t := v.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	if isColor(foreground) {
		t.model.Foreground = foreground
	}
	if isColor(background) {
		t.model.Background = background
	}
}

// isColor accepts rgb:H/H/H, of one to four hexadecimal digits each.
func isColor(s string) bool {
	s, ok := strings.CutPrefix(s, "rgb:")
	parts := strings.Split(s, "/")
	for _, p := range parts {
		ok = ok && p != "" && len(p) <= 4 && strings.Trim(p, "0123456789abcdefABCDEF") == ""
	}
	return ok && len(parts) == 3
}
