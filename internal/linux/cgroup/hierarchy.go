//go:build linux

// Package cgroup makes, limits, measures and removes control groups, on the unified hierarchy (version 2) and on the
// separate ones (version 1, hybrid).
//
// Moving another process into a group costs an RCU grace period, many milliseconds, so this package never moves one on
// the way to a start. On version 2 a process starts in its group (CLONE_INTO_CGROUP). On version 1 it enters the group
// itself, for which the kernel does not wait, before it does anything else; see [Door]. The package is its own instead
// of opencontainers/cgroups for these two ways of starting: a sandbox's cold start depends on them.
package cgroup

import (
	"bytes"
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

// Mount is the directory at which systems mount control groups.
const Mount = "/sys/fs/cgroup"

// Controllers that limits need; both versions use these names.
const (
	Memory = "memory"
	CPU    = "cpu"
	PIDs   = "pids"
)

// cpuacct is version 1's accounting of CPU time; version 2 includes it in cpu.
const cpuacct = "cpuacct"

// Freezer pauses groups. On version 2 every group can be frozen; on version 1 the freezer is a hierarchy that a group
// of root's joins when it is first frozen, and a group of another user from the beginning.
const Freezer = "freezer"

// Hierarchy is the place on this host below which Cove's groups are made. The last process that uses it removes it.
type Hierarchy struct {
	version int
	// claim is the first of the place's directories, with a lock that all users of the place share. The shared lock
	// keeps a user from removing a directory that others rely on.
	claim *os.File
	// dirs maps each usable controller to the directory below which groups are made; on version 2 all are the same.
	dirs    map[string]string
	missing map[string]string
}

// Version returns 1 (also for hybrid systems) or 2.
func (h *Hierarchy) Version() int { return h.version }

// Has reports whether groups can be limited by a controller.
func (h *Hierarchy) Has(controller string) bool { return h.dirs[controller] != "" }

// Missing returns why a controller cannot be used, and what to do about it.
func (h *Hierarchy) Missing(controller string) string { return h.missing[controller] }

// Swap reports whether groups can be denied swap.
func (h *Hierarchy) Swap() bool {
	dir := h.dirs[Memory]
	if dir == "" {
		return false
	}
	name := "memory.swap.max"
	if h.version == 1 {
		name = "memory.memsw.limit_in_bytes"
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
		return true
	}
	// Without swap accounting the machine may still have no swap at all.
	swaps, err := os.ReadFile("/proc/swaps")
	return err == nil && bytes.Count(swaps, []byte("\n")) <= 1
}

// Find prepares the place for groups, called name (such as "cove"), until Close. Controllers that cannot be used are
// reported by Missing, not as an error.
func Find(name string) (*Hierarchy, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(Mount, &st); err != nil {
		return nil, fmt.Errorf("no control groups at %s: %w", Mount, err)
	}
	h := &Hierarchy{version: 1, dirs: map[string]string{}, missing: map[string]string{}}
	find := h.findSeparate
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		h.version, find = 2, h.findUnified
	}
	if err := errors.Join(find(name), h.limitSum(tables...)); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// tables bound the tasks of the machine, which are processes and threads.
var tables = []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"}

// limitSum lets all groups of the place together have three quarters of the tasks that each table allows, so that
// the machine itself can always start processes.
func (h *Hierarchy) limitSum(tables ...string) error {
	dir := h.dirs[PIDs]
	if dir == "" {
		return nil
	}
	least := int64(noLimit)
	for _, table := range tables {
		n, err := number(filepath.Split(table))
		if err != nil {
			return fmt.Errorf("how many processes this machine can have: %w", err)
		}
		least = min(least, n)
	}
	share := least / 4 * 3
	if now, err := number(dir, "pids.max"); err == nil && now == share {
		return nil
	}
	return write(dir, "pids.max", strconv.FormatInt(share, 10))
}

// SocketLimit is version 1's file for the limit of buffers. Its name says TCP, but sockets of UDP count as well.
const SocketLimit = "memory.kmem.tcp.limit_in_bytes"

// Sockets reports whether groups can be denied buffers of TCP and UDP.
func (h *Hierarchy) Sockets() bool {
	if h.version == 2 || h.dirs[Memory] == "" {
		return h.dirs[Memory] != ""
	}
	_, err := os.Stat(filepath.Join(h.dirs[Memory], SocketLimit))
	return err == nil
}

// findSeparate makes the directory in each version-1 hierarchy: at the top for root, else below the caller's own group.
func (h *Hierarchy) findSeparate(name string) error {
	own, err := groupsOf("self")
	if err != nil {
		return err
	}
	for _, c := range []string{Memory, CPU, PIDs, cpuacct, Freezer} {
		base := filepath.Join(Mount, c)
		if os.Geteuid() != 0 {
			base = filepath.Join(base, own[c])
		}
		dir := filepath.Join(base, name)
		if err := h.use(dir); err != nil {
			h.missing[c] = "cannot make " + dir + ": " + cause(err) +
				"; run as root, or get a group of the " + c + " hierarchy as \"cove doctor\" says"
			continue
		}
		h.dirs[c] = dir
	}
	if h.dirs[cpuacct] == "" {
		delete(h.dirs, CPU) // a quota without accounting would go unnoticed
	}
	blkio := filepath.Join(Mount, "blkio")
	h.findBlockIO(blkio, filepath.Join(blkio, name))
	return nil
}

// findUnified makes the directory in the version-2 hierarchy and enables its controllers.
func (h *Hierarchy) findUnified(name string) error {
	base, err := unifiedBase()
	if err != nil {
		for _, c := range []string{Memory, CPU, PIDs, Freezer, BlockIO} {
			h.missing[c] = err.Error()
		}
		return nil
	}
	dir := filepath.Join(base, name)
	if err := h.use(dir); err != nil {
		return err
	}
	for _, c := range []string{Memory, CPU, PIDs} {
		// Controllers are enabled one by one, so that a missing one does not prevent the others.
		err := enableVacating(base, c)
		if err == nil {
			err = enable(dir, c)
		}
		if err != nil {
			h.missing[c] = "the controller cannot be enabled in " + base + ": " + cause(err) + "; " + controllerFix(base, c)
			continue
		}
		h.dirs[c] = dir
	}
	h.dirs[Freezer] = h.dirs[PIDs] // 5.2, and no controller
	if h.dirs[Freezer] == "" {
		h.missing[Freezer] = h.missing[PIDs]
	}
	h.findBlockIO(base, dir)
	return nil
}

const delegationFix = `start Cove in a delegated group: "systemd-run --user --scope -p Delegate=yes cove …", or as root`

// controllerFix returns how to get a controller that base lacks. Systemd before 252, for one, does not delegate cpu.
func controllerFix(base, controller string) string {
	have := words(base, "cgroup.controllers")
	if len(have) > 0 && !slices.Contains(have, controller) {
		return `have an administrator delegate it: "systemctl edit user@.service" with the lines "[Service]" and ` +
			`"Delegate=cpu memory pids", then log in again; or run Cove as root`
	}
	return delegationFix
}

// unifiedBase returns the group below which Cove may make its own: the hierarchy's root for root, else the highest
// ancestor of the caller's group that the caller may write.
func unifiedBase() (string, error) {
	if os.Geteuid() == 0 && writableGroup(Mount) {
		return Mount, nil
	}
	own, err := groupsOf("self")
	if err != nil {
		return "", err
	}
	base := ""
	for dir := filepath.Join(Mount, own[""]); dir != Mount && strings.HasPrefix(dir, Mount); dir = filepath.Dir(dir) {
		if !writableGroup(dir) {
			break
		}
		base = dir
	}
	if base == "" {
		return "", errors.New("your control group is not delegated to you; " + delegationFix)
	}
	return base, vacate(base)
}

func writableGroup(dir string) bool {
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if unix.Access(filepath.Join(dir, name), unix.W_OK) != nil {
			return false
		}
	}
	return true
}

// vacate moves the processes of a group, this one too, into a leaf below: only an empty group can enable controllers.
func vacate(dir string) error {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(procs) == 0 {
		return err
	}
	leaf := filepath.Join(dir, "self")
	if err := makeDir(leaf); err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(procs)) {
		if err := write(leaf, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// enableVacating enables a controller in a group that may still have processes. A process that forks while it is moved
// leaves its child behind, so the move is repeated while the group is busy.
func enableVacating(dir, controller string) error {
	var err error
	for range 50 {
		if err = enable(dir, controller); !errors.Is(err, unix.EBUSY) {
			return err
		}
		if verr := vacate(dir); verr != nil {
			return errors.Join(err, verr)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return err
}

func enable(dir, controller string) error {
	if slices.Contains(words(dir, "cgroup.subtree_control"), controller) {
		return nil
	}
	return write(dir, "cgroup.subtree_control", "+"+controller)
}

// groupsOf maps each version-1 controller, and "" for version 2, to a process's group (cgroups(7), /proc/pid/cgroup).
func groupsOf(pid string) (map[string]string, error) {
	data, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return nil, err
	}
	return parseOwn(string(data)), nil
}

// Of returns a process's group, made by another program, for measuring. Its name is the path below the hierarchy.
func Of(pid int) (*Group, error) {
	groups, err := groupsOf(strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(Mount, &st); err != nil {
		return nil, err
	}
	h := &Hierarchy{version: 2, dirs: map[string]string{}}
	name := groups[""]
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		h.version, name = 1, groups[PIDs]
	}
	for _, c := range []string{Memory, CPU, PIDs, cpuacct, Freezer, BlockIO} {
		switch path, separate := groups[c]; {
		case h.version == 2:
			h.dirs[c] = Mount
		case separate && path == name:
			h.dirs[c] = filepath.Join(Mount, c)
		}
	}
	g := h.Group(name)
	if name == "" || name == "/" || h.dirs[PIDs] == "" {
		return nil, fmt.Errorf("process %d is in no control group of its own", pid)
	}
	return g, nil
}

func parseOwn(data string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(data) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			own[c] = parts[2]
		}
	}
	return own
}

// List returns the names of the existing groups.
func (h *Hierarchy) List() ([]string, error) {
	var names []string
	for _, dir := range h.places() {
		entries, err := os.ReadDir(dir)
		if err != nil && (dir != h.dirs[BlockIO] || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	return names, nil
}

// use makes a directory of the place; the first one also claims the place.
func (h *Hierarchy) use(dir string) error {
	for {
		if err := makeDir(dir); err != nil || h.claim != nil {
			return err
		}
		f, err := os.Open(dir)
		if err == nil {
			if err = flock(f, unix.LOCK_SH); err == nil && stillAt(dir, f) {
				h.claim = f
				return nil
			}
			f.Close()
		}
		// The last user may have removed the directory meanwhile: retry.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

func stillAt(path string, f *os.File) bool {
	is, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(is, now)
}

// Close gives the place up, and removes it if it has no other user and no group, the directory with the lock last.
func (h *Hierarchy) Close() error {
	if h.claim == nil {
		return nil
	}
	defer h.claim.Close()
	if flock(h.claim, unix.LOCK_EX|unix.LOCK_NB) != nil || !h.cheap() {
		return nil
	}
	first := h.claim.Name()
	for _, dir := range append(slices.DeleteFunc(h.places(), func(dir string) bool { return dir == first }), first) {
		switch err := unix.Rmdir(dir); err {
		case nil, unix.ENOENT:
		case unix.EBUSY, unix.ENOTEMPTY:
			return nil
		default:
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	return nil
}

// cheap reports whether making the place again costs little. On version 2 a kernel before 6.0 waits for the whole
// machine to enable a controller, which takes longer than a sandbox's start.
func (h *Hierarchy) cheap() bool {
	if h.version == 1 {
		return true
	}
	_, err := os.Stat(filepath.Join(h.claim.Name(), "cgroup.pressure")) // 6.1
	return err == nil
}

// places returns the distinct directories of dirs, in a fixed order.
func (h *Hierarchy) places() []string {
	var places []string
	for _, c := range []string{Memory, CPU, PIDs, cpuacct, Freezer, BlockIO} {
		if dir := h.dirs[c]; dir != "" && !slices.Contains(places, dir) {
			places = append(places, dir)
		}
	}
	return places
}

// makeDir makes a directory, or accepts an existing one in which groups can be made: another Cove may have made it.
func makeDir(dir string) error {
	for {
		err := os.Mkdir(dir, 0o755)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err = unix.Access(dir, unix.W_OK); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// The last user has removed the directory in between.
	}
}

func write(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// cause returns an error without its path, which the message contains already.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
