package image

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/linux/disk"
)

// lockFile takes the lock of a file as soon as it is free.
func lockFile(ctx context.Context, path string, k filelock.Kind) (*os.File, error) {
	f, err := filelock.OpenWaiting(ctx, path, k)
	if err != nil && ctx.Err() != nil {
		return nil, cove.Errorf(cove.Canceled, "waiting for another process that works on this image: %w", ctx.Err())
	}
	return f, storage(err, "lock the image store")
}

func (s *Store) digestLock(digest string) string {
	return filepath.Join(s.dir, "locks", strings.TrimPrefix(digest, "sha256:"))
}

// temp is a directory of the store that is locked while its owner lives.
type temp struct {
	dir   string
	lock  *os.File
	files *files.Files
}

func (s *Store) newTemp() (*temp, error) {
	dir := filepath.Join(s.dir, "tmp", strings.ToLower(rand.Text()))
	lock, err := filelock.Open(dir+lockSuffix, filelock.Exclusive)
	if errors.Is(err, filelock.ErrHeld) { // by a sweep, which found the new file before it was locked, and removes it
		return s.newTemp()
	}
	if err != nil {
		return nil, storage(err, "make a temporary directory")
	}
	t := &temp{dir: dir, lock: lock, files: s.files}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.discard()
		return nil, storage(err, "make a temporary directory")
	}
	return t, nil
}

const lockSuffix = ".lock"

// draftIn is the disk of a Draft.
func draftIn(dir string) disk.Image {
	return disk.Image{File: filepath.Join(dir, "draft.img"), Dir: filepath.Join(dir, "draft")}
}

// discard removes the directory, if it still exists, and then the lock.
func (t *temp) discard() error {
	left, err := filepath.Glob(filepath.Join(t.dir, "*")) // by a process that was killed
	for _, dir := range left {
		err = errors.Join(err, draftIn(dir).Unmount())
	}
	if err = errors.Join(err, t.files.Remove(t.dir)); err == nil {
		err = os.Remove(t.lock.Name())
	}
	return errors.Join(err, t.lock.Close())
}

// diskUsage returns the bytes of the files in a directory, as far as they can be counted: only a number for a message.
func diskUsage(f *files.Files, dir string) int64 {
	if _, err := os.Lstat(dir); err != nil {
		return 0
	}
	size, _ := f.Measure(context.Background(), dir)
	return size.Bytes
}

// discard removes a temporary directory that was not published. A failure is left to the sweeper.
func (s *Store) discard(t *temp) {
	if err := t.discard(); err != nil {
		s.log.Warn("temporary directory of the image store not removed", "dir", t.dir, "err", err)
	}
}
