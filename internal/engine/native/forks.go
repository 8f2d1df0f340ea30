//go:build linux

package native

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
)

// forks is the fork server of an engine that makes more than one sandbox. Until it has started, and where there is
// none, guests are forked from this process.
type forks struct {
	program *forkserver.Program // cove-guest
	log     *slog.Logger
	current atomic.Pointer[forkserver.Client]
	stop    context.CancelFunc
	all     sync.WaitGroup
}

// guestEnv spares the guest's runtime a look at the host's control groups, a collection of its few megabytes, and
// threads that look for work: it waits nearly always, and one that spins takes the CPU from the user's program.
var guestEnv = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GOGC=400", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

// The time between two starts of a fork server doubles while none gets ready.
const (
	firstForksPause = time.Second
	lastForksPause  = 5 * time.Minute
)

// run keeps a fork server until close.
func (f *forks) run() {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.all.Go(func() {
		for pause := firstForksPause; ctx.Err() == nil; pause = min(2*pause, lastForksPause) {
			c, err := forkserver.Launch(ctx, f.program, []string{"cove-guest", "--fork"}, guestEnv)
			if err != nil && ctx.Err() == nil {
				f.log.Warn("a fork server cannot be started", "error", err)
			}
			if err == nil {
				pause = firstForksPause
				f.current.Store(c)
				select {
				case <-ctx.Done():
				case <-c.Done():
					f.log.Warn("the fork server has gone, and another one takes its place", "pid", c.PID())
				}
				f.current.Store(nil)
				c.Close()
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// close ends the fork server. What it has started goes on.
func (f *forks) close() {
	if f.stop != nil {
		f.stop()
	}
	f.all.Wait()
}

// fork starts a copy of the program.
func (f *forks) fork(ctx context.Context, s forkserver.Spec, door cgroup.Door,
	files ...*os.File) (forkserver.Process, error) {
	if c := f.current.Load(); c != nil {
		if p, err := c.Fork(ctx, s, door, files...); !errors.Is(err, forkserver.ErrGone) {
			return p, err
		}
	}
	return forkserver.Fork(f.program, s, door, files...)
}
