package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cove-sandbox/cove"
)

// interrupts turns SIGINT, SIGTERM and SIGHUP into a clean end: the first
// gives up what is under way, the second leaves at once. What is then left on
// the host belongs to a process that is gone, and the next one removes it.
type interrupts struct {
	signals chan os.Signal
	done    chan struct{}
	leave   func(code int)
	unread  bool // nobody need read what the command prints: SIGPIPE is nothing

	actions sync.WaitGroup

	mu     sync.Mutex
	got    syscall.Signal
	action func() // what the first signal does
	cancel context.CancelFunc
}

// watchSignals begins to watch. A reader of standard output that goes away
// (SIGPIPE) ends a command as cleanly, unless it may go unread: a server whose
// log nobody follows any more goes on.
func watchSignals(unread bool) *interrupts {
	in := &interrupts{unread: unread, signals: make(chan os.Signal, 2), done: make(chan struct{}), leave: os.Exit, cancel: func() {}}
	signal.Notify(in.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go in.watch()
	return in
}

func (in *interrupts) watch() {
	for {
		select {
		case s := <-in.signals:
			if s != syscall.SIGPIPE || in.first() == 0 && !in.unread {
				in.handle(s.(syscall.Signal))
			}
		case <-in.done:
			return
		}
	}
}

func (in *interrupts) handle(s syscall.Signal) {
	in.mu.Lock()
	again, action, cancel := in.got != 0, in.action, in.cancel
	if !again {
		in.got = s
		if action != nil {
			in.actions.Go(action) // a second signal has to be heard meanwhile
		}
	}
	in.mu.Unlock()
	switch {
	case again:
		in.leave(exitSignal(s))
	case action == nil:
		cancel()
	}
}

// cover returns a context that the first signal ends, until onSignal says
// something better.
func (in *interrupts) cover(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cancel = cancel
	if in.got != 0 {
		cancel()
	}
	return ctx, cancel
}

// giveUp ends the context of cover.
func (in *interrupts) giveUp() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cancel()
}

// onSignal sets what the first signal does from now on.
func (in *interrupts) onSignal(action func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.action = action
}

// settle returns to giving up, and waits for an action that is under way.
func (in *interrupts) settle() {
	in.onSignal(nil)
	in.actions.Wait()
}

// first is the signal that ended the command, or 0.
func (in *interrupts) first() syscall.Signal {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.got
}

// explain gives a cancellation the signal that caused it.
func (in *interrupts) explain(err error) error {
	if s := in.first(); s != 0 && cove.ErrorCode(err) == cove.Canceled {
		return &interrupted{signal: s}
	}
	return err
}

func (in *interrupts) stop() {
	signal.Stop(in.signals)
	close(in.done)
}

// interrupted ends a command that a signal stopped before it had a result.
type interrupted struct{ signal syscall.Signal }

func (i *interrupted) Error() string { return "stopped: " + i.signal.String() }
