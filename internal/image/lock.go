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

// errHeld reports that another process holds a lock.
var errHeld = errors.New("locked by another process")

// tryLock takes the lock of a file, which it makes if missing; errHeld when it is taken. The holder of an exclusive
// lock may remove the file, so a lock counts only while its file is the one at that path.
func tryLock(path string, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how|unix.LOCK_NB); err != nil {
			f.Close()
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

func flock(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return errHeld
		default:
			return err
		}
	}
}

// lockFile waits for a lock.
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

// Hold keeps an image from being removed until release is called or the process ends. Callers that run an image hold
// it.
func (s *Store) Hold(ctx context.Context, digest string) (release func(), err error) {
	if !validDigest(digest) {
		return nil, cove.Errorf(cove.InvalidArgument, "%.80q is not a digest", digest)
	}
	if _, err := s.image(digest); err != nil {
		return nil, missing(target{kind: fromDigest, ref: digest})
	}
	f, err := lockFile(ctx, s.digestLock(digest), unix.LOCK_SH)
	if errors.Is(err, unix.EROFS) {
		return func() {}, nil // it cannot be removed
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.image(digest); err != nil {
		f.Close()
		return nil, missing(target{kind: fromDigest, ref: digest})
	}
	return func() { f.Close() }, nil
}

// withImage runs then while an image exists and cannot be removed, after making it if it is missing.
func (s *Store) withImage(ctx context.Context, digest string, make, then func() error) error {
	if err := s.ensure(); err != nil {
		return err
	}
	lock, err := lockFile(ctx, s.digestLock(digest), unix.LOCK_SH) // shared: the image may be in use
	if err != nil {
		return err
	}
	_, err = s.image(digest)
	if err == nil {
		err = then()
	}
	lock.Close()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if lock, err = lockFile(ctx, s.digestLock(digest), unix.LOCK_EX); err != nil {
		return err
	}
	defer lock.Close()
	if _, err = s.image(digest); errors.Is(err, fs.ErrNotExist) { // no other process has made it meanwhile
		err = make()
	}
	if err != nil {
		return err
	}
	return then()
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

// sweep removes temporary directories of dead owners, and half-written indexes. It returns their count and their bytes.
func (s *Store) sweep() (count int, bytes int64, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, 0, err
	}
	seen := map[string]bool{}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), lockSuffix)
		if seen[name] {
			continue
		}
		seen[name] = true
		dir := filepath.Join(s.dir, "tmp", name)
		lock, e := tryLock(dir+lockSuffix, unix.LOCK_EX)
		if e == errHeld {
			continue
		}
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		bytes += diskUsage(dir)
		count++
		err = errors.Join(err, (&temp{dir: dir, lock: lock}).discard())
	}
	return count, bytes, errors.Join(err, s.sweepIndex())
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
