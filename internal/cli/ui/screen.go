package ui

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// Screen writes the output of a program. What goes to a terminal passes a filter, unless it is wanted raw: the terminal
// shows text and does nothing else. There, Cove's own messages begin a line of their own, and output that comes while
// a question is open appears after the question. A status line may stay below both.
type Screen struct {
	Stdout, Stderr io.Writer
	Terminal       *os.File // on which Cove speaks; nil if it is none

	mu     sync.Mutex
	within bool // the cursor was left within a line
	held   bool
	late   []lateOutput // while held; the server bounds how much a program prints
	status string       // the line below; empty is none
	panes  []*pane      // the streams that are terminals
}

type lateOutput struct {
	to *pane
	p  []byte
}

func (t *Terminal) NewScreen() *Screen {
	s := &Screen{Stdout: t.Out, Stderr: t.Err}
	if IsTerminal(t.Err) {
		s.Terminal, s.Stderr = t.Err, s.pane(t.Err, t.Raw)
	}
	if IsTerminal(t.Out) {
		s.Stdout = s.pane(t.Out, t.Raw)
	}
	return s
}

// pane is one stream of a program, at a terminal.
type pane struct {
	Screen *Screen
	to     *os.File
	filter *terminal.Lines // nil: raw
}

func (s *Screen) pane(to *os.File, raw bool) *pane {
	w := &pane{Screen: s, to: to}
	if !raw {
		w.filter = &terminal.Lines{}
	}
	s.panes = append(s.panes, w)
	return w
}

func (w *pane) Write(p []byte) (int, error) {
	s := w.Screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		s.late = append(s.late, lateOutput{w, bytes.Clone(p)})
		return len(p), nil
	}
	return s.write(w, p)
}

func (s *Screen) write(w *pane, p []byte) (int, error) {
	if w.filter == nil {
		return s.put(w, p)
	}
	if _, err := s.put(w, w.filter.Write(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *Screen) put(w *pane, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.erase()
	defer s.draw()
	s.within = p[len(p)-1] != '\n'
	return w.to.Write(p)
}

// each writes what is returned for the filter of each stream.
func (s *Screen) each(of func(*terminal.Lines) []byte) {
	for _, w := range s.panes {
		if w.filter != nil {
			w.to.Write(of(w.filter))
		}
	}
}

// Below sets the line below what is written; empty is none. It must fit the terminal.
func (s *Screen) Below(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.status = text
	s.draw()
}

// draw draws the line below, where there is one and place for it; s.mu is held.
func (s *Screen) draw() {
	if s.hasBelow() {
		s.each((*terminal.Lines).Calm)
		io.WriteString(s.Terminal, s.status)
		s.each((*terminal.Lines).Resume)
	}
}

func (s *Screen) erase() {
	if s.hasBelow() {
		io.WriteString(s.Terminal, "\r\x1b[K")
	}
}

func (s *Screen) hasBelow() bool { return s.status != "" && s.Terminal != nil && !s.within && !s.held }

// leave clears the line below, and ends the program's line and colours; s.mu is held.
func (s *Screen) leave() {
	s.erase()
	s.each((*terminal.Lines).Leave)
	if s.within && s.Terminal != nil {
		io.WriteString(s.Terminal, "\n")
		s.within = false
	}
}

// Apart calls say between two outputs of the program, so that Cove's messages do not mix with them.
func (s *Screen) Apart(say func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.draw()
	s.leave()
	say()
	s.each((*terminal.Lines).Resume)
}

// Hold keeps back what the program writes, until release.
func (s *Screen) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave()
	s.held = true
}

func (s *Screen) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.each((*terminal.Lines).Resume)
	s.draw()
	for _, o := range s.late {
		s.write(o.to, o.p) // who cannot be written to shows with the next output
	}
	s.late = nil
}

// Restore ends the last line of the program's output, and its colours.
func (s *Screen) Restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.draw()
	s.leave()
}

// AddRaw adds --raw to a command that shows the output of a program.
func (t *Terminal) AddRaw(f *pflag.FlagSet) {
	f.BoolVar(&t.Raw, "raw", false, "write to a terminal what the program wrote, and not text and colours alone")
}

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
	bytes    int64     // of the current step
}

func (t *Terminal) NewSteps() *Steps { return &Steps{terminal: t, moving: t.moving()} }

// moving reports whether messages are on a terminal that can draw over a line.
func (t *Terminal) moving() bool { return IsTerminal(t.Err) && t.Getenv("TERM") != "dumb" }

// sayAfter is how long a command waits before it says so, where no line can be drawn over.
const sayAfter = 2 * time.Second

// Waits says what a command waits for: at a terminal soon, on a line that is there until end is called, and elsewhere
// after sayAfter. Nothing else may be written on standard error until end was called, which may be repeated.
func (t *Terminal) Waits(format string, args ...any) (end func()) {
	say, after := func(text string) { t.Say.Line("%s", text) }, sayAfter
	if t.moving() {
		say, after = t.draw, Redraw // a shorter wait does not flicker
	}
	said := make(chan struct{})
	timer := time.AfterFunc(after, func() {
		say(fmt.Sprintf(format, args...))
		close(said)
	})
	return sync.OnceFunc(func() {
		if timer.Stop() {
			return
		}
		<-said
		if t.moving() {
			t.clear()
		}
	})
}

// draw draws over the line, as much as fits.
func (t *Terminal) draw(text string) {
	fmt.Fprint(t.Err, "\r"+ansi.Truncate(Printable(text), Columns(t.Err)-1, "")+"\x1b[K") // a full line would wrap
}

func (t *Terminal) clear() { fmt.Fprint(t.Err, "\r\x1b[K") }

// Take receives a report of progress.
func (s *Steps) Take(p api.Progress) {
	if p.Step != s.current {
		s.done(p.Elapsed - s.began)
		s.current, s.began, s.seen, s.drawn = p.Step, p.Elapsed, time.Now(), time.Time{}
	}
	s.bytes = p.Bytes
	if !s.moving || time.Since(s.drawn) < Redraw {
		return
	}
	s.drawn = time.Now()
	text := p.Step
	switch {
	case p.Bytes > 0:
		text = cmp.Or(BarText(Printable(p.Step), p.Bytes, p.Total, Columns(s.terminal.Err)-1), p.Step)
	case p.Done > 0:
		text += fmt.Sprintf(" %3.0f%%", 100*p.Done)
	}
	s.terminal.draw(text)
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

func (s *Steps) done(took float64) {
	if s.current == "" {
		return
	}
	s.clear()
	what := s.current
	if s.bytes > 0 {
		what += ", " + SizeText(s.bytes)
	}
	s.terminal.Say.Line("%s (%s)", what, TimeText(time.Duration(max(took, 0)*float64(time.Second))))
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
		s.terminal.clear()
	}
}
