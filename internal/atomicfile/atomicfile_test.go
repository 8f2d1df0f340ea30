package atomicfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

type writer func(path string, data []byte, perm fs.FileMode) error

// each tests both functions.
func each(t *testing.T, f func(t *testing.T, write writer)) {
	t.Run("Write", func(t *testing.T) { f(t, Write) })
	t.Run("Replace", func(t *testing.T) { f(t, Replace) })
}

func TestWriteReplaces(t *testing.T) { each(t, writeReplaces) }

func writeReplaces(t *testing.T, write writer) {
	path := filepath.Join(t.TempDir(), "state.json")
	for _, content := range []string{"one", "two, longer", ""} {
		if err := write(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("read %q, %v; want %q", got, err, content)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v; want 0600", info.Mode(), err)
	}
	noLitter(t, filepath.Dir(path), 1)
}

func TestFailureLeavesTheOldFile(t *testing.T) { each(t, failureLeavesTheOldFile) }

func failureLeavesTheOldFile(t *testing.T, write writer) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "child"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := write(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if _, err := os.Stat(filepath.Join(path, "child")); err != nil {
		t.Error(err)
	}
	noLitter(t, dir, 1)
	if err := write(filepath.Join(dir, "missing", "file"), nil, 0o600); err == nil {
		t.Error("a file was written into a missing directory")
	}
}

// Readers see complete contents: every content is one byte repeated.
func TestReadersSeeWholeFiles(t *testing.T) { each(t, readersSeeWholeFiles) }

func readersSeeWholeFiles(t *testing.T, write writer) {
	path := filepath.Join(t.TempDir(), "f")
	if err := write(path, whole(0), 0o600); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := range 20 {
				if err := write(path, whole(w*20+i), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) != 10_000 || fmt.Sprintf("%x", data[:1]) != fmt.Sprintf("%x", data[9_999:]) {
			t.Fatalf("read a part: %d bytes", len(data))
		}
		select {
		case <-done:
			noLitter(t, filepath.Dir(path), 1)
			return
		default:
		}
	}
}

func whole(i int) []byte {
	b := make([]byte, 10_000)
	for j := range b {
		b[j] = byte(i)
	}
	return b
}

func noLitter(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != want {
		t.Errorf("%s holds %v, want %d entries", dir, entries, want)
	}
}
