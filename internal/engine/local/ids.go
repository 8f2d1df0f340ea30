//go:build linux

package local

import (
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

// As root every sandbox has a range of host ids of its own, from the part of the id space that no distribution,
// container manager or directory service gives out (systemd's UIDS-GIDS.md leaves 0x70000000 to 0x7ffdffff free).
const (
	firstID    = 0x70000000
	rangeSize  = 1 << 16
	rangeCount = 4094
)

// IDMap maps the ids of a sandbox to ids of the host.
type IDMap struct {
	Users  IDLines
	Groups IDLines
	Guest  Owner // the guest's ids inside
	Tool   bool  // newuidmap and newgidmap write it; without, Cove does
}

// IDLines are the lines of a uid_map or gid_map file (user_namespaces(7)).
type IDLines []IDLine

// IDLine maps Size ids from Inside on to those from Host on.
type IDLine struct{ Inside, Host, Size int }

func (ls IDLines) String() string {
	var b strings.Builder
	for _, l := range ls {
		fmt.Fprintf(&b, "%d %d %d\n", l.Inside, l.Host, l.Size)
	}
	return b.String()
}

// OnHost translates an id inside; -1 is an id without a mapping.
func (ls IDLines) OnHost(inside int) int {
	for _, l := range ls {
		if inside >= l.Inside && inside < l.Inside+l.Size {
			return l.Host + inside - l.Inside
		}
	}
	return -1
}

// Owner is a user and a group of the host: those of a file, of a process, or the first of a range of each.
type Owner struct{ UID, GID int }

// rangeMap is the map of a root-made sandbox with its own range.
func rangeMap(slot int) IDMap {
	lines := IDLines{{0, firstID + slot*rangeSize, rangeSize}}
	return IDMap{Users: lines, Groups: lines}
}

// ownMap is the map without any privilege: the one id a process may map is its own, so the guest and the user's
// processes share it.
func ownMap(u cove.User, self Owner) IDMap {
	return IDMap{Users: IDLines{{u.UID, self.UID, 1}}, Groups: IDLines{{u.GID, self.GID, 1}}, Guest: Owner{u.UID, u.GID}}
}

// subordinateMap gives the user's processes the caller's own ids, which files in mounts have; all else is subordinate.
func subordinateMap(u cove.User, self, first Owner) IDMap {
	return IDMap{Tool: true, Users: around(u.UID, self.UID, first.UID), Groups: around(u.GID, self.GID, first.GID)}
}

// around maps id to self, and the others of a range to those from first on.
func around(id, self, first int) IDLines {
	lines := IDLines{{id, self, 1}}
	if id > 0 {
		lines = IDLines{{0, first, id}, {id, self, 1}}
	}
	if rest := rangeSize - id - 1; rest > 0 {
		lines = append(lines, IDLine{id + 1, first + id, rest})
	}
	return lines
}

// subordinate finds the caller's range in /etc/subuid or /etc/subgid; ok is false when there is none of sufficient
// size, or no tool to use it.
func subordinate(file, tool string) (first int, ok bool) {
	if _, err := exec.LookPath(tool); err != nil {
		return 0, false
	}
	u, err := user.Current()
	if err != nil {
		return 0, false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if first, ok := parseSubordinate(strings.TrimSpace(line), u.Username, u.Uid); ok {
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

// rangeLockFile holds the locks of the ranges in use: one for the whole host, so that no two sandboxes share ids.
const rangeLockFile = "/run/cove-ids.lock"

// IDs chooses the ids of sandboxes that this process makes.
type IDs struct {
	root        bool
	self        Owner
	subordinate Owner // first subordinate ids; zero without any
}

// FindIDs looks at the rights and the subordinate ids of this process.
func FindIDs() IDs {
	ids := IDs{root: os.Geteuid() == 0, self: Owner{os.Geteuid(), os.Getegid()}}
	if ids.root {
		return ids
	}
	uid, ok1 := subordinate("/etc/subuid", "newuidmap")
	gid, ok2 := subordinate("/etc/subgid", "newgidmap")
	if ok1 && ok2 {
		ids.subordinate = Owner{uid, gid}
	}
	return ids
}

// Self is the owner of this process.
func (d IDs) Self() Owner { return d.self }

// Ranged reports whether every sandbox gets a range of host ids of its own.
func (d IDs) Ranged() bool { return d.root }

// Separate reports whether the guest and the user's processes have different ids.
func (d IDs) Separate() bool { return d.root || d.subordinate != Owner{} }

// Map chooses the map of a new sandbox; release gives back what it took of r.
func (d IDs) Map(u cove.User, r *Ranges) (m IDMap, release func(), err error) {
	switch {
	case d.root:
		n, err := r.take()
		return rangeMap(n), func() { r.release(n) }, err
	case d.subordinate != Owner{}:
		return subordinateMap(u, d.self, d.subordinate), func() {}, nil
	}
	return ownMap(u, d.self), func() {}, nil
}

// Ranges hands out id ranges among all processes of Cove on the host. The process that holds the lock on a range's byte
// of the lock file has the range; the range is free again when that process ends, however it ends. Ranges that come
// back are kept for the next sandbox until Close.
type Ranges struct {
	path string

	mu   sync.Mutex
	file *os.File // nil before the first take and after Close
	ours map[int]bool
	free []int // of ours
}

// NewRanges hands out the host's ranges, with locks of its own.
func NewRanges() *Ranges { return &Ranges{path: rangeLockFile} }

func (r *Ranges) take() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		number := r.free[n-1]
		r.free = r.free[:n-1]
		return number, nil
	}
	start := rand.IntN(rangeCount)
	for i := range rangeCount {
		number := (start + i) % rangeCount
		ok, err := r.lock(number)
		if err != nil {
			return 0, cove.Errorf(cove.Unavailable, "cannot take an id range: %w", err).
				WithHint("check that %s can be written", r.path)
		}
		if ok {
			r.ours[number] = true
			return number, nil
		}
	}
	return 0, cove.Errorf(cove.Overloaded, "all %d id ranges are in use", rangeCount).WithHint("wait for sandboxes to end")
}

// lock takes the byte of a range; false when another open file of any process has it (fcntl(2), OFD locks).
func (r *Ranges) lock(number int) (bool, error) {
	if r.ours[number] {
		return false, nil
	}
	if r.file == nil {
		f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return false, err
		}
		r.file, r.ours = f, map[int]bool{}
	}
	err := unix.FcntlFlock(r.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(number), Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func (r *Ranges) release(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, number)
}

// Held returns the file that holds the locks; none before the first range is taken.
func (r *Ranges) Held() []*os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	return []*os.File{r.file}
}

// Close gives back every range.
func (r *Ranges) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.ours, r.free = nil, nil, nil
}
