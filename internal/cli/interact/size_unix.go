//go:build unix

package interact

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// The signals of a terminal.
const (
	sizeChanged = syscall.SIGWINCH
	continued   = syscall.SIGCONT
)

// watchSize has the system send these signals.
func watchSize(_ context.Context, _ func() (rows, columns int), to chan<- os.Signal, _ *sync.WaitGroup) {
	signal.Notify(to, sizeChanged, continued)
}
