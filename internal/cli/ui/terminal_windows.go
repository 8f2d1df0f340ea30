package ui

import (
	"os"
	"sync"

	"golang.org/x/sys/windows"
)

// Waker interrupts waiting for a user's input.
type Waker struct {
	mu    sync.Mutex
	event windows.Handle // stays set until it is taken back; 0 when closed
}

// NewWaker returns a waker; close it after use.
func NewWaker() (*Waker, error) {
	const manual, unset = 1, 0
	event, err := windows.CreateEvent(nil, manual, unset, nil)
	return &Waker{event: event}, err
}

// Wake ends what waits, now or next.
func (w *Waker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.event != 0 {
		windows.SetEvent(w.event)
	}
}

// Wait waits until Wake was called, and takes that back.
func (w *Waker) Wait() {
	windows.WaitForSingleObject(w.event, windows.INFINITE)
	windows.ResetEvent(w.event)
}

// Input waits for input at f. It reports false when Wake was called, which Wait takes back.
func (w *Waker) Input(f *os.File) (ready bool, err error) {
	const input = windows.WAIT_OBJECT_0 + 1
	n, err := windows.WaitForMultipleObjects([]windows.Handle{w.event, windows.Handle(f.Fd())}, false, windows.INFINITE)
	return n == input, err
}

// Close ends the waker. Nothing waits any more.
func (w *Waker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	windows.CloseHandle(w.event)
	w.event = 0
}

// unread reports false: a write to a pipe without a reader is an error here.
func unread(*os.File) bool { return false }

// Foreground reports true: Windows has no jobs in the background of a console.
func Foreground(*os.File) bool { return true }

// DropInput forgets what was typed at a console and not yet read.
func DropInput(f *os.File) { windows.FlushConsoleInputBuffer(windows.Handle(f.Fd())) }

// obey makes consoles obey control sequences. What is no console stays as it is.
func obey(files ...*os.File) {
	for _, f := range files {
		if f == nil {
			continue
		}
		var mode uint32
		if h := windows.Handle(f.Fd()); windows.GetConsoleMode(h, &mode) == nil {
			windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
		}
	}
}
