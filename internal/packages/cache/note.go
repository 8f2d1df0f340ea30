//go:build linux

package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"time"

	"github.com/cove-sandbox/cove/internal/atomicfile"
)

// A note is what has been read of an index and is kept for other processes: what was verified, by a name of who keeps
// it. Notes count with the files, and are evicted after them.

const maxNote = 32 << 20

func (c *Cache) notePlace(name string) string {
	sum := sha256.Sum256([]byte(name))
	return c.place("notes", hex.EncodeToString(sum[:]))
}

// Note returns the note with a name, and when it was written; false if there is none. The caller checks it.
func (c *Cache) Note(name string) (data []byte, at time.Time, ok bool) {
	f, err := os.Open(c.notePlace(name))
	if err != nil {
		return nil, at, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, at, false
	}
	data, err = io.ReadAll(io.LimitReader(f, maxNote))
	return data, info.ModTime(), err == nil
}

// SetNote replaces the note with a name, if the disk has room.
func (c *Cache) SetNote(name string, data []byte) {
	err := c.ready()
	if err == nil {
		err = c.hasRoom(int64(len(data)))
	}
	if err == nil {
		err = atomicfile.Replace(c.notePlace(name), data, 0o600)
	}
	if err == nil {
		now := c.o.Clock.Now()
		err = os.Chtimes(c.notePlace(name), now, now)
	}
	c.failed(err)
	if err == nil {
		c.grown(int64(len(data)))
	}
}
