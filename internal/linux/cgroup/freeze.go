//go:build linux

package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// freezePoll is the interval between questions to the kernel whether a group is frozen.
const freezePoll = time.Millisecond

// Freeze stops every process of the group and returns when all are stopped. It may be called again.
func (g *Group) Freeze(ctx context.Context) error {
	if !g.h.Has(Freezer) {
		return fmt.Errorf("no %s: %s", Freezer, g.h.Missing(Freezer))
	}
	if g.h.version == 2 {
		if err := write(g.dir(Freezer), "cgroup.freeze", "1"); err != nil {
			return err
		}
		return g.await(ctx, func() (bool, error) { return entry(g.dir(Freezer), "cgroup.events", "frozen") == 1, nil })
	}
	if err := os.Mkdir(g.dir(Freezer), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Stat(g.dir(PIDs)); err != nil { // the group has been removed
		os.Remove(g.dir(Freezer))
		return err
	}
	return g.await(ctx, func() (bool, error) {
		// The state comes before the processes, so that a process that moves in cannot fork any more: any process still
		// outside is then a child of one that was outside too, and their number falls to zero. The state is written
		// each time because a kernel may forget a process that waits for its child in vfork, and stay at FREEZING (seen
		// with 6.18).
		if err := write(g.dir(Freezer), "freezer.state", "FROZEN"); err != nil {
			return false, err
		}
		whole, err := g.gather()
		if err != nil || !whole {
			return false, err
		}
		state, err := os.ReadFile(filepath.Join(g.dir(Freezer), "freezer.state"))
		return string(bytes.TrimSpace(state)) == "FROZEN", err
	})
}

// gather moves the group's processes into its freezer, and reports whether all of them were there already. It skips
// this process, which may have a thread in the group.
func (g *Group) gather() (whole bool, err error) {
	members, err := processes(g.dir(PIDs))
	if err != nil {
		return false, err
	}
	inside, err := processes(g.dir(Freezer))
	if err != nil {
		return false, err
	}
	there := map[int]bool{}
	for _, pid := range inside {
		there[pid] = true
	}
	whole = true
	for _, pid := range members {
		if there[pid] {
			continue
		}
		whole = false
		if pid == os.Getpid() {
			continue // a thread of this process that starts a child there, and ends soon; frozen, it could not thaw itself
		}
		if err := write(g.dir(Freezer), "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return false, err
		}
	}
	return whole, nil
}

func (g *Group) await(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(freezePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Thaw resumes the processes of the group. It does nothing to a group that was never frozen.
func (g *Group) Thaw() error {
	name, value := "freezer.state", "THAWED"
	if g.h.version == 2 {
		name, value = "cgroup.freeze", "0"
	}
	err := write(g.dir(Freezer), name, value)
	if g.h.version == 1 && errors.Is(err, fs.ErrNotExist) || !g.h.Has(Freezer) {
		return nil
	}
	return err
}

// LetDie thaws killed processes where necessary: on version 1 a frozen process does not die.
func (g *Group) LetDie() error {
	if g.h.version == 2 {
		return nil
	}
	return g.Thaw()
}
