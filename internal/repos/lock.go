package repos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
)

// lock waits for a lock on a file, which it makes: for everybody who reads
// together (syscall.LOCK_SH), or for one alone (LOCK_EX). Closing the file ends
// the hold of this process; a process that inherited it holds it on until it
// ends itself.
func lock(ctx context.Context, path string, how int) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, storageFull("make the lock", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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
			return nil, cove.Errorf(cove.Canceled, "waiting for somebody else who uses the repository: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// tryLock is lock that does not wait; nil when somebody has it.
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
	return cove.Errorf(cove.StorageFull, "cannot %s: %w", doing, err).WithHint("free some space, or make Cove's home writable")
}
