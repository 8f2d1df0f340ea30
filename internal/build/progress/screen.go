package progress

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/redact"
)

// screen shows parts at a terminal: a line for each that has ended, and below them those that go on, each with its last
// lines of output, which are drawn anew.
type screen struct {
	of      *Progress
	out     io.Writer
	columns func() int
	parts   []*Part       // that go on, in the order in which they began
	drawn   int           // lines that are to be drawn anew
	stop    chan struct{} // ends the drawing; nil: nothing is drawn by itself
}

const (
	shownParts  = 8  // that go on
	shownLines  = 6  // of output, of all parts together
	failedLines = 20 // of a part that has failed
	redraw      = 100 * time.Millisecond
)

// NewScreen returns the progress of a build at a terminal, in which secrets are masked.
func NewScreen(out io.Writer, clock clock.Clock, hides *redact.Set, columns func() int) *Progress {
	p := New(out, clock, hides)
	p.view = &screen{of: p, out: out, columns: columns}
	return p
}

func (s *screen) begin(p *Part) {
	s.parts = append(s.parts, p)
	s.resume()
}

func (s *screen) line(p *Part, text string) { p.notes = append(p.notes, text) }

func (s *screen) output(p *Part, text string) {
	p.last = append(p.last, fmt.Sprintf("%.3f %s", p.took().Seconds(), text))
	p.last = p.last[max(0, len(p.last)-failedLines):]
}

// resume draws, and has the parts drawn again as they go on.
func (s *screen) resume() {
	s.draw()
	if s.stop == nil && len(s.parts) > 0 {
		s.stop = make(chan struct{})
		go s.watch(s.stop)
	}
}

// watch draws anew until stop is closed.
func (s *screen) watch(stop <-chan struct{}) {
	for {
		select {
		case <-s.of.clock.After(redraw):
		case <-stop:
			return
		}
		s.of.mu.Lock()
		if s.stop == stop { // it goes on
			s.draw()
		}
		s.of.mu.Unlock()
	}
}

func (s *screen) pause() {
	if s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
	s.wipe()
}

func (s *screen) end(p *Part, how ending, text string) {
	s.pause()
	s.parts = slices.DeleteFunc(s.parts, func(other *Part) bool { return other == p })
	mark := map[ending]string{cached: "CACHED ", canceled: "CANCELED ", failed: "ERROR "}[how]
	s.row(" => "+mark+p.text, p)
	s.below(p.notes, "")
	if how == failed {
		for _, line := range p.last {
			fmt.Fprintln(s.out, line)
		}
	}
	s.resume()
}

// draw shows the parts that go on in the place of what was drawn before.
func (s *screen) draw() {
	s.wipe()
	shown := s.parts[:min(shownParts, len(s.parts))]
	each := shownLines / max(1, len(shown))
	for _, p := range shown {
		lines := p.last[max(0, len(p.last)-max(1, each)):]
		notes := p.notes[max(0, len(p.notes)-shownLines):]
		s.row(" => "+p.text, p)
		s.below(notes, "")
		s.below(lines, "# ")
		s.drawn += 1 + len(notes) + len(lines)
	}
	if more := len(s.parts) - len(shown); more > 0 {
		s.below([]string{fmt.Sprintf("and %d more", more)}, "")
		s.drawn++
	}
}

// below shows lines below that of the part.
func (s *screen) below(lines []string, mark string) {
	for _, line := range lines {
		fmt.Fprintln(s.out, ansi.Truncate(" => => "+mark+strings.ReplaceAll(line, "\t", " "), s.width(), "…"))
	}
}

// wipe removes what was drawn.
func (s *screen) wipe() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\r\x1b[J", s.drawn)
	}
	s.drawn = 0
}

// row shows a line with the time that a part has taken.
func (s *screen) row(text string, p *Part) {
	took := fmt.Sprintf("%7.1fs", p.took().Seconds())
	text = ansi.Truncate(strings.ReplaceAll(text, "\t", " "), s.width()-len(took), "…")
	fmt.Fprintln(s.out, text+strings.Repeat(" ", max(0, s.width()-len(took)-ansi.StringWidth(text)))+took)
}

func (s *screen) width() int { return max(20, s.columns()-1) }
