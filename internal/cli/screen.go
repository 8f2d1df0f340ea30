package cli

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// screen is where a program's output goes. At a terminal, what Cove says
// meanwhile begins a line of its own, and what the program writes while a
// question is open appears after it. Below both it may have a line of its own,
// which is drawn over.
type screen struct {
	stdout, stderr io.Writer
	terminal       *os.File // on which Cove speaks; nil if it is none

	mu     sync.Mutex
	within bool // the cursor was left within a line
	held   bool
	late   []lateOutput // while held; the server bounds how much a program prints
	status string       // the line below; empty is none
}

type lateOutput struct {
	to *os.File
	p  []byte
}

func (a *app) newScreen() *screen {
	s := &screen{stdout: a.Out, stderr: a.Err}
	if !isTerminal(a.Err) {
		return s
	}
	s.terminal, s.stderr = a.Err, pane{s, a.Err}
	if isTerminal(a.Out) {
		s.stdout = pane{s, a.Out}
	}
	return s
}

// pane is one stream of a program on a terminal.
type pane struct {
	screen *screen
	to     *os.File
}

func (w pane) Write(p []byte) (int, error) {
	s := w.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		s.late = append(s.late, lateOutput{w.to, bytes.Clone(p)})
		return len(p), nil
	}
	return s.write(w.to, p)
}

func (s *screen) write(to *os.File, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.erase()
	defer s.draw()
	s.within = p[len(p)-1] != '\n'
	return to.Write(p)
}

// below sets the line below what is written; empty is none. It must fit the
// terminal.
func (s *screen) below(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.status = text
	s.draw()
}

// draw draws the line below, where there is one and place for it; s.mu is held.
func (s *screen) draw() {
	if s.hasBelow() {
		io.WriteString(s.terminal, s.status)
	}
}

func (s *screen) erase() {
	if s.hasBelow() {
		io.WriteString(s.terminal, "\r\x1b[K")
	}
}

func (s *screen) hasBelow() bool {
	return s.status != "" && s.terminal != nil && !s.within && !s.held
}

// endLine ends the line, if it was not; s.mu is held.
func (s *screen) endLine() {
	if s.within && s.terminal != nil {
		io.WriteString(s.terminal, "\n")
		s.within = false
	}
}

// apart lets Cove say something between what the program writes.
func (s *screen) apart(say func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	defer s.draw()
	s.endLine()
	say()
}

// hold keeps back what the program writes, until release.
func (s *screen) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.endLine()
	s.held = true
}

func (s *screen) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.draw()
	for _, o := range s.late {
		s.write(o.to, o.p) // who cannot be written to shows with the next output
	}
	s.late = nil
}

// restore ends the last line of the program's output.
func (s *screen) restore() { s.apart(func() {}) }
