//go:build unix

package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for _, c := range []struct {
		held, wanted Kind
		want         error
	}{{Shared, Shared, nil}, {Shared, Exclusive, ErrHeld}, {Exclusive, Shared, ErrHeld}, {Exclusive, Exclusive, ErrHeld}} {
		first, second := open(t, path), open(t, path)
		if err := Try(first, c.held); err != nil {
			t.Fatal(err)
		}
		if err := Try(second, c.wanted); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		first.Close()
		if err := Try(second, c.wanted); err != nil {
			t.Errorf("%+v, released: %v", c, err)
		}
		second.Close()
	}
}

// TestWait: it takes a lock when that is released, and ends with its context.
func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := Try(first, Exclusive); err != nil {
		t.Fatal(err)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := Wait(ctx, second, Exclusive); err != why {
		t.Errorf("ended: %v", err)
	}
	taken := make(chan error)
	go func() { taken <- Wait(t.Context(), second, Exclusive) }()
	first.Close()
	if err := <-taken; err != nil {
		t.Errorf("released: %v", err)
	}
}

// TestOpen: a lock counts while its file is there, and a link is none.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Open(path, Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Shared); !errors.Is(err, ErrHeld) {
		t.Errorf("held: %v", err)
	}
	taken := make(chan *os.File)
	go func() {
		f, err := OpenWaiting(t.Context(), path, Exclusive)
		if err != nil {
			t.Error(err)
		}
		taken <- f
	}()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second := <-taken
	if is, err := isAt(path, second); !is || err != nil {
		t.Errorf("it holds a file that is gone: %v", err)
	}
	second.Close()
	if err := os.Symlink(path, path+"-link"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path+"-link", Shared); err == nil {
		t.Error("it follows a link")
	}
}
