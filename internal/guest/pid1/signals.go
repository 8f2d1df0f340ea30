//go:build linux

package pid1

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
)

const (
	// lastSignal is a realtime signal that no one waits for.
	lastSignal = 64
	// signalsPatience is how long the guest waits for room for signals, and signalsPause the time between two looks.
	signalsPatience = 10 * time.Second
	signalsPause    = 10 * time.Millisecond
)

// awaitSignals waits until the kernel keeps as many pending signals as the guest has threads. The runtime changes what
// belongs to each thread (ids, capabilities) by a realtime signal to each, and waits for ever for one that was lost:
// the kernel drops those beyond RLIMIT_SIGPENDING of the user, whose other processes may have them all. Called on the
// main thread.
func awaitSignals() error {
	for end := time.Now().Add(signalsPatience); ; time.Sleep(signalsPause) {
		err := trySignals(guest.Threads)
		if !errors.Is(err, unix.EAGAIN) {
			return os.NewSyscallError("tgkill", err)
		}
		if time.Now().After(end) {
			return &guest.Failure{Kind: guest.FailOther,
				Message: "the kernel keeps no more pending signals for the user of the host who runs it (RLIMIT_SIGPENDING)"}
		}
	}
}

// trySignals has n signals pending at once for the calling thread, and takes them.
func trySignals(n int) error {
	set := unix.Sigset_t{Val: [16]uint64{1 << (lastSignal - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return err
	}
	defer unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
	for range n {
		if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), lastSignal); err != nil {
			return err
		}
	}
	return nil
}
