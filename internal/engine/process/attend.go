package process

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Attendance describes how a program is attended: its streams, and the way it is ended.
type Attendance struct {
	Stdin          io.Reader // nil is no input
	Stdout, Stderr io.Writer // nil drops
	// Read reads the output in place of Stdout. What it leaves is dropped; its error ends the program.
	Read func(io.Reader) error
	// Ask are the signals that ask the program to end, before it is killed, Patience later; none kills it at once.
	Ask      []syscall.Signal
	Patience time.Duration
	// Own says that the sandbox is the caller's own: it is killed where its guest does not end the program.
	Own bool
}

// Attend moves a program's streams until it has ended, and returns how. When ctx ends, it ends the program. In a
// sandbox that is not the caller's own, one that does not end within Grace after it was killed runs on, as
// [Process.Ended] reports: the streams of a are then used until it ends. Errors: the cause of the end of ctx, and those
// of Stdin and Read.
func (p *Process) Attend(ctx context.Context, a Attendance) (Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fed := p.Feed(a.Stdin)
	p.copies.Go(func() {
		if a.Read == nil {
			pass(a.Stdout, p.Stdout(), nil)
			return
		}
		if err := a.Read(p.Stdout()); err != nil {
			cancel(err)
		}
		io.Copy(io.Discard, p.Stdout())
	})
	p.copies.Go(func() { pass(a.Stderr, p.Stderr(), nil) })
	if p.Await(ctx, 0) != nil {
		p.stop(a)
		if p.Await(context.Background(), Grace) != nil {
			if !a.Own {
				return Outcome{}, context.Cause(ctx)
			}
			p.sandbox.Kill()
		}
	}
	outcome, unread := p.Wait(), <-fed
	if cause := context.Cause(ctx); cause != nil {
		return outcome, cause
	}
	return outcome, unread
}

// stop ends a program, as far as the guest does what it is asked.
func (p *Process) stop(a Attendance) {
	if len(a.Ask) == 0 {
		p.Kill()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.Patience+Grace)
	defer cancel()
	p.End(ctx, a.Patience, a.Ask...)
}

// Ended reports whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// Outcome is how a program ended.
type Outcome struct {
	guest.Exit
	// Lost is why the exit is not known: the connection to the guest has ended first.
	Lost error
}

// Limit returns the limit of the sandbox that has ended the program by itself, as far as the kernel's and the guest's
// accounting tell; empty for none. A program that succeeds has not been ended by a limit, whatever it ran into on its
// way.
func (o Outcome) Limit(stats engine.Stats) cove.LimitKind {
	failed := o.Lost != nil || o.Code != 0
	switch {
	case o.OutputCapped:
		return cove.LimitOutput
	case failed && stats.Locks > 0:
		return cove.LimitLocks
	case failed && stats.OOMKills > 0:
		return cove.LimitOOM
	case o.Signal == int(syscall.SIGXFSZ):
		return cove.LimitFileSize
	case failed && o.Stats.Full():
		return cove.LimitDisk
	case o.Code == 128+int(syscall.SIGXFSZ): // of a shell whose command the signal has ended
		return cove.LimitFileSize
	case failed && stats.PIDsDenied > 0:
		return cove.LimitPIDs
	}
	return ""
}
