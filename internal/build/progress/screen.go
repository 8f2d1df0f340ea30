package progress

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/redact"
)

// Screen says what a build does at a terminal: a line for each part, and below the present one its last lines of
// output, which are drawn anew.
type Screen struct {
	*Plain
	columns func() int
	text    string   // of the present part; empty: there is none
	notes   []string // about it, which stay
	last    []string // lines of its output
	drawn   int      // lines that are to be drawn anew
	stop    chan struct{}
	stopped chan struct{}
}

const (
	shownLines  = 6  // of output, while a part goes on
	failedLines = 20 // when it has failed
	redraw      = 100 * time.Millisecond
)

// NewScreen returns the progress of a build at a terminal, in which secrets are masked.
func NewScreen(out io.Writer, clock clock.Clock, hides *redact.Set, columns func() int) *Screen {
	s := &Screen{Plain: New(out, clock, hides), columns: columns}
	s.emit = func(text string) {
		s.last = append(s.last, text)
		s.last = s.last[max(0, len(s.last)-failedLines):]
	}
	return s
}

// Begin begins the next part of the build.
func (s *Screen) Begin(format string, args ...any) {
	s.Pause()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.start, s.hit, s.last, s.notes = s.clock.Monotonic(), false, nil, nil
	s.text = printable(s.hides.Text(fmt.Sprintf(format, args...)))
	s.stop, s.stopped = make(chan struct{}), make(chan struct{})
	s.draw()
	go s.watch(s.stop, s.stopped)
}

// Line says something of the present part.
func (s *Screen) Line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, printable(s.hides.Text(fmt.Sprintf(format, args...))))
}

// watch draws anew until stop is closed.
func (s *Screen) watch(stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	for {
		select {
		case <-s.clock.After(redraw):
		case <-stop:
			return
		}
		s.mu.Lock()
		s.draw()
		s.mu.Unlock()
	}
}

// Pause lets another program write where the progress is shown.
func (s *Screen) Pause() {
	if s.stop != nil {
		close(s.stop)
		<-s.stopped
		s.stop = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	s.wipe()
}

// End ends the present part.
func (s *Screen) End() {
	s.Pause()
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := ""
	if s.hit {
		mark = "CACHED "
	}
	s.row(" => " + mark + s.text)
	s.below(s.notes, "")
}

// Fail ends the present part with an error, which it returns, and shows the end of its output.
func (s *Screen) Fail(err error) error {
	s.Pause()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.row(" => ERROR " + s.text)
	s.below(s.notes, "")
	for _, line := range s.last {
		fmt.Fprintln(s.out, line)
	}
	return err
}

// draw shows the present part in the place of what was drawn before.
func (s *Screen) draw() {
	s.wipe()
	s.row(" => " + s.text)
	lines := s.last[max(0, len(s.last)-shownLines):]
	s.below(s.notes, "")
	s.below(lines, "# ")
	s.drawn = 1 + len(s.notes) + len(lines)
}

// below shows lines below that of the part.
func (s *Screen) below(lines []string, mark string) {
	for _, line := range lines {
		fmt.Fprintln(s.out, ansi.Truncate(" => => "+mark+strings.ReplaceAll(line, "\t", " "), s.width(), "…"))
	}
}

// wipe removes what was drawn.
func (s *Screen) wipe() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\r\x1b[J", s.drawn)
	}
	s.drawn = 0
}

// row shows a line with the time that the part has taken.
func (s *Screen) row(text string) {
	took := fmt.Sprintf("%7.1fs", s.took().Seconds())
	text = ansi.Truncate(strings.ReplaceAll(text, "\t", " "), s.width()-len(took), "…")
	fmt.Fprintln(s.out, text+strings.Repeat(" ", max(0, s.width()-len(took)-ansi.StringWidth(text)))+took)
}

func (s *Screen) width() int { return max(20, s.columns()-1) }
