//go:build linux

package fdpass

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func open(t *testing.T, n int) (files []*os.File) {
	t.Helper()
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w.WriteString("x")
		w.Close()
		t.Cleanup(func() { r.Close() })
		files = append(files, r)
	}
	return files
}

func TestHandOver(t *testing.T) {
	a, b := pair(t)
	if err := Send(a, open(t, 7)); err != nil {
		t.Fatal(err)
	}
	got, err := Receive(b, 7)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range got {
		if text, err := io.ReadAll(f); string(text) != "x" || err != nil {
			t.Errorf("%d: %q, %v", i, text, err)
		}
		f.Close()
	}
}

// TestOtherNumbers: fewer or more descriptors are refused, and none stays open.
func TestOtherNumbers(t *testing.T) {
	before := descriptors(t)
	for _, n := range []int{0, 1, 6, 8, 20} {
		a, b := pair(t)
		sent := open(t, n)
		if err := Send(a, sent); err != nil {
			t.Fatal(err)
		}
		if got, err := Receive(b, 7); err == nil {
			t.Errorf("%d were taken as %d", n, len(got))
		}
		for _, f := range sent {
			f.Close()
		}
		a.Close()
		b.Close()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
	a, b := pair(t)
	a.Close()
	if _, err := Receive(b, 7); err == nil {
		t.Error("taken from nobody")
	}
	_, silent := pair(t)
	silent.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := Receive(silent, 7); err == nil {
		t.Error("taken from somebody silent")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
