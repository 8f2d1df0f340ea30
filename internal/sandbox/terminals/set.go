// Package terminals holds the terminals of long-lived sandboxes: programs that run on while no viewer is attached, each
// with a model of its screen.
//
// A [Set] holds the terminals of one sandbox. A [Terminal] reads its program's output into the model, and from there to
// its viewers and its recorder. A [Viewer] is attached to a terminal: it is sent the screen as it is, then what
// changes, and what its user types goes to the program.
//
// # Servers that come and go
//
// A terminal outlives its server. The guest keeps the output that is not part of a checkpoint, and the checkpoint
// itself: the model as escape sequences, and the offset up to which output is in it (checkpoint.go). The next server
// adopts the terminal by writing both into a fresh model.
//
// # Locks
//
// In the order in which they are acquired: Terminal.resizing, Terminal.saving, Terminal.mu, Set.mu. Terminal.mu guards
// its viewers, too. Calls to the guest and to a program's input are made with neither Terminal.mu nor Set.mu held;
// calls to a [Recorder] are made with Terminal.mu held.
package terminals

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/terminal"
)

const (
	// maxRunning bounds the terminals of one sandbox that run, maxViewers the viewers of one terminal, and maxEnded the
	// terminals that have ended and can still be looked at.
	maxRunning = 32
	maxViewers = 16
	maxEnded   = 4
)

// Options make a Set.
type Options struct {
	Sandbox   engine.Sandbox
	CPUs      float64   // that the sandbox may have; 0 is no limit
	Recorders Recorders // nil records nothing
	Clock     clock.Clock
	Log       *slog.Logger
	// Serving counts what serves terminals. It ends with the connection to the sandbox's guest.
	Serving *sync.WaitGroup
}

// Recorders provides recorders.
type Recorders interface {
	// RecordTerminal returns the recorder of a terminal that begins; nil records nothing. It must not wait.
	RecordTerminal(Started) Recorder
}

// Started is a terminal that begins, or that was adopted.
type Started struct {
	Sandbox cove.SandboxID
	ID      string
	Args    []string // may be cut short in one that was adopted
	Size    terminal.Size
	Adopted bool // an earlier server has started it
}

// Recorder keeps what a terminal shows, as it may be sent to a real one. Its methods are called one at a time.
type Recorder interface {
	Output(p []byte)
	Resized(size terminal.Size)
	// Ended or Detached is the last call: the program has ended, with an exit code
	// or -1 where that is not known, or this server goes and the program runs on.
	Ended(exit int)
	Detached()
}

// Info describes a terminal.
type Info struct {
	ID       string
	Args     []string
	Title    string
	Attached int // viewers
	Size     terminal.Size
	Created  time.Time
	Exit     *int // nil while the program runs; -1 where it is not known
}

// Set holds the terminals of one sandbox. Its methods may be called concurrently; a nil Set is empty.
type Set struct {
	o    Options
	pace *pace

	mu       sync.Mutex
	last     int         // number of the newest
	all      []*Terminal // the oldest first
	detached error       // why this server serves none any more
}

// New makes an empty set.
func New(o Options) *Set { return &Set{o: o, pace: newPace(o.Clock, o.CPUs)} }

// Start starts a program in a new terminal. release is called when the program has ended, or this server lets go of
// it; after an error the caller calls it. Errors: Overloaded, and those of the guest.
func (s *Set) Start(ctx context.Context, spec guest.ProcessSpec, size terminal.Size,
	release func()) (*Terminal, error) {
	id, err := s.reserve()
	if err != nil {
		return nil, err
	}
	now := s.o.Clock.Now()
	size = size.Clamp()
	spec.TTY, spec.Stdin, spec.Rows, spec.Cols = true, true, uint16(size.Rows), uint16(size.Columns)
	spec.Label = label{Terminal: id, Created: now.Unix(), Args: spec.Args, Size: size}.bytes()
	p, err := process.Start(ctx, s.o.Sandbox, s.o.Clock, spec)
	if err != nil {
		return nil, err
	}
	t := s.newTerminal(id, spec.Args, now, p, terminal.New(size), release)
	t.startRecording(false)
	if err := s.serve(t); err != nil {
		p.Kill()
		return nil, err
	}
	return t, nil
}

// reserve returns the id of a new terminal.
func (s *Set) reserve() (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, t := range s.all {
		if !t.Ended() {
			running++
		}
	}
	switch {
	case s.detached != nil:
		return "", s.detached
	case running >= maxRunning:
		return "", cove.Errorf(cove.Overloaded, "the sandbox has %d terminals", running).
			WithHint("end one with \"exit\", or attach to one that runs")
	}
	s.last++
	return fmt.Sprintf("t%d", s.last), nil
}

// serve adds a terminal, and begins to serve it.
func (s *Set) serve(t *Terminal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, t)
	s.prune()
	s.o.Serving.Go(t.serveOutput)
	s.o.Serving.Go(t.serveInput)
	return s.detached
}

// prune forgets the oldest of those that have ended. mu must be held.
func (s *Set) prune() {
	ended := 0
	for i := len(s.all) - 1; i >= 0; i-- {
		if s.all[i].Ended() {
			if ended++; ended > maxEnded {
				s.all = slices.Delete(s.all, i, i+1)
			}
		}
	}
}

// Find returns the terminal of an id; of none, the oldest that runs. Errors: NotFound.
func (s *Set) Find(id string) (*Terminal, error) {
	for _, t := range s.List() {
		if t.id == id || id == "" && !t.Ended() {
			return t, nil
		}
	}
	if id == "" {
		return nil, cove.Errorf(cove.NotFound, "the sandbox has no terminal that runs")
	}
	return nil, cove.Errorf(cove.NotFound, "the sandbox has no terminal %.20q", id).
		WithHint("\"cove info\" shows those that it has")
}

// List returns the terminals, the oldest first.
func (s *Set) List() []*Terminal {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Detach lets go of all terminals, which run on: their viewers are told why. The
// guest has their checkpoints, and all output since.
func (s *Set) Detach(why error) {
	s.mu.Lock()
	s.detached = why
	s.mu.Unlock()
	for _, t := range s.List() {
		t.detachAll(why)
	}
}

// lost returns why the exit of a program is not known, whose connection has ended.
func (s *Set) lost(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.detached != nil {
		return s.detached
	}
	return cove.Errorf(cove.Conflict, "the sandbox does not run any more: %w", err).
		WithHint("start it with \"cove start\"")
}
