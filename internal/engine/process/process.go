// Package process attends to programs in sandboxes: it starts them or takes them over, moves their streams, ends them,
// and reports how they ended.
//
// Every program that the host starts in a sandbox is a [Process]: the snippet of an execution, a command, the program
// of a run, the program in a terminal, and each program of a job. How patiently a program is ended is the caller's to
// choose: [Process.Kill], [Process.End] and [Process.KillAll] do what each says and no more.
package process

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Grace is how long a guest may take to kill a program, and to report the last output of what it has killed.
const Grace = time.Second

// ErrTimeout is the error of [Process.Await] for a program that runs longer than it may.
var ErrTimeout = errors.New("the program's time is up")

// Process is a program in a sandbox, with what the host does for it.
type Process struct {
	*guest.RemoteProcess
	sandbox engine.Sandbox
	clock   clock.Clock
	copies  sync.WaitGroup // of the streams, by Copy
}

// Start starts a program. Its output must be read to the end: by Copy, or from Stdout and Stderr. Where ctx ends while
// the guest starts it, Start returns the program nevertheless, which may run already: its caller then ends it in a way
// of its own. Errors: those of the guest; the cause of the end of ctx, also where the guest does not answer within
// Grace of it.
func Start(ctx context.Context, sb engine.Sandbox, clk clock.Clock, spec guest.ProcessSpec) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	answered, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(Grace, giveUp) })()
	p, err := sb.Guest().Start(answered, spec)
	if answered.Err() != nil && err != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &Process{RemoteProcess: p, sandbox: sb, clock: clk}, nil
}

// Adopt takes over a program that another process of Cove has started. stdout and stderr are the offsets from which its
// output is read. Errors: those of the guest.
func Adopt(ctx context.Context, sb engine.Sandbox, clk clock.Clock,
	id uint32, stdout, stderr uint64) (*Process, error) {
	p, err := sb.Guest().Attach(ctx, id, stdout, stderr)
	return adopted(p, sb, clk), err
}

// AdoptKept is Adopt for a program that the guest remembers until Forget.
func AdoptKept(ctx context.Context, sb engine.Sandbox, clk clock.Clock,
	id uint32, stdout, stderr uint64) (*Process, error) {
	p, err := sb.Guest().AttachKept(ctx, id, stdout, stderr)
	return adopted(p, sb, clk), err
}

func adopted(p *guest.RemoteProcess, sb engine.Sandbox, clk clock.Clock) *Process {
	if p == nil {
		return nil
	}
	return &Process{RemoteProcess: p, sandbox: sb, clock: clk}
}

// Feed sends what r holds as the program's input, and then the end of the input, beside the caller. It ends with r or
// with the program, whichever is first. The error that done receives is that of reading r; nil at its end. A nil r is
// no input.
func (p *Process) Feed(r io.Reader) (done <-chan error) {
	read := make(chan error, 1)
	if r == nil {
		read <- nil
		return read
	}
	go func() {
		from := &source{r: r}
		io.Copy(p.Stdin(), from)
		read <- from.err // before the program can end for it
		p.Stdin().Close()
	}()
	return read
}

// source keeps the error of its reader apart from that of its writer.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// Copy passes the program's output on, beside the caller, until it ends. A writer that fails gets no more: gone is
// called, which may be nil, and the rest is read and dropped. A nil writer drops everything.
func (p *Process) Copy(stdout, stderr io.Writer, gone func()) {
	p.copies.Go(func() { pass(stdout, p.Stdout(), gone) })
	p.copies.Go(func() { pass(stderr, p.Stderr(), gone) })
}

// Copied waits until the streams have ended that Copy passes on.
func (p *Process) Copied() { p.copies.Wait() }

func pass(to io.Writer, from io.Reader, gone func()) {
	buf := make([]byte, smallestBuffer) // grows with the stream: most have little to say
	for {
		n, err := from.Read(buf)
		if n > 0 && to != nil {
			if _, werr := to.Write(buf[:n]); werr != nil {
				to = nil
				if gone != nil {
					gone()
				}
			}
		}
		if err != nil {
			return
		}
		if n == len(buf) && n < guest.MaxChunk {
			buf = make([]byte, 2*n)
		}
	}
}

// smallestBuffer is how much of an output is passed on at once at first, in bytes.
const smallestBuffer = guest.MaxChunk / 8

// Await waits until the program has ended, for as long as limit at most; 0 is no limit. On error the program runs on.
// Errors: ErrTimeout, and the cause of the end of ctx.
func (p *Process) Await(ctx context.Context, limit time.Duration) error {
	began := p.clock.Monotonic()
	var timeUp <-chan time.Time
	if limit > 0 {
		timer := p.clock.NewTimer(limit)
		defer timer.Stop()
		timeUp = timer.C
	}
	err := clock.Await(ctx, p.Exited(), timeUp)
	if !errors.Is(err, clock.ErrLate) {
		return err
	}
	if Overdue(p.Exited(), p.clock.Since(began)-limit) {
		return ErrTimeout
	}
	return nil
}

// tardy is how late a timer fires only in a process that has been stopped, or is on a very busy machine.
const tardy = 100 * time.Millisecond

// Overdue reports whether a program runs on whose time was up so long ago. Where this process has noticed that late,
// the program may have ended in time, and its end is still to be read: it gets Grace.
func Overdue(exited <-chan struct{}, since time.Duration) bool {
	patience := Grace
	if since < tardy {
		patience = 0
	}
	return clock.Await(context.Background(), exited, time.After(patience)) != nil
}

// Signal sends a signal to the program's process group. Errors: those of the guest.
func (p *Process) Signal(ctx context.Context, s syscall.Signal) error {
	return p.RemoteProcess.Signal(ctx, int(s))
}

// tell signals a program, which may have ended meanwhile.
func (p *Process) tell(ctx context.Context, s syscall.Signal) error {
	err := p.Signal(ctx, s)
	if failure, ok := errors.AsType[*guest.Failure](err); ok && failure.Kind == guest.FailNotFound {
		return nil
	}
	return err
}

// Kill kills the program's process group. Killing a program that has ended is no error. Errors: those of the guest;
// context.DeadlineExceeded when it does not answer within Grace.
func (p *Process) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), Grace)
	defer cancel()
	return p.tell(ctx, syscall.SIGKILL)
}

// End asks the program's process group to end, with signals in their order, and kills it after grace. Errors: those of
// the guest and of ctx.
func (p *Process) End(ctx context.Context, grace time.Duration, signals ...syscall.Signal) error {
	for _, s := range signals {
		if err := p.tell(ctx, s); err != nil {
			return err
		}
	}
	err := p.Await(ctx, grace)
	if errors.Is(err, ErrTimeout) {
		return p.tell(ctx, syscall.SIGKILL)
	}
	return err
}

// KillAll kills every program of the sandbox. The guest then reports the last output and the exit. A guest that does
// not within Grace is killed, too.
func (p *Process) KillAll() {
	ctx, cancel := context.WithTimeout(context.Background(), Grace)
	defer cancel()
	if err := p.sandbox.Guest().SignalAll(ctx, int(syscall.SIGKILL)); err == nil && p.Await(ctx, 0) == nil {
		return
	}
	p.sandbox.Kill()
}

// Wait waits until the program has ended, and until everything that Copy passes on has been passed on.
func (p *Process) Wait() Outcome {
	<-p.Exited()
	p.copies.Wait()
	exit, err := p.RemoteProcess.Wait(context.Background())
	return Outcome{Exit: exit, Lost: err}
}
