package ui

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
)

// Interrupts turns SIGINT, SIGTERM and SIGHUP into a clean end. The first signal cancels the work. The second leaves
// at once, unless OnSignal has added a step before. The next process of Cove removes what this one then leaves on the
// host.
type Interrupts struct {
	signals chan os.Signal
	done    chan struct{}
	Leave   func(code int)
	outputs []*os.File // whose reader ends the command by going away

	actions sync.WaitGroup

	mu     sync.Mutex
	before func() // leaving
	got    syscall.Signal
	turns  []func() // what the next signals do, one after the other
	cancel context.CancelFunc
}

// WatchSignals begins to watch. A reader of one of outputs that goes away
// (SIGPIPE) ends a command as cleanly. A server has none: its log may go unread.
func WatchSignals(outputs ...*os.File) *Interrupts {
	in := &Interrupts{
		outputs: outputs,
		signals: make(chan os.Signal, 2),
		done:    make(chan struct{}),
		Leave:   os.Exit,
		cancel:  func() {},
	}
	signal.Notify(in.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go in.watch()
	return in
}

// CoverSignals begins to watch, and returns a context that the first signal ends, as Cover does. Stop ends it, too.
func CoverSignals(ctx context.Context, outputs ...*os.File) (context.Context, *Interrupts) {
	in := WatchSignals(outputs...)
	ctx, _ = in.Cover(ctx)
	return ctx, in
}

func (in *Interrupts) watch() {
	for {
		select {
		case s := <-in.signals:
			// A client that closed its connection to this process raises SIGPIPE, too.
			if s != syscall.SIGPIPE || in.First() == 0 && slices.ContainsFunc(in.outputs, unread) {
				in.handle(s.(syscall.Signal))
			}
		case <-in.done:
			return
		}
	}
}

func (in *Interrupts) handle(s syscall.Signal) {
	in.mu.Lock()
	again, acts, cancel := in.got != 0, len(in.turns) > 0, in.cancel
	if !again {
		in.got = s
	}
	if acts {
		in.actions.Go(in.turns[0]) // another signal has to be heard meanwhile
		in.turns = in.turns[1:]
	}
	in.mu.Unlock()
	switch {
	case acts:
	case again:
		in.restore()
		in.Leave(ExitSignal(s))
	default:
		cancel()
	}
}

// BeforeLeaving sets what gives the terminal back when a signal leaves at once.
func (in *Interrupts) BeforeLeaving(restore func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.before = restore
}

// restorePatience bounds restore: a terminal that takes no output must not keep the command.
const restorePatience = 200 * time.Millisecond

func (in *Interrupts) restore() {
	in.mu.Lock()
	before := in.before
	in.mu.Unlock()
	if before == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		before()
	}()
	select {
	case <-done:
	case <-time.After(restorePatience):
	}
}

// Cover returns a context that the first signal ends, until onSignal says something better.
func (in *Interrupts) Cover(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cancel = cancel
	if in.got != 0 {
		cancel()
	}
	return ctx, cancel
}

// GiveUp ends the context of cover.
func (in *Interrupts) GiveUp() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cancel()
}

// OnSignal sets what the first signal does from now on, what the second does,
// and so on. The one after them leaves at once.
func (in *Interrupts) OnSignal(turns ...func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.turns = turns
}

// Settle returns to giving up, and waits for an action that is under way.
func (in *Interrupts) Settle() {
	in.OnSignal()
	in.actions.Wait()
}

// First is the signal that ended the command, or 0.
func (in *Interrupts) First() syscall.Signal {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.got
}

// Explain gives a cancellation the signal that caused it.
func (in *Interrupts) Explain(err error) error {
	if s := in.First(); s != 0 && cove.ErrorCode(err) == cove.Canceled {
		return &Interrupted{Signal: s}
	}
	return err
}

func (in *Interrupts) Stop() {
	in.GiveUp()
	signal.Stop(in.signals)
	close(in.done)
}

// Exit codes that are not the program's own: from 124 on those of timeout(1) and of a shell, and before them those
// that tell apart why Cove could not do what was asked. ExitCodesHelp describes them to users.
const (
	exitUsage     = 120 // the command line, or a value or file that it names, is wrong
	exitUnknown   = 121 // what it names is not there
	exitConflict  = 122 // it is there already, or its state does not allow it
	ExitAway      = 123 // a server, a model or another thing that Cove needs does not answer
	ExitTimeout   = 124 // the wall time ran out
	ExitCove      = 125 // Cove could not do what was asked
	ExitRefused   = 126 // it may not be run
	exitMissing   = 127 // what would run it is not there
	exitSignalled = 128 // plus the signal's number
	ExitUnhealthy = 1   // "cove doctor" found that an invariant cannot be held
	ExitNoServer  = 3   // "cove server status" found none, as service managers say it
	ExitFindings  = 1   // "cove policy check" or "cove policy test" found something
	ExitAgent     = 1   // the agent has not done its task, or failed
)

// exitCodes is the table from an error's code to the exit code; codes that are not in it are exitCove.
var exitCodes = map[cove.Code]int{
	cove.InvalidArgument:  exitUsage,
	cove.TooLarge:         exitUsage,
	cove.NotFound:         exitUnknown,
	cove.Conflict:         exitConflict,
	cove.Unavailable:      ExitAway,
	cove.Shutdown:         ExitAway,
	cove.Overloaded:       ExitAway,
	cove.ModelUnreachable: ExitAway,
	cove.Forbidden:        ExitRefused,
	cove.Unauthenticated:  ExitRefused,
	cove.Unsupported:      ExitRefused,
	cove.RuntimeMissing:   exitMissing,
	cove.ImageMissing:     exitMissing,
	cove.AgentFailed:      ExitAgent,
	cove.SchemaMismatch:   ExitAgent,
}

// ExitCodesHelp is "cove help exit-codes".
const ExitCodesHelp = `A command exits with 0 when it has done what was asked, and "cove run", "cove exec"
and "cove attach" with the exit code of their program. The others tell what
stood in the way:

    1  the answer is no: the agent has not done its task, "cove doctor", "cove policy
       check" or "cove policy test" found something
    3  "cove server status": there is no server
  120  usage: the command line, or a value or file that it names, is wrong
  121  unknown: there is no such sandbox, run, execution, repository, …
  122  conflict: it exists already, or its state does not allow it
  123  unavailable: a server, a model or a network does not answer or is busy, the
       server was told to stop meanwhile, or a key for models is missing
  124  out of time
  125  anything else that Cove could not do, and what was declined at a question
  126  refused: by a policy, by a server that wants an API key, or because nothing
       here can enforce it
  127  the runtime, the image, the agent or the program is missing
128+N  ended by signal N: 130 by ctrl-c, 137 by a limit or by "cove kill"

A program may use these codes, too; --json tells them apart. An error that --json
prints has a code by name: invalid_argument, not_found, conflict, unavailable, ….`

func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if i, ok := errors.AsType[*Interrupted](err); ok {
		return ExitSignal(i.Signal)
	}
	if code, ok := exitCodes[cove.ErrorCode(err)]; ok {
		return code
	}
	return ExitCove
}

func ExitSignal(s syscall.Signal) int { return exitSignalled + int(s) }

// Interrupted ends a command that a signal stopped before it had a result.
type Interrupted struct{ Signal syscall.Signal }

func (i *Interrupted) Error() string { return "stopped: " + i.Signal.String() }
