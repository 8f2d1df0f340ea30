//go:build linux

package holdings

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const needle = "a needle of some length"

// write makes a file of a size with texts at offsets, and holes elsewhere.
func write(t *testing.T, path string, size int64, texts map[int64]string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for at, text := range texts {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSearch(t *testing.T) {
	const step = 1 << 18
	for _, c := range []struct {
		name  string
		size  int64
		texts map[int64]string
		has   bool
	}{
		{name: "empty"},
		{name: "a hole", size: 10 << 30},
		{name: "the beginning", size: 1 << 20, texts: map[int64]string{0: needle}, has: true},
		{name: "the end after a hole", size: 10 << 30, has: true,
			texts: map[int64]string{10<<30 - int64(len(needle)): needle}},
		{name: "between holes", size: 10 << 30, texts: map[int64]string{5<<30 + 7: needle}, has: true},
		{name: "other data", size: 10 << 30, texts: map[int64]string{5<<30 + 7: needle[:20], 6 << 30: needle[1:]}},
		{name: "longer than a step", texts: map[int64]string{0: strings.Repeat("x", 5*step)}},
		{name: "across two steps", has: true,
			texts: map[int64]string{0: strings.Repeat("x", step-5) + needle + strings.Repeat("x", step)}},
		{name: "its last letter in the next step", has: true,
			texts: map[int64]string{0: strings.Repeat("x", step-len(needle)+1) + needle + "x"}},
		{name: "across later ones", has: true,
			texts: map[int64]string{0: strings.Repeat("x", 3*step-2*len(needle)) + needle + strings.Repeat("x", step)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			write(t, path, c.size, c.texts)
			for range 2 { // the second time it is known
				found, files, err := Search(needle, dir)
				if err != nil || files != 1 || slices.Equal(found, []string{path}) != c.has {
					t.Errorf("found %q in %d files, %v", found, files, err)
				}
			}
		})
	}
}

// TestSearchReadsData: the disk of a sandbox costs its data, not its size, in time and in memory.
func TestSearchReadsData(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk")
	const size, most = 16 << 30, 4 << 20
	write(t, path, size, map[int64]string{1 << 30: "some data", size - 100: needle})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if hole, err := f.Seek(0, unix.SEEK_HOLE); err != nil || hole == size {
		t.Skipf("the file system of %s knows no holes: %v", dir, err)
	}
	allocated, bytes := spent(t)
	found, _, err := Search(needle, dir)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %q, %v", found, err)
	}
	allocatedThen, bytesThen := spent(t)
	if allocatedThen-allocated > most || bytesThen-bytes > most {
		t.Errorf("%d bytes of memory, %d bytes read", allocatedThen-allocated, bytesThen-bytes)
	}
}

// spent returns what this process has allocated and read.
func spent(t *testing.T) (allocated, read uint64) {
	t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("this kernel does not count what is read: %v", err)
	}
	_, after, _ := strings.Cut(string(text), "rchar: ")
	line, _, _ := strings.Cut(after, "\n")
	if read, err = strconv.ParseUint(line, 10, 64); err != nil {
		t.Fatal(err)
	}
	return m.TotalAlloc, read
}

// TestSearchChanged: what is written to a file that was searched is found by the next search.
func TestSearchChanged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"nothing", "and now " + needle} {
		write(t, path, 0, map[int64]string{0: text})
		found, _, err := Search(needle, dir, filepath.Join(dir, "gone"))
		if err != nil || (len(found) == 1) != strings.Contains(text, needle) {
			t.Errorf("%q: %q, %v", text, found, err)
		}
	}
}
