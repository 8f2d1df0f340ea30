//go:build linux

package local

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxLocks is how many locks of ranges of files the processes of a sandbox may hold together.
const MaxLocks = 10_000

const (
	// listedLocks is how much of the kernel's list is read: the newest come first, and each page costs more than the last.
	listedLocks = 4 * MaxLocks
	// shareOfLocks may be held by a sandbox in any case, when the list is longer.
	shareOfLocks = MaxLocks / 10
	// locksPoll is the time between two looks. A process makes a million locks a second at most, of 200 bytes each.
	locksPoll = 250 * time.Millisecond
	// locksRest is how many times as long as a look the watch waits for the next one, at least.
	locksRest = 10
)

// LockWatch ends sandboxes whose processes hold too many locks of ranges of files (fcntl). The kernel has a piece of
// memory for each, which it counts for no control group and no user, and knows no limit. It lists those of processes
// with the process; the policy of system calls refuses all others. The zero LockWatch watches nothing yet.
type LockWatch struct {
	Log *slog.Logger

	mu     sync.Mutex
	ends   map[string]func(held int) error // by the name of the control group; guarded by mu
	closed bool                            // guarded by mu
	stop   chan struct{}                   // nil before the first sandbox; guarded by mu
	all    sync.WaitGroup
}

// Add has the sandbox in a control group watched: end is called once, when it holds too many locks.
func (w *LockWatch) Add(group string, end func(held int) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.stop == nil {
		w.ends, w.stop = map[string]func(int) error{}, make(chan struct{})
		w.all.Go(w.watch)
	}
	w.ends[group] = end
}

// Remove has a sandbox watched no more.
func (w *LockWatch) Remove(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ends, group)
}

// Close ends the watch.
func (w *LockWatch) Close() {
	w.mu.Lock()
	if w.stop != nil && !w.closed {
		close(w.stop)
	}
	w.closed = true
	w.mu.Unlock()
	w.all.Wait()
}

func (w *LockWatch) watch() {
	for wait := locksPoll; ; {
		select {
		case <-w.stop:
			return
		case <-time.After(wait):
		}
		began := time.Now()
		if err := w.look(); err != nil {
			w.Log.Warn("cannot look at the locks of files", "error", err)
		}
		wait = max(locksPoll, locksRest*time.Since(began))
	}
}

// look ends each sandbox that holds too many locks now.
func (w *LockWatch) look() error {
	w.mu.Lock()
	idle := len(w.ends) == 0
	w.mu.Unlock()
	if idle {
		return nil
	}
	list, err := os.Open("/proc/locks")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without locks of files
	}
	if err != nil {
		return err
	}
	defer list.Close()
	processes, whole, err := lockHolders(list, listedLocks)
	if err != nil {
		return err
	}
	for group, held := range excessive(w.byGroup(processes), whole) {
		w.mu.Lock()
		end := w.ends[group]
		delete(w.ends, group)
		w.mu.Unlock()
		if end == nil {
			continue
		}
		w.Log.Warn("a sandbox is ended, since its programs hold too many locks of files", "group", group, "locks", held)
		w.all.Go(func() {
			if err := end(held); err != nil {
				w.Log.Warn("a sandbox with too many locks of files cannot be ended", "group", group, "error", err)
			}
		})
	}
	return nil
}

// byGroup adds up the locks of watched control groups. Few locks are not looked at.
func (w *LockWatch) byGroup(processes map[int]int) map[string]int {
	held, all := map[string]int{}, 0
	for _, n := range processes {
		all += n
	}
	if all <= MaxLocks {
		return held
	}
	for pid, n := range processes {
		if group := w.groupOf(pid); group != "" {
			held[group] += n
		}
	}
	return held
}

// groupOf returns the watched control group of a process, or "". Of a process whose first thread has ended, version 1
// tells the groups by another thread.
func (w *LockWatch) groupOf(pid int) string {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/cgroup")
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		w.mu.Lock()
		group := groupIn(string(text), w.ends)
		w.mu.Unlock()
		if group != "" {
			return group
		}
	}
	return ""
}

// groupIn returns that of some control groups which the lines of proc_pid_cgroup name, or "": as a directory of a
// path, or as what Docker or Podman has made of it, for systemd a scope. It is pure.
func groupIn[V any](lines string, groups map[string]V) string {
	for line := range strings.Lines(lines) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
		for _, dir := range strings.Split(path, "/") {
			own := strings.TrimSuffix(dir, ".scope")
			for _, name := range []string{dir, strings.TrimPrefix(own, "docker-"), strings.TrimPrefix(own, "libpod-")} {
				if _, ok := groups[name]; ok {
					return name
				}
			}
		}
	}
	return ""
}

// lockHolders counts the locks of ranges of files that each process holds, as proc_locks lists them: those among the
// first lines, and whether that is the whole list. The kernel gives the list a page at a time, and shows a lock again
// when others are taken between two pages; a process has one lock from each place of a file. It is pure.
func lockHolders(list io.Reader, most int) (held map[int]int, whole bool, err error) {
	type lock struct{ process, file, from string }
	held, seen := map[int]int{}, map[lock]bool{}
	lines := bufio.NewScanner(list)
	for n := 0; lines.Scan(); n++ {
		if n == most {
			return held, false, nil
		}
		// 1: POSIX  ADVISORY  WRITE 1234 00:2d:5678 0 EOF; one that waits has an arrow before its kind.
		f := strings.Fields(lines.Text())
		if len(f) < 7 || f[1] != "POSIX" {
			continue
		}
		l := lock{f[4], f[5], f[6]}
		if pid, err := strconv.Atoi(l.process); err == nil && pid > 0 && !seen[l] {
			seen[l] = true
			held[pid]++
		}
	}
	return held, true, lines.Err()
}

// excessive returns who holds too many locks. Where none is seen to, but the list goes on, it is who holds the most
// of what was read. It is pure.
func excessive(held map[string]int, whole bool) map[string]int {
	most := MaxLocks
	if !whole && len(held) > 0 {
		most = min(most, max(shareOfLocks, slices.Max(slices.Collect(maps.Values(held)))-1))
	}
	held = maps.Clone(held)
	maps.DeleteFunc(held, func(_ string, n int) bool { return n <= most })
	return held
}
