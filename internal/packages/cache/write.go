//go:build linux

package cache

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"

	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/packages"
)

const (
	maxWriters = 64       // at a time; further files are not cached
	step       = 16 << 20 // bytes between two looks at the room of the disk
	part       = 4        // of the cache's bytes, one file may have a quarter
)

// Writer takes a file as it comes. A file that it does not take is not cached, and nothing else.
type Writer struct {
	c        *Cache
	url      string
	file     *os.File
	sum256   hash.Hash
	sum512   hash.Hash
	size     int64
	reserved int64 // bytes for which the disk had room
	err      error
}

// Begin returns a Writer for the file of a URL; nil if another is writing it, or there is no room. size is -1 if it is
// not known. Commit or Abort comes last.
func (c *Cache) Begin(url string, size int64) *Writer {
	if size > c.o.Most/part {
		return nil
	}
	c.mu.Lock()
	if len(c.writing) >= maxWriters || c.writing[url] {
		c.mu.Unlock()
		return nil
	}
	c.writing[url] = true
	c.mu.Unlock()
	w := &Writer{c: c, url: url, sum256: sha256.New(), sum512: sha512.New()}
	if w.err = w.open(); w.err == nil {
		w.err = w.room(max(size, 0))
	}
	if w.err != nil {
		c.failed(w.err)
		w.Abort()
		return nil
	}
	return w
}

func (w *Writer) open() (err error) {
	if err := w.c.ready(); err != nil {
		return err
	}
	if w.file, err = os.CreateTemp(w.c.place("parts", ""), ""); err != nil {
		return err
	}
	return filelock.Try(w.file, filelock.Exclusive) // which tells that its writer lives
}

func (w *Writer) room(bytes int64) error {
	if bytes < w.reserved {
		return nil
	}
	bytes += step
	w.reserved = bytes
	return w.c.hasRoom(bytes - w.size)
}

func (c *Cache) hasRoom(bytes int64) error {
	room, err := c.o.Room(c.o.Dir)
	if err == nil {
		err = room.Fits("a package", bytes)
	}
	return err
}

var errLarge = errors.New("the package is larger than a part of the cache")

// Write implements io.Writer. It never fails: a file that cannot be written is not stored.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err == nil {
		w.err = w.room(w.size + int64(len(p)))
	}
	if w.err == nil && w.size+int64(len(p)) > w.c.o.Most/part {
		w.err = errLarge
	}
	if w.err == nil {
		_, w.err = io.MultiWriter(w.file, w.sum256, w.sum512).Write(p)
	}
	w.size += int64(len(p))
	return len(p), nil
}

// Commit stores the file if it is what the index states. It reports whether it is, or could not be written.
func (w *Writer) Commit(stated packages.Digest) (matches bool) {
	defer w.Abort()
	if w.err != nil {
		w.c.failed(w.err)
		return true
	}
	is := packages.Digest{SHA256: hex.EncodeToString(w.sum256.Sum(nil)), SHA512: hex.EncodeToString(w.sum512.Sum(nil))}
	if stated.GoZip != "" {
		is.GoZip, _ = hashModule(w.file, w.size) // what is no module has no hash
	}
	if stated.GoMod != "" {
		is.GoMod, _ = hashGoMod(w.file, w.size)
	}
	if !stated.Matches(is) {
		return false
	}
	now := w.c.o.Clock.Now()
	if w.err = os.Chtimes(w.file.Name(), now, now); w.err == nil {
		w.err = os.Rename(w.file.Name(), w.c.place("files", is.SHA256))
	}
	if w.err == nil {
		w.err = w.c.write(name{URL: w.url, SHA256: is.SHA256, Size: w.size, Stated: stated, Checked: now})
	}
	w.c.failed(w.err)
	if w.err == nil {
		w.c.added.Add(1)
		w.c.grown(w.size)
	}
	return true
}

// Abort gives the file up. After Commit it does nothing.
func (w *Writer) Abort() {
	w.c.mu.Lock()
	delete(w.c.writing, w.url)
	w.c.mu.Unlock()
	if w.file != nil {
		_ = os.Remove(w.file.Name()) // it may have been renamed
		w.file.Close()
		w.file = nil
	}
}
