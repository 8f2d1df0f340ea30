package ui

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// Screen writes the output of a program. At a terminal, Cove's own messages begin a line of their own, and output that
// comes while a question is open appears after the question. A status line may stay below both.
type Screen struct {
	Stdout, Stderr io.Writer
	Terminal       *os.File // on which Cove speaks; nil if it is none

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

func (t *Terminal) NewScreen() *Screen {
	s := &Screen{Stdout: t.Out, Stderr: t.Err}
	if !IsTerminal(t.Err) {
		return s
	}
	s.Terminal, s.Stderr = t.Err, pane{s, t.Err}
	if IsTerminal(t.Out) {
		s.Stdout = pane{s, t.Out}
	}
	return s
}

// pane is one stream of a program on a terminal.
type pane struct {
	Screen *Screen
	to     *os.File
}

func (w pane) Write(p []byte) (int, error) {
	s := w.Screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		s.late = append(s.late, lateOutput{w.to, bytes.Clone(p)})
		return len(p), nil
	}
	return s.write(w.to, p)
}

func (s *Screen) write(to *os.File, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.erase()
	defer s.draw()
	s.within = p[len(p)-1] != '\n'
	return to.Write(p)
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
		io.WriteString(s.Terminal, s.status)
	}
}

func (s *Screen) erase() {
	if s.hasBelow() {
		io.WriteString(s.Terminal, "\r\x1b[K")
	}
}

func (s *Screen) hasBelow() bool {
	return s.status != "" && s.Terminal != nil && !s.within && !s.held
}

// endLine ends the line, if it was not; s.mu is held.
func (s *Screen) endLine() {
	if s.within && s.Terminal != nil {
		io.WriteString(s.Terminal, "\n")
		s.within = false
	}
}

// Apart calls say between two outputs of the program, so that Cove's messages do not mix with them.
func (s *Screen) Apart(say func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	defer s.draw()
	s.endLine()
	say()
}

// Hold keeps back what the program writes, until release.
func (s *Screen) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.endLine()
	s.held = true
}

func (s *Screen) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.draw()
	for _, o := range s.late {
		s.write(o.to, o.p) // who cannot be written to shows with the next output
	}
	s.late = nil
}

// Restore ends the last line of the program's output.
func (s *Screen) Restore() { s.Apart(func() {}) }
