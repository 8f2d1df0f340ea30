package repos

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
)

// lock waits for the lock of a file, which it makes if missing: shared (syscall.LOCK_SH) or exclusive (LOCK_EX). It
// does not make the directory, which may be that of a workspace that was removed meanwhile. Errors: NotFound without
// one.
// Closing the file releases it for this process; a process that inherited the file holds the lock until its end.
func lock(ctx context.Context, path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "%s is not there any more", filepath.Dir(path))
	}
	if err != nil {
		return nil, storageFull("make the lock", err)
	}
	const longest = 100 * time.Millisecond
	for wait := time.Millisecond; ; wait = min(2*wait, longest) {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, storageFull("lock", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, cove.Errorf(cove.Canceled, "waiting for another process that uses the repository: %w",
				context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// tryLock is lock without waiting; it returns nil when the lock is taken.
func tryLock(path string, how int) (*os.File, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f, err := lock(ctx, path, how)
	if cove.ErrorCode(err) == cove.Canceled {
		return nil, nil
	}
	return f, err
}

func storageFull(doing string, err error) error {
	return cove.Errorf(cove.StorageFull, "cannot %s: %w", doing,
		err).WithHint("free some space, or make Cove's home writable")
}
