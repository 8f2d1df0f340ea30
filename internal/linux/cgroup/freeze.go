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

// freezePoll is how often the kernel is asked whether it has frozen a group.
const freezePoll = time.Millisecond

// Freeze stops every process of the group where it is, and returns when all of
// them have. It may be called again.
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
	if _, err := os.Stat(g.dir(PIDs)); err != nil { // it has been removed
		os.Remove(g.dir(Freezer))
		return err
	}
	return g.await(ctx, func() (bool, error) {
		// Before anybody is let in, so that nobody there can fork any more: what is
		// still outside is a child of somebody who was too, until nobody is. And
		// again each time, because a kernel may forget one that waits for its child
		// in vfork, and stay at FREEZING (seen with 6.18).
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

// gather moves the group's processes into its freezer, and reports whether all
// of them had been there. This process, of which a thread may be in the group, it
// leaves alone.
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
			continue // a thread of ours that has begun a process here, and ends now: nobody would thaw us
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

// Thaw lets the processes of the group go on. One that was never frozen stays as
// it is.
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

// LetDie lets processes die that have been killed: on version 1 one that is
// frozen does not.
func (g *Group) LetDie() error {
	if g.h.version == 2 {
		return nil
	}
	return g.Thaw()
}
