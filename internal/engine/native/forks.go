//go:build linux

package native

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
)

// forks is the fork server of an engine, which starts with the first guest.
type forks struct {
	program *forkserver.Program // cove-guest
	without string              // directory of mounts that no sandbox needs, or ""
	log     *slog.Logger
	once    sync.Once
	stop    context.CancelFunc
	all     sync.WaitGroup

	mu      sync.Mutex
	current *forkserver.Client // nil while there is none; guarded by mu
	failed  error              // why not, unless one is on its way; guarded by mu
	changed chan struct{}      // closed with each change; guarded by mu
}

var guestEnv = forkserver.Env

// The time between two starts of a fork server doubles while they fail. What they lack of the machine may come back.
const (
	firstForksPause = time.Second
	lastForksPause  = 15 * time.Second
)

// begin has a fork server run until close.
func (f *forks) begin() {
	f.once.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		f.stop, f.changed = stop, make(chan struct{})
		f.all.Go(func() {
			f.run(ctx)
			f.set(nil, forkserver.ErrGone)
		})
	})
}

// run has another fork server take the place of one that has gone, at once.
func (f *forks) run(ctx context.Context) {
	pause := firstForksPause
	for ctx.Err() == nil {
		if f.serve(ctx) {
			pause = firstForksPause
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastForksPause)
	}
}

// serve runs one fork server to its end, and reports whether it could be started.
func (f *forks) serve(ctx context.Context) bool {
	c, err := f.launch(ctx)
	if err != nil {
		if ctx.Err() == nil {
			f.log.Warn("a fork server cannot be started", "error", err)
		}
		f.set(nil, err)
		return false
	}
	f.set(c, nil)
	select {
	case <-ctx.Done():
	case <-c.Done():
		f.log.Warn("the fork server has gone, and another one takes its place", "pid", c.PID())
	}
	f.set(nil, nil)
	c.Close()
	return true
}

func (f *forks) launch(ctx context.Context) (*forkserver.Client, error) {
	args := slices.Clone(forkserver.Args)
	if f.without != "" {
		args = append(args, f.without)
	} else if c, ok := forkserver.Take(ctx, f.program); ok {
		return c, nil
	}
	return forkserver.Launch(ctx, f.program, args, guestEnv)
}

func (f *forks) set(c *forkserver.Client, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.failed = c, err
	close(f.changed)
	f.changed = make(chan struct{})
}

// server waits for a fork server, or for a failure to start one.
func (f *forks) server(ctx context.Context) (*forkserver.Client, error) {
	f.begin()
	for {
		f.mu.Lock()
		c, err, changed := f.current, f.failed, f.changed
		f.mu.Unlock()
		if err != nil || c != nil && !c.Gone() {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// sealed opens the program of the fork server, which no process of a sandbox can change.
func (f *forks) sealed(ctx context.Context) (*os.File, error) {
	c, err := f.server(ctx)
	if err != nil {
		return nil, err
	}
	return c.Program()
}

// close ends the fork server. What it has started goes on.
func (f *forks) close() {
	f.once.Do(func() { f.failed = forkserver.ErrGone })
	if f.stop != nil {
		f.stop()
	}
	f.all.Wait()
}

// fork starts an executor.
func (f *forks) fork(ctx context.Context, s forkserver.Spec, door cgroup.Door,
	files ...*os.File) (*forkserver.Process, error) {
	for {
		c, err := f.server(ctx)
		if err != nil {
			return nil, &forkserver.Error{Op: forkserver.OpFork, Cause: err}
		}
		if p, err := c.Fork(ctx, s, door, files...); !errors.Is(err, forkserver.ErrGone) {
			return p, err
		}
	}
}
