//go:build linux

// Package cache owns the files of packages on this machine's disk, which sandboxes share by reading.
//
// A file is stored under its SHA-256 (files), and the URL that it was fetched from names it (names), with the digest
// that the registry's index stated. Trees show files to the sandboxes of one owner in npm's own form. All processes
// with the same home share the directory, and no lock is held while a file is read: it is hashed when it is opened, and
// one that was removed since can still be read.
package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/packages"
)

// Options configure a Cache.
type Options struct {
	Dir   string // made on demand
	Most  int64  // bytes of all files and notes together
	Room  func(dir string) (hostdisk.Room, error)
	Clock clock.Clock
	Log   *slog.Logger
	Apart bool // sandboxes have no trees
}

// Cache holds files of packages. Its methods may be called at the same time, and by several processes.
type Cache struct {
	o      Options
	served atomic.Int64
	added  atomic.Int64
	bad    atomic.Int64

	mu      sync.Mutex
	known   int64           // guarded by mu; bytes of all of them at the last look, and what was added since
	since   int64           // guarded by mu; bytes added since the last look
	looked  bool            // guarded by mu
	writing map[string]bool // guarded by mu; the URLs of open Writers
	failing bool            // guarded by mu; the disk refused the last write, which has been logged
}

// New returns a Cache. It touches no disk.
func New(o Options) *Cache {
	if o.Room == nil {
		o.Room = hostdisk.Of
	}
	return &Cache{o: o, writing: map[string]bool{}}
}

// Counts are of the life of a Cache.
type Counts struct {
	Served     int64 // files that were served
	Added      int64 // files that were stored
	Mismatched int64 // files that were not what the index states, or not on the disk what they were
}

// Counts returns what has become of files so far.
func (c *Cache) Counts() Counts { return Counts{c.served.Load(), c.added.Load(), c.bad.Load()} }

// Mismatch counts a file that is not what an index states.
func (c *Cache) Mismatch() { c.bad.Add(1) }

// name holds the cache's knowledge of a URL.
type name struct {
	URL     string          `json:"url"`
	SHA256  string          `json:"sha256"` // of the file, which is its name
	Size    int64           `json:"size"`
	Stated  packages.Digest `json:"stated"` // by the index
	Checked time.Time       `json:"checked"`
}

func (c *Cache) place(kind, base string) string { return filepath.Join(c.o.Dir, kind, base) }

func (c *Cache) namePlace(url string) string {
	sum := sha256.Sum256([]byte(url))
	return c.place("names", hex.EncodeToString(sum[:]))
}

// Stored is an open file of the cache. The caller closes it.
type Stored struct {
	*os.File
	Size    int64
	Stated  packages.Digest // by the index, at Checked
	Checked time.Time
}

// Bytes reads the file.
func (s *Stored) Bytes() ([]byte, error) {
	body := make([]byte, s.Size)
	_, err := io.ReadFull(s.File, body)
	return body, err
}

// Open returns the file of a URL, hashed again; false if there is none.
func (c *Cache) Open(url string) (*Stored, bool) {
	n, ok := c.read(url)
	if !ok {
		return nil, false
	}
	f, err := os.Open(c.place("files", n.SHA256))
	if err != nil {
		c.Drop(url) // it was evicted
		return nil, false
	}
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil || size != n.Size || hex.EncodeToString(sum.Sum(nil)) != n.SHA256 {
		f.Close()
		c.bad.Add(1)
		c.o.Log.Warn("a cached package is damaged, and is removed", "file", n.SHA256, "error", err)
		c.Drop(url)
		_ = os.Remove(c.place("files", n.SHA256)) // otherwise the next reader finds the same
		return nil, false
	}
	return &Stored{File: f, Size: size, Stated: n.Stated, Checked: n.Checked}, true
}

func (c *Cache) read(url string) (n name, ok bool) {
	data, err := os.ReadFile(c.namePlace(url))
	if err != nil {
		return n, false
	}
	if json.Unmarshal(data, &n) != nil || n.URL != url || !isDigest(n.SHA256) {
		c.Drop(url)
		return n, false
	}
	return n, true
}

func isDigest(s string) bool { return isHex(s, sha256.Size) }

// Served notes that a stored file is used.
func (c *Cache) Served(s *Stored) {
	c.served.Add(1)
	now := c.o.Clock.Now()
	_ = os.Chtimes(s.Name(), now, now) // otherwise it is evicted earlier
}

// Confirm notes that the index states the same digest of a URL's file now.
func (c *Cache) Confirm(url string) {
	if n, ok := c.read(url); ok {
		n.Checked = c.o.Clock.Now()
		_ = c.write(n) // otherwise it is checked again
	}
}

func (c *Cache) write(n name) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return atomicfile.Replace(c.namePlace(n.URL), data, 0o600)
}

// Drop forgets a URL.
func (c *Cache) Drop(url string) { _ = os.Remove(c.namePlace(url)) } // it may be gone

// failed logs the first of several errors of the disk.
func (c *Cache) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		c.failing = false
		return
	}
	if !c.failing {
		c.failing = true
		c.o.Log.Warn("packages are not cached", "error", err)
	}
}
