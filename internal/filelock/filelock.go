//go:build unix

// Package filelock takes the locks of files (flock(2)) by which processes of Cove keep out of each other's way. Closing
// a file releases its lock for this process; a process that inherited the file holds it until its own end.
package filelock

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Kind is the kind of a lock.
type Kind int

const (
	Shared    Kind = syscall.LOCK_SH
	Exclusive Kind = syscall.LOCK_EX
)

// ErrHeld is the error of a lock that another process holds.
var ErrHeld = errors.New("locked by another process")

// Try takes the lock of an open file or directory. Errors: ErrHeld, those of flock(2).
func Try(f *os.File, k Kind) error {
	for {
		err := syscall.Flock(int(f.Fd()), int(k)|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrHeld
		case !errors.Is(err, syscall.EINTR):
			return os.NewSyscallError("flock", err)
		}
	}
}

// Wait takes the lock of an open file or directory as soon as it is free. Errors: the cause of ctx's end, those of Try
// but ErrHeld.
func Wait(ctx context.Context, f *os.File, k Kind) error {
	return patiently(ctx, func() error { return Try(f, k) })
}

// Open opens a file, which it makes if it is missing, and takes its lock. The holder of an exclusive lock may remove
// the file: a lock counts while its file is the one at that path. Errors: ErrHeld, those of the file system.
func Open(path string, k Kind) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err = Try(f, k); err == nil {
			var is bool
			if is, err = isAt(path, f); is {
				return f, nil
			}
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// OpenWaiting is Open as soon as the lock is free. Errors: the cause of ctx's end, those of Open but ErrHeld.
func OpenWaiting(ctx context.Context, path string, k Kind) (f *os.File, err error) {
	err = patiently(ctx, func() error {
		f, err = Open(path, k)
		return err
	})
	return f, err
}

func isAt(path string, f *os.File) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	current, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, current), nil
}

// patiently tries until the lock is not held, with longer and longer pauses: flock(2) has no way to wait and be ended.
func patiently(ctx context.Context, try func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if err := try(); !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
