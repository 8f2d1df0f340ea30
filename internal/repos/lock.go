package repos

import (
	"context"
	"errors"
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"io/fs"
	"os"
	"path/filepath"
)

// lock waits for the lock of a file, which it makes if missing. It does not make the directory, which may be that of a
// workspace that was removed meanwhile. Errors: NotFound without one.
func lock(ctx context.Context, path string, k filelock.Kind) (*os.File, error) {
	f, err := opened(path)
	if err != nil {
		return nil, err
	}
	if err := filelock.Wait(ctx, f, k); err != nil {
		f.Close()
		if ctx.Err() != nil {
			return nil, cove.Errorf(cove.Canceled, "waiting for another process that uses the repository: %w",
				context.Cause(ctx))
		}
		return nil, storageFull("lock", err)
	}
	return f, nil
}

// tryLock is lock without waiting; it returns nil when the lock is taken.
func tryLock(path string, k filelock.Kind) (*os.File, error) {
	f, err := opened(path)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f, k); err != nil {
		f.Close()
		if errors.Is(err, filelock.ErrHeld) {
			return nil, nil
		}
		return nil, storageFull("lock", err)
	}
	return f, nil
}

func opened(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "%s is not there any more", filepath.Dir(path))
	}
	if err != nil {
		return nil, storageFull("make the lock", err)
	}
	return f, nil
}

func storageFull(doing string, err error) error {
	return cove.Errorf(cove.StorageFull, "cannot %s: %w", doing,
		err).WithHint("free some space, or make Cove's home writable")
}
