package image

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

var errHeld = errors.New("locked by another process")

// tryLock takes the lock of a file, which it makes if missing; errHeld when it is taken. The holder of an exclusive
// lock may remove the file, so a lock counts only while its file is the one at that path.
func tryLock(path string, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
			f.Close()
			if err == unix.EWOULDBLOCK {
				err = errHeld
			}
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if current, err := os.Lstat(path); err == nil && os.SameFile(mine, current) {
			return f, nil
		}
		f.Close()
	}
}

func lockFile(ctx context.Context, path string, how int) (*os.File, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		f, err := tryLock(path, how)
		if err != errHeld {
			return f, storage(err, "lock the image store")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, cove.Errorf(cove.Canceled, "waiting for another process that works on this image: %w", ctx.Err())
		}
	}
}

func (s *Store) digestLock(digest string) string {
	return filepath.Join(s.dir, "locks", strings.TrimPrefix(digest, "sha256:"))
}

// temp is a directory of the store that is locked while its owner lives.
type temp struct {
	dir  string
	lock *os.File
}

func (s *Store) newTemp() (*temp, error) {
	dir := filepath.Join(s.dir, "tmp", strings.ToLower(rand.Text()))
	lock, err := tryLock(dir+lockSuffix, unix.LOCK_EX)
	if err != nil {
		return nil, storage(err, "make a temporary directory")
	}
	t := &temp{dir: dir, lock: lock}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.discard()
		return nil, storage(err, "make a temporary directory")
	}
	return t, nil
}

const lockSuffix = ".lock"

// discard removes the directory, if it still exists, and then the lock.
func (t *temp) discard() error {
	err := unpack.RemoveAll(t.dir)
	if err == nil {
		err = os.Remove(t.lock.Name())
	}
	return errors.Join(err, t.lock.Close())
}

func diskUsage(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // only a number for a message
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// discard removes a temporary directory that was not published. A failure is left to the sweeper.
func (s *Store) discard(t *temp) {
	if err := t.discard(); err != nil {
		s.log.Warn("temporary directory of the image store not removed", "dir", t.dir, "err", err)
	}
}
