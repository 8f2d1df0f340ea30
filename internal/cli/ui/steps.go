package ui

import (
	"fmt"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/cove-sandbox/cove/api"
)

// Redraw is how often a bar is drawn at most.
const Redraw = 100 * time.Millisecond

// Steps shows what takes a while, step by step: the one under way on a line
// that is drawn over at a terminal, and each that is done with its time.
type Steps struct {
	terminal *Terminal
	moving   bool
	drawn    time.Time
	current  string
	began    float64   // of the current step, seconds since the beginning of all
	seen     time.Time // when the current step was
}

func (t *Terminal) NewSteps() *Steps {
	return &Steps{terminal: t, moving: IsTerminal(t.Err) && t.Getenv("TERM") != "dumb"}
}

// Take receives a report of progress.
func (s *Steps) Take(p api.Progress) {
	if p.Step != s.current {
		s.done(p.Elapsed - s.began)
		s.current, s.began, s.seen, s.drawn = p.Step, p.Elapsed, time.Now(), time.Time{}
	}
	if !s.moving || time.Since(s.drawn) < Redraw {
		return
	}
	s.drawn = time.Now()
	text := Printable(p.Step)
	if p.Done > 0 {
		text += fmt.Sprintf(" %3.0f%%", 100*p.Done)
	}
	if p.Note != "" {
		text += ", " + Printable(p.Note)
	}
	fmt.Fprint(s.terminal.Err, "\r"+ansi.Truncate(text, Columns(s.terminal.Err)-1, "")+"\x1b[K")
}

// End ends the last step, which has come to its end unless there is an error.
func (s *Steps) End(err error) {
	if err != nil {
		s.Fail()
	} else {
		s.Finish()
	}
}

// Finish ends the last step, which has no other after it.
func (s *Steps) Finish() { s.done(time.Since(s.seen).Seconds()) }

// done prints how many seconds the current step took.
func (s *Steps) done(took float64) {
	if s.current == "" {
		return
	}
	s.clear()
	s.terminal.Say.Line("%s (%s)", s.current, TimeText(time.Duration(max(took, 0)*float64(time.Second))))
	s.current = ""
}

// Fail leaves the step that did not come to its end.
func (s *Steps) Fail() {
	if s.current != "" {
		s.clear()
		s.terminal.Say.Line("%s", s.current)
	}
	s.current = ""
}

func (s *Steps) clear() {
	if s.moving {
		fmt.Fprint(s.terminal.Err, "\r\x1b[K")
	}
}
