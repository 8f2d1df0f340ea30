package tools

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stat holds fields of proc_pid_stat(5).
type stat struct {
	pid, parent, session int
	zombie               bool
}

// parseStat parses /proc/PID/stat. The program's name in it may contain spaces and parentheses.
func parseStat(data []byte) (s stat, ok bool) {
	pid, _, _ := bytes.Cut(data, []byte(" "))
	_, rest, found := cutLast(data, ')')
	fields := strings.Fields(string(rest))
	if !found || len(fields) < 4 {
		return s, false
	}
	var errs [3]error
	s.pid, errs[0] = strconv.Atoi(string(pid))
	s.parent, errs[1] = strconv.Atoi(fields[1])
	s.session, errs[2] = strconv.Atoi(fields[3])
	s.zombie = fields[0] == "Z" || fields[0] == "X"
	return s, errs == [3]error{}
}

func cutLast(data []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(data, sep)
	if i < 0 {
		return data, nil, false
	}
	return data[:i], data[i+1:], true
}

// everyProcess returns all processes in /proc.
func everyProcess() []stat {
	entries, _ := os.ReadDir("/proc")
	var all []stat
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if s, ok := parseStat(data); err == nil && ok {
			all = append(all, s)
		}
	}
	return all
}

// descendants returns the known descendants of a process.
func descendants(all []stat, of int) []stat {
	var below []stat
	parents := []int{of}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		for _, s := range all {
			if s.parent == parent && s.pid != of && !slices.Contains(below, s) {
				below = append(below, s)
				parents = append(parents, s.pid)
			}
		}
	}
	return below
}

// endSession kills the processes of a session except its leader, and returns their number.
func endSession(leader int) int {
	ended := 0
	for range 100 { // processes forked meanwhile are found in the next round
		now := 0
		for _, s := range everyProcess() {
			if s.session == leader && s.pid != leader && !s.zombie {
				syscall.Kill(s.pid, syscall.SIGKILL)
				now++
			}
		}
		if now == 0 {
			break
		}
		ended = max(ended, now)
		time.Sleep(time.Millisecond)
	}
	return ended
}

// adopt makes this process the reaper of its orphaned descendants, so that they stay known.
func (ps *processes) adopt() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reap collects ended orphans; commands are waited for by their starter.
func (ps *processes) reap() {
	self, all := os.Getpid(), everyProcess()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, s := range all {
		if s.parent == self && s.zombie && !ps.mine[s.pid] {
			syscall.Wait4(s.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// endOrphans kills every descendant, including those that have left the session or process group of their command.
func (ps *processes) endOrphans() {
	for range 1000 {
		below := slices.DeleteFunc(descendants(everyProcess(), os.Getpid()), func(s stat) bool { return s.zombie })
		if len(below) == 0 {
			break
		}
		for _, s := range below {
			syscall.Kill(s.pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
	ps.reap()
}
