//go:build linux

package cache

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/internal/filelock"
)

const (
	block     = 4096      // bytes of the disk, of which a file and its name take one each at least
	abandoned = time.Hour // after which a temporary file of a name has no writer
	share     = 16        // a process looks again after it has added a sixteenth: others add, too
	rest      = 8         // an eighth is made free at once
	private   = fs.FileMode(0o700)
)

// ready makes the directories. The first call of a process also removes what ended processes have left.
func (c *Cache) ready() error {
	for _, kind := range []string{"files", "names", "notes", "parts"} {
		if err := os.MkdirAll(c.place(kind, ""), private); err != nil {
			return err
		}
	}
	c.mu.Lock()
	first := !c.looked
	c.looked = true
	c.mu.Unlock()
	if first {
		c.sweep()
		c.grown(0)
	}
	return nil
}

// sweep removes the parts whose writers have ended.
func (c *Cache) sweep() {
	parts, _ := os.ReadDir(c.place("parts", ""))
	for _, e := range parts {
		f, err := os.Open(c.place("parts", e.Name()))
		if err != nil {
			continue
		}
		if filelock.Try(f, filelock.Exclusive) == nil {
			_ = os.Remove(f.Name()) // its writer may have come first
		}
		f.Close()
	}
}

// grown counts bytes that were added, and evicts what was used the longest ago if they are too many.
func (c *Cache) grown(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known += onDisk(bytes)
	c.since += onDisk(bytes)
	if bytes > 0 && c.known <= c.o.Most && c.since <= c.o.Most/share {
		return
	}
	c.known, c.since = c.evict(), 0
}

func onDisk(bytes int64) int64 { return (bytes+block-1)/block*block + block }

// evict removes files until all fit, then notes, and names without a file. It returns what is left of both.
func (c *Cache) evict() (total int64) {
	lock, err := os.OpenFile(c.place("", ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0
	}
	defer lock.Close()
	if filelock.Try(lock, filelock.Exclusive) != nil {
		return 0 // another process does it
	}
	in := linked{}
	c.survey(func(inode uint64, used time.Time) bool { // before the files: what comes in between stays
		if used.After(in[inode]) {
			in[inode] = used
		}
		return true
	})
	var all []aged
	there := map[uint64]bool{}
	for _, kind := range []string{"files", "notes"} { // notes are small, and each costs a look at an index
		found := c.aged(kind, in)
		for _, e := range found {
			total += onDisk(e.size)
			there[e.inode] = true
		}
		all = append(all, found...)
	}
	stays := func(inode uint64, _ time.Time) bool { _, was := in[inode]; return !was || there[inode] }
	total += c.survey(stays)
	if total > c.o.Most {
		for _, e := range all {
			if total <= c.o.Most-c.o.Most/rest {
				break
			}
			if os.Remove(e.place) == nil {
				total -= onDisk(e.size)
				delete(there, e.inode)
				if _, was := in[e.inode]; was {
					total -= 2 * block // directories of its tree, of one at least
				}
			}
		}
		c.survey(stays)
	}
	c.forget()
	return total
}

// aged is a file or a note, by the time of its last use or writing.
type aged struct {
	place  string
	size   int64
	at     time.Time
	itself time.Time // at which it was used or written apart from trees
	inode  uint64
}

// aged returns those of a kind, the oldest first. What is in trees is used with them.
func (c *Cache) aged(kind string, in linked) (all []aged) {
	entries, _ := os.ReadDir(c.place(kind, ""))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || strings.HasPrefix(e.Name(), ".") { // which has a writer
			continue
		}
		a := aged{place: c.place(kind, e.Name()), size: info.Size(), at: info.ModTime(), itself: info.ModTime()}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			a.inode = st.Ino
		}
		if used := in[a.inode]; used.After(a.at) {
			a.at = used
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b aged) int { return cmp.Or(a.at.Compare(b.at), a.itself.Compare(b.itself)) })
	return all
}

// forget removes the names of files that are gone, and temporary files of names.
func (c *Cache) forget() {
	names, _ := os.ReadDir(c.place("names", ""))
	for _, e := range names {
		at := c.place("names", e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			if info, err := e.Info(); err == nil && c.o.Clock.Now().Sub(info.ModTime()) > abandoned {
				_ = os.Remove(at) // its writer may have come first
			}
			continue
		}
		var n name
		data, err := os.ReadFile(at)
		if err != nil {
			continue
		}
		if json.Unmarshal(data, &n) == nil && isDigest(n.SHA256) {
			_, err = os.Lstat(c.place("files", n.SHA256)) // which is there before its name
		} else {
			err = fs.ErrInvalid
		}
		if err != nil {
			_ = os.Remove(at) // it may be gone
		}
	}
}
