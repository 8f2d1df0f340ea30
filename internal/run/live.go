package run

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/settle"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/message"
)

// newLive makes a run live; end must be called if it cannot be attended.
func (r *Runner) newLive(record store.Run, t *transcript, p agent.Parser) *live {
	return &live{id: record.ID, provider: record.Spec.Provider, r: r, release: func() {}, transcript: t, parser: p,
		schema: record.Spec.Schema, record: record, stops: make(chan asked, 2), done: make(chan struct{})}
}

// stop asks for the end of a run; a kill is heard after an interrupt.
func (l *live) stop(how asked) {
	select {
	case l.stops <- how:
	default:
	}
}

// replay makes messages of what the program has printed for an earlier server.
func (l *live) replay() error {
	l.skip = l.transcript.messages
	buf := make([]byte, 64<<10)
	for from := l.transcript.printed(); ; {
		n, err := from.Read(buf)
		if perr := l.lines.push(buf[:n], l.line); perr != nil {
			return perr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return cove.Errorf(cove.Corrupt, "what an agent has printed cannot be read: %w", err)
		}
	}
}

// recall takes up the answer that an earlier server made of the end of the program, if it had got that far.
func (l *live) recall() error {
	if l.result != nil {
		return nil
	}
	from, err := openReader(l.transcript.dir, 0)
	if err != nil {
		return err
	}
	defer from.close()
	for {
		e, err := from.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Message == nil {
			continue
		}
		account(&l.record, *e.Message)
		if e.Message.Type == message.TypeResult {
			l.result = e.Message
		}
	}
}

// line makes messages of a line.
func (l *live) line(line []byte) error {
	all, err := l.parser.Line(line)
	for _, m := range all {
		if werr := l.say(m); werr != nil {
			return werr
		}
	}
	return err
}

// say writes a message down.
func (l *live) say(m message.Message) error {
	m, misfit := settle.Message(m, l.schema, l.r.o.Clock.Now())
	l.mu.Lock()
	account(&l.record, m)
	if m.Type == message.TypeResult {
		l.result, l.misfit = &m, misfit
	}
	l.mu.Unlock()
	if l.skip > 0 {
		l.skip--
		return nil
	}
	return l.transcript.message(m)
}

// attend reads what the program prints until it has ended, and says how that
// was. The error is why this server lets go of it.
func (l *live) attend(deadline time.Time) (ending, error) {
	broken := make(chan error, 2)
	if l.broken != nil {
		broken <- l.broken
	}
	var streams sync.WaitGroup
	streams.Go(func() { l.readOutput(broken) })
	streams.Go(l.readErrors)
	clock := l.r.o.Clock
	timer := clock.NewTimer(deadline.Sub(clock.Now()))
	defer timer.Stop()
	var e ending
	var patience, hopeless <-chan time.Time
	var reached chan error // while the provider of its models is tried
	trying, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	for over := false; !over; {
		why, _, refused := l.refusal()
		if why != nil && hopeless == nil && reached == nil {
			hopeless = clock.After(refusalGrace)
		}
		select {
		case <-refused:
		case <-hopeless:
			hopeless = nil
			why, lost, _ := l.refusal()
			switch {
			case why == nil: // an answer has come since
			case lost: // it may be up again, and the agent or the gateway wait before they ask
				reached = make(chan error, 1)
				streams.Go(func() { reached <- l.process.Providers().Reach(trying, l.provider) })
			default:
				e.err, e.broken = why, true
				l.kill()
			}
		case err := <-reached:
			reached = nil
			if why, lost, _ := l.refusal(); err != nil && lost {
				e.err, e.broken = why, true
				l.kill()
			}
		case <-l.process.Exited():
			over = true
		case <-timer.C: // either: what has ended is not overdue
			if over = !process.Overdue(l.process.Exited(), clock.Now().Sub(deadline)); !over {
				e.limit = cove.LimitTimeout
				l.kill()
			}
		case err := <-broken:
			if cove.ErrorCode(err) == cove.LimitReached {
				e.limit = cove.LimitOutput
			} else {
				e.err, e.broken = err, true
			}
			l.kill()
		case how := <-l.stops:
			if e.asked == askedNothing {
				e.asked = how
			}
			if how == askedKill {
				l.kill()
				break
			}
			ctx, cancel := context.WithTimeout(context.Background(), interruptGrace)
			if err := l.process.Signal(ctx, syscall.SIGINT); err != nil {
				l.r.o.Log.Debug("an agent cannot be interrupted", "run", l.id, "error", err)
			}
			cancel()
			patience = clock.After(interruptGrace)
		case <-patience:
			l.kill()
		}
	}
	giveUp()
	streams.Wait()
	if all := l.process.Providers(); all != nil && l.provider != "" {
		e.unanswered = unreachable(all.Latest(l.provider))
	}
	select {
	case err := <-broken: // of the last of its output
		if e.err == nil && e.limit == "" {
			e.err, e.broken = err, true
		}
	default:
	}
	ended, err := l.process.Wait()
	if cove.ErrorCode(err) == cove.Shutdown {
		return e, errClosing
	}
	e.measured, e.used, e.models = ended.Limit, ended.Usage, ended.Models
	if err != nil && e.err == nil {
		e.err, e.broken = err, true
	}
	if err == nil {
		e.exit = &ended.ExitCode
	}
	if !e.broken {
		e.err = l.finish(*e.exit)
	}
	e.result = l.result
	if e.err == nil {
		e.err = l.misfit
	}
	return e, nil
}

// refusal returns why the run's models cannot be asked any more, and a channel that is closed when that changes. lost
// reports that requests do not reach their provider.
func (l *live) refusal() (err error, lost bool, changed <-chan struct{}) {
	all := l.process.Providers()
	if l.provider == "" || all == nil {
		return nil, false, nil
	}
	if err, changed = all.Of(l.provider); err == nil {
		err = all.Outage(l.provider)
		lost = err != nil
	}
	if err != nil {
		return unreachable(err), lost, nil
	}
	return nil, false, changed
}

// unreachable returns why a request for a model has no answer as the error of a run.
func unreachable(err error) error {
	if err == nil {
		return nil
	}
	return cove.Errorf(cove.ModelUnreachable, "%s", cove.ErrorMessage(err)).WithHint("%s", cove.ErrorHint(err))
}

func (l *live) kill() {
	if err := l.process.Kill(); err != nil {
		l.r.o.Log.Warn("an agent cannot be killed", "run", l.id, "error", err)
	}
}

// finish has the parser say what is missing.
func (l *live) finish(exit int) error {
	if err := l.lines.end(l.line); err != nil {
		return err
	}
	all, err := l.parser.End(exit, l.tail.text())
	for _, m := range all {
		if werr := l.say(m); werr != nil {
			return werr
		}
	}
	return err
}

// readOutput writes down what the program prints, makes messages of it, and
// says what is wrong with it. It reads to the end in any case.
func (l *live) readOutput(broken chan<- error) {
	buf := make([]byte, 64<<10)
	failed := false
	for {
		n, err := l.process.Stdout().Read(buf)
		if n > 0 && !failed {
			size, perr := l.transcript.print(buf[:n])
			if perr == nil {
				l.process.Safe(size) // a connection that has ended shows at the next Read
				perr = l.lines.push(buf[:n], l.line)
			}
			if failed = perr != nil; failed {
				broken <- perr
				l.process.Safe(1 << 60) // the rest is not needed
			}
		} else if n > 0 {
			l.process.Safe(1 << 60)
		}
		if err != nil {
			return
		}
	}
}

// readErrors writes down what the program writes to its standard error, line by line.
func (l *live) readErrors() {
	from := bufio.NewReaderSize(l.process.Stderr(), 32<<10)
	for {
		line, err := from.ReadSlice('\n') // a longer one comes in parts
		if len(line) > 0 {
			text := strings.ToValidUTF8(string(line), "\uFFFD")
			l.tail.add(text)
			if werr := l.transcript.log(text, l.r.o.Clock.Now().UTC().Truncate(time.Microsecond)); werr != nil {
				l.r.o.Log.Warn("what an agent logs cannot be kept", "run", l.id, "error", werr)
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

// begin notes that the program is there.
func (l *live) begin(p *sandbox.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.process = p
	if all := p.Providers(); all != nil {
		all.Forget(l.provider) // this run may have another key than the one before
	}
}

// holds lists what waits for an answer in the run's sandbox.
func (l *live) holds() ([]approval.Hold, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process == nil {
		return nil, nil
	}
	return l.process.Holds()
}
