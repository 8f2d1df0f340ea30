package cli

import (
	"fmt"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/cove-sandbox/cove/api"
)

// steps shows what takes a while, step by step: the one under way on a line
// that is drawn over at a terminal, and each that is done with its time.
type steps struct {
	a       *app
	moving  bool
	drawn   time.Time
	current string
	began   float64   // of the current step, seconds since the beginning of all
	seen    time.Time // when the current step was
}

func (a *app) newSteps() *steps {
	return &steps{a: a, moving: isTerminal(a.Err) && a.getenv("TERM") != "dumb"}
}

// take is told of progress.
func (s *steps) take(p api.Progress) {
	if p.Step != s.current {
		s.done(p.Elapsed - s.began)
		s.current, s.began, s.seen, s.drawn = p.Step, p.Elapsed, time.Now(), time.Time{}
	}
	if !s.moving || time.Since(s.drawn) < redraw {
		return
	}
	s.drawn = time.Now()
	text := printable(p.Step)
	if p.Done > 0 {
		text += fmt.Sprintf(" %3.0f%%", 100*p.Done)
	}
	if p.Note != "" {
		text += ", " + printable(p.Note)
	}
	fmt.Fprint(s.a.Err, "\r"+ansi.Truncate(text, columns(s.a.Err)-1, "")+"\x1b[K")
}

// finish ends the last step, which has no other after it.
func (s *steps) finish() { s.done(time.Since(s.seen).Seconds()) }

// done says how many seconds the current step took.
func (s *steps) done(took float64) {
	if s.current == "" {
		return
	}
	s.clear()
	s.a.say.line("%s (%s)", s.current, timeText(time.Duration(max(took, 0)*float64(time.Second))))
	s.current = ""
}

// fail leaves the step that did not come to its end.
func (s *steps) fail() {
	if s.current != "" {
		s.clear()
		s.a.say.line("%s", s.current)
	}
	s.current = ""
}

func (s *steps) clear() {
	if s.moving {
		fmt.Fprint(s.a.Err, "\r\x1b[K")
	}
}
