package process

import (
	"context"
	"io"
	"syscall"
	"time"
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
