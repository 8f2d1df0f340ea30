//go:build linux

package native

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
)

// A blank is a guest that has begun and waits for its plan: a process in its own namespaces and control group, with ids
// and a /proc of its own and perhaps on the network that leads to the gateway, and nothing else: no root filesystem, no
// limits, no owner. It is what every sandbox begins as, and what is kept prewarmed.
type blank struct {
	ids        local.IDMap
	releaseIDs func()
	group      *cgroup.Group
	client     *guest.Client
	online     bool                // has planNetwork done
	begun      guest.Begin         // what it has been told
	tasks      int64               // threads of the guest itself
	adopted    bool                // PID 1 is not a child of this process
	process    *forkserver.Process // PID 1; nil if adopted

	// Of one for a detached sandbox: its own instance, until its sandbox has a record, and the lock on its id range, until
	// the guest holds it.
	self   *instance.Instance
	ranges *local.Ranges

	owning     sync.Mutex
	ownerships map[ownership]*os.File // see Engine.ownership; guarded by owning

	done chan struct{} // closed when the process has been collected

	goesOn atomic.Bool // without its connection

	removal sync.Once
	left    error // what it could not remove
}

// ownership says that what belongs to an owner of the host belongs to a user inside, by the host's ids.
type ownership struct{ of, inside local.Owner }

// namespaces are all but the cgroup namespace, which the guest makes itself once it is in its group.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// start has the guest forked into its namespaces and group, as a user of the host.
func (b *blank) start(ctx context.Context, f *forks, as int, socket *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	door, err := b.group.Door()
	if err != nil {
		return launchError(&forkserver.Error{Op: forkserver.OpEnter, Cause: err})
	}
	defer door.Close()
	spec := forkserver.Spec{Namespaces: namespaces, As: as}
	if b.process, err = f.fork(ctx, spec, door, null, null, null, socket); err != nil {
		return launchError(err)
	}
	return nil
}

func launchError(err error) error {
	if failure, ok := errors.AsType[*forkserver.Error](err); ok && failure.Op == forkserver.OpEnter {
		return cove.Errorf(cove.Unavailable, "%w", err).WithHint("run \"cove doctor\"")
	}
	e := cove.Errorf(cove.Unavailable, "cannot make the namespaces of a sandbox: %w", err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, forkserver.ErrLost):
		return cove.Errorf(cove.Unavailable, "no sandbox could be started, twice: %w", err).WithRetry(time.Second)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS), errors.Is(err, unix.EINVAL):
		return e.WithHint("user namespaces seem to be turned off or used up; \"cove doctor\" says how to allow them")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return cove.Errorf(cove.Overloaded, "the host is out of processes or memory: %w", err).
			WithHint("wait for sandboxes to end")
	}
	return e.WithHint("run \"cove doctor\"")
}

// died reports whether an error is the end of a guest, and not its answer.
func died(err error) bool {
	_, answered := errors.AsType[*guest.Failure](err)
	return cove.ErrorCode(err) == cove.Unavailable && !answered
}

func (b *blank) alive() bool {
	select {
	case <-b.client.Done():
		return false
	default:
		return true
	}
}

// Kill ends PID 1, and with it the kernel ends all of its namespace.
func (b *blank) Kill() error {
	if b.adopted {
		return b.group.Kill()
	}
	if b.process == nil {
		return nil
	}
	switch err := b.process.Kill(); {
	case errors.Is(err, os.ErrProcessDone):
		return nil
	case err != nil:
		return err
	}
	return b.group.LetDie() // if it was paused
}

// leave ends the connection, and nothing else.
func (b *blank) leave() {
	b.goesOn.Store(true)
	b.client.Close()
}

// collect waits for PID 1, whose end shows as the end of the connection.
func (b *blank) collect() {
	<-b.client.Done()
	goesOn := b.goesOn.Load()
	if goesOn && b.adopted {
		return // another goroutine sees how it ends
	}
	if !goesOn {
		b.Kill() // it may live without its socket only if it has gone wrong
	}
	b.wait()
	close(b.done)
}

// wait collects PID 1 once it has been killed or has ended.
func (b *blank) wait() {
	if b.adopted {
		b.waitEmpty()
	} else if b.process != nil {
		b.process.Wait()
	}
}

// removalPatience is how long the kernel may take to let go of a control group whose processes have been killed.
const removalPatience = 5 * time.Second

// remove kills the guest and removes every trace. It may be called again.
func (b *blank) remove() error {
	b.removal.Do(func() { b.left = b.removeAll() })
	return b.left
}

func (b *blank) removeAll() error {
	err := b.Kill()
	if b.client != nil {
		b.client.Close()
		<-b.done
	} else {
		b.wait()
		close(b.done)
	}
	b.dropOwnerships()
	if b.group != nil && b.group.Remove(removalPatience/100) != nil {
		err = errors.Join(err, b.group.Kill(), b.group.Remove(removalPatience))
	}
	if err == nil && b.releaseIDs != nil {
		b.releaseIDs() // ids of which something may be left are not given out again
	}
	if b.self != nil {
		err = errors.Join(err, b.self.Release())
	}
	return err
}

// dropOwnerships closes what nothing more is mounted with.
func (b *blank) dropOwnerships() {
	b.owning.Lock()
	defer b.owning.Unlock()
	for _, ns := range b.ownerships {
		ns.Close()
	}
	clear(b.ownerships)
}

// explain turns a failure of the guest into an error, and ends a guest that has not just answered.
func (b *blank) explain(doing string, err error) error {
	if failure, ok := errors.AsType[*guest.Failure](err); ok {
		err = failure
	} else if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	} else {
		b.Kill()
	}
	return cove.Errorf(cove.Unavailable, "cannot %s: %w", doing, err).
		WithHint("run \"cove doctor\" for what this host lacks")
}

// waitEmpty waits until nothing of an adopted sandbox runs: its PID 1 is not a child that could be waited for.
func (b *blank) waitEmpty() {
	for deadline := time.Now().Add(removalPatience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if b.group.Empty() {
			return
		}
	}
}
