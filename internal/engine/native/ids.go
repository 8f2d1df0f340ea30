//go:build linux

package native

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// As root every sandbox has a range of host ids of its own, from the part of
// the id space that no distribution, container manager or directory service
// gives out (systemd's UIDS-GIDS.md leaves 0x70000000 to 0x7ffdffff free).
const (
	firstID    = 0x70000000
	rangeSize  = 1 << 16
	rangeCount = 4094
)

// idMap is how ids inside become ids of the host.
type idMap struct {
	users  idLines
	groups idLines
	guest  int  // the guest's id inside
	tool   bool // written by newuidmap and newgidmap, not by us
}

// idLines are the lines of a uid_map or gid_map file (user_namespaces(7)).
type idLines []idLine

type idLine struct{ inside, host, size int }

func (ls idLines) String() string {
	var b strings.Builder
	for _, l := range ls {
		fmt.Fprintf(&b, "%d %d %d\n", l.inside, l.host, l.size)
	}
	return b.String()
}

// host translates an id inside.
func (ls idLines) host(inside int) int {
	for _, l := range ls {
		if inside >= l.inside && inside < l.inside+l.size {
			return l.host + inside - l.inside
		}
	}
	return -1
}

// owner is a user and a group of the host: a person's, or the first of a range
// of each.
type owner struct{ uid, gid int }

// rangeMap is the map of a root-made sandbox with its own range.
func rangeMap(slot int) idMap {
	lines := idLines{{0, firstID + slot*rangeSize, rangeSize}}
	return idMap{users: lines, groups: lines}
}

// ownMap is the map without any privilege: the one id a process may map is its
// own, so the guest and the user's processes share it.
func ownMap(u cove.User, self owner) idMap {
	return idMap{users: idLines{{u.UID, self.uid, 1}}, groups: idLines{{u.UID, self.gid, 1}}, guest: u.UID}
}

// subordinateMap gives the user's processes the caller's own ids, so that files
// in mounts are the caller's, and everything else subordinate ids.
func subordinateMap(u cove.User, self, first owner) idMap {
	return idMap{tool: true, users: around(u.UID, self.uid, first.uid), groups: around(u.UID, self.gid, first.gid)}
}

// around maps id to self, and the others of a range to those from first on.
func around(id, self, first int) idLines {
	lines := idLines{{0, first, id}, {id, self, 1}}
	if rest := rangeSize - id - 1; rest > 0 {
		lines = append(lines, idLine{id + 1, first + id, rest})
	}
	return lines
}

// subordinate finds the caller's range in /etc/subuid or /etc/subgid; ok is
// false when there is none of sufficient size, or no tool to use it.
func subordinate(file, tool string) (first int, ok bool) {
	if _, err := exec.LookPath(tool); err != nil {
		return 0, false
	}
	u, err := user.Current()
	if err != nil {
		return 0, false
	}
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if first, ok := parseSubordinate(lines.Text(), u.Username, u.Uid); ok {
			return first, true
		}
	}
	return 0, false
}

// parseSubordinate reads a line of subuid(5): name or uid, first, count.
func parseSubordinate(line, name, uid string) (first int, ok bool) {
	parts := strings.Split(line, ":")
	if len(parts) != 3 || parts[0] != name && parts[0] != uid {
		return 0, false
	}
	first, err1 := strconv.Atoi(parts[1])
	count, err2 := strconv.Atoi(parts[2])
	return first, err1 == nil && err2 == nil && first > 0 && count >= rangeSize
}

// idLockFile is where the ranges in use are locked: one place for the whole
// host, whatever the run directories, so that no two sandboxes share ids.
const idLockFile = "/run/cove-ids.lock"

// slots hands out id ranges among all processes of Cove on the host. A range is
// taken by whoever holds the lock on its byte of the lock file, and free again
// when that process ends, however it does. Ranges that come back are kept for
// the next sandbox until close.
type slots struct {
	path string

	mu   sync.Mutex
	file *os.File // nil before the first take and after close
	ours map[int]bool
	free []int // of ours
}

func (s *slots) take() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot, nil
	}
	start := rand.IntN(rangeCount)
	for i := range rangeCount {
		slot := (start + i) % rangeCount
		ok, err := s.lock(slot)
		if err != nil {
			return 0, cove.Errorf(cove.Unavailable, "cannot take an id range: %w", err).WithHint("check that %s can be written", s.path)
		}
		if ok {
			s.ours[slot] = true
			return slot, nil
		}
	}
	return 0, cove.Errorf(cove.Overloaded, "all %d id ranges are in use", rangeCount).WithHint("wait for sandboxes to end")
}

// lock takes the slot's byte; false when another open file has it, in whatever
// process (fcntl(2), open file description locks).
func (s *slots) lock(slot int) (bool, error) {
	if s.ours[slot] {
		return false, nil
	}
	if s.file == nil {
		f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return false, err
		}
		s.file, s.ours = f, map[int]bool{}
	}
	err := unix.FcntlFlock(s.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(slot), Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func (s *slots) release(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, slot)
}

// held is the file that has the locks, where there are any.
func (s *slots) held() []*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return []*os.File{s.file}
}

// close gives back everything.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.ours, s.free = nil, nil, nil
}
