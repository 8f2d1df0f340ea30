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
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound a group; zero fields set nothing.
type Limits struct {
	Memory int64   // bytes; the group gets no swap
	CPUs   float64 // cores
	PIDs   int64   // tasks
	// Sockets is bytes in the buffers of TCP and UDP. Version 2 counts them as memory; version 1 counts them only in a
	// group that has this limit itself, whatever its parents have, and then apart from memory.
	Sockets int64
}

// Group is one control group, in every hierarchy in use.
type Group struct {
	h    *Hierarchy
	name string
}

// Create makes a group; it is an error if it exists.
func (h *Hierarchy) Create(name string) (*Group, error) {
	g := h.Group(name)
	for _, dir := range g.initialDirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			g.Remove(0)
			return nil, err
		}
	}
	return g, nil
}

// Group returns a group that may exist.
func (h *Hierarchy) Group(name string) *Group { return &Group{h: h, name: name} }

// Name returns the group's name, unique below the hierarchy's place.
func (g *Group) Name() string { return g.name }

// Limited returns the group, or the one above it, that has a part in its own name; nil when none has. It is the group
// itself where its tasks are limited: a runtime may have put a process below the group of a container, and limits
// either.
func (g *Group) Limited(part string) *Group {
	around := g.around(part)
	if l, err := g.Limits(); around == nil || err != nil || l.PIDs <= 0 {
		return around
	}
	return g
}

// around returns the group, or the one above it, that has a part in its own name; nil when none has.
func (g *Group) around(part string) *Group {
	before, after, found := strings.Cut(g.name, part)
	if !found {
		return nil
	}
	rest, _, _ := strings.Cut(after, "/")
	return g.h.Group(before + part + rest)
}

func (g *Group) dir(controller string) string { return filepath.Join(g.h.dirs[controller], g.name) }

// initialDirs returns the directories that exist from the group's creation. Root adds the freezer of version 1 when it
// is needed. Another user cannot move processes of other ids there, as those in a sandbox are: they begin in it.
func (g *Group) initialDirs() []string {
	if g.h.version == 2 || os.Geteuid() != 0 {
		return g.dirs()
	}
	return slices.DeleteFunc(g.dirs(), func(dir string) bool { return dir == g.dir(Freezer) || dir == g.dir(BlockIO) })
}

func (g *Group) dirs() []string {
	places := g.h.places()
	for i, p := range places {
		places[i] = filepath.Join(p, g.name)
	}
	return places
}

// period is the CPU quota's period, in microseconds.
const period = 100_000

// Limit sets limits. A limit whose controller is missing is an error.
func (g *Group) Limit(l Limits) error {
	memory, quota := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(int64(l.CPUs*period), 10)
	var errs []error
	for _, s := range []struct {
		version          int // 0: both
		wanted, optional bool
		controller       string
		name, value      string
	}{
		{2, l.Memory > 0, false, Memory, "memory.max", memory},
		{2, l.Memory > 0, true, Memory, "memory.swap.max", "0"},
		{1, l.Memory > 0, false, Memory, "memory.limit_in_bytes", memory},
		{1, l.Memory > 0, true, Memory, "memory.memsw.limit_in_bytes", memory},
		{1, l.Memory > 0, true, Memory, "memory.swappiness", "0"},
		{2, l.CPUs > 0, false, CPU, "cpu.max", quota + " " + strconv.Itoa(period)},
		{1, l.CPUs > 0, false, CPU, "cpu.cfs_period_us", strconv.Itoa(period)},
		{1, l.CPUs > 0, false, CPU, "cpu.cfs_quota_us", quota},
		{0, l.PIDs > 0, false, PIDs, "pids.max", strconv.FormatInt(l.PIDs, 10)},
		{1, l.Sockets > 0, true, Memory, SocketLimit, strconv.FormatInt(l.Sockets, 10)},
	} {
		if !s.wanted || s.version != 0 && s.version != g.h.version {
			continue
		}
		if !g.h.Has(s.controller) {
			errs = append(errs, fmt.Errorf("no %s controller: %s", s.controller, g.h.Missing(s.controller)))
		} else if err := write(g.dir(s.controller), s.name, s.value); !s.optional || !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Limits reads the limits that the group has. One that it has not is zero; Memory is with the swap that it may use.
func (g *Group) Limits() (Limits, error) {
	var errs []error
	// limit reads a number, of which there may be none as the controller or the file is missing.
	limit := func(controller, name string) (n int64, is bool) {
		if !g.h.Has(controller) {
			return 0, false
		}
		n, err := number(g.dir(controller), name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, strconv.ErrSyntax) { // "max"
			errs = append(errs, err)
		}
		return n, err == nil
	}
	var l Limits
	l.PIDs, _ = limit(PIDs, "pids.max")
	if g.h.version == 1 {
		l.Memory, _ = limit(Memory, "memory.limit_in_bytes")
		if with, is := limit(Memory, "memory.memsw.limit_in_bytes"); is {
			l.Memory = with
		}
		quota, _ := limit(CPU, "cpu.cfs_quota_us")
		if every, is := limit(CPU, "cpu.cfs_period_us"); is && quota > 0 {
			l.CPUs = float64(quota) / float64(every)
		}
		l.Sockets, _ = limit(Memory, SocketLimit)
		return l, errors.Join(errs...)
	}
	memory, is := limit(Memory, "memory.max")
	if is {
		l.Memory = memory
	}
	text, err := os.ReadFile(filepath.Join(g.dir(Memory), "memory.swap.max"))
	switch swap, unlimited := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); {
	case err != nil: // swap is not counted
	case unlimited != nil:
		l.Memory = 0
	default:
		l.Memory += swap
	}
	if text, err := os.ReadFile(filepath.Join(g.dir(CPU), "cpu.max")); err == nil {
		var quota, every float64
		if n, _ := fmt.Sscan(string(text), &quota, &every); n == 2 {
			l.CPUs = quota / every
		}
	}
	return l, errors.Join(errs...)
}

// A Door is where processes start in a group: Dir on version 2, for CLONE_INTO_CGROUP, and Tasks on version 1, to which
// a new process writes "0" before all else. Were a thread of its parent's to do that, all of the parent would count as
// of the group, for Kill and Freeze as well.
type Door struct {
	Dir   *os.File
	Tasks []*os.File
}

// Door opens the group for processes that start in it.
func (g *Group) Door() (d Door, err error) {
	if g.h.version == 2 {
		d.Dir, err = os.OpenFile(g.dir(PIDs), unix.O_PATH|unix.O_DIRECTORY, 0)
		return d, err
	}
	for _, dir := range g.initialDirs() {
		f, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			d.Close()
			return Door{}, err
		}
		d.Tasks = append(d.Tasks, f)
	}
	return d, nil
}

// Enter puts the calling thread, locked and not the main one, into a group of version 1; its children start there.
func (d Door) Enter() error {
	for _, f := range d.Tasks {
		if _, err := f.WriteString("0"); err != nil { // itself
			return err
		}
	}
	return nil
}

// Dirs are the directories of a group of version 1 that a process of it has to be moved into.
func (g *Group) Dirs() []string { return g.initialDirs() }

// Close closes the door; what has started stays in the group.
func (d Door) Close() {
	if d.Dir != nil {
		d.Dir.Close()
	}
	for _, f := range d.Tasks {
		f.Close()
	}
}

// Stats is a group's accounting. A counter that the kernel lacks is zero.
type Stats struct {
	CPUTime    time.Duration
	MemoryPeak int64
	PIDs       int64
	PIDsPeak   int64
	OOMKills   int64
	PIDsDenied int64
}

// Stats reads the accounting; it fails once the group has been removed.
func (g *Group) Stats() (Stats, error) {
	var s Stats
	var err error
	if s.PIDs, err = number(g.dir(PIDs), "pids.current"); err != nil {
		return Stats{}, err
	}
	s.PIDsPeak, _ = number(g.dir(PIDs), "pids.peak") // 6.1
	s.PIDsPeak = max(s.PIDsPeak, s.PIDs)
	s.PIDsDenied = entry(g.dir(PIDs), "pids.events", "max")
	if g.h.version == 2 {
		// CPU time is counted even where the cpu controller is not delegated.
		s.CPUTime = time.Duration(entry(g.dir(PIDs), "cpu.stat", "usage_usec")) * time.Microsecond
		s.OOMKills = entry(g.dir(Memory), "memory.events", "oom_kill")
		if s.MemoryPeak, err = number(g.dir(Memory), "memory.peak"); err != nil { // 5.19
			s.MemoryPeak, _ = number(g.dir(Memory), "memory.current")
		}
		return s, nil
	}
	ns, _ := number(g.dir(cpuacct), "cpuacct.usage")
	s.CPUTime = time.Duration(ns)
	s.OOMKills = entry(g.dir(Memory), "memory.oom_control", "oom_kill")
	s.MemoryPeak, _ = number(g.dir(Memory), "memory.max_usage_in_bytes")
	return s, nil
}

func number(dir, name string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
}

// entry reads the value of a key from a file of "key value" lines.
func entry(dir, name, key string) int64 {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}

// Kill sends SIGKILL to every process of the group and does not wait.
func (g *Group) Kill() error {
	if g.h.version == 2 {
		err := write(g.dir(PIDs), "cgroup.kill", "1") // 5.14
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, err := os.Stat(g.dir(PIDs)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	// Processes may fork while the list is read, so repeat until it is empty or every entry has been signalled before.
	seen := map[int]bool{}
	for range 1000 {
		fresh := false
		for _, dir := range g.dirs() {
			pids, _ := processes(dir)
			for _, pid := range pids {
				fresh = fresh || !seen[pid]
				seen[pid] = true
				if pid != os.Getpid() {
					unix.Kill(pid, unix.SIGKILL)
				}
			}
		}
		if !fresh {
			return g.LetDie()
		}
	}
	return errors.New("the processes of " + g.name + " fork faster than they can be killed")
}

// Has reports whether a process is in the group itself.
func (g *Group) Has(pid int) bool {
	pids, err := processes(g.dir(PIDs))
	return err == nil && slices.Contains(pids, pid)
}

// Empty reports whether the group has no live process. A zombie, which may stay as long as its parent likes, is none.
func (g *Group) Empty() bool {
	pids, err := processes(g.dir(PIDs))
	return err != nil || len(pids) == 0
}

func processes(dir string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Remove removes the group and waits up to patience for its processes to end. Removing a missing group succeeds.
func (g *Group) Remove(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	wait := 200 * time.Microsecond
	for {
		var errs []error
		for _, dir := range g.dirs() {
			if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
				errs = append(errs, &fs.PathError{Op: "rmdir", Path: dir, Err: err})
			}
		}
		if len(errs) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(errs...)
		}
		time.Sleep(wait)
		wait = min(wait*2, 20*time.Millisecond)
	}
}

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
