package ui

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

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

// unread reports whether the reader of f has gone.
func unread(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = conn.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone || err != nil
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
		in.Leave(ExitSignal(s))
	default:
		cancel()
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
