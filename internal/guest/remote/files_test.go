//go:build linux

package remote

import (
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dirent is an entry as the kernel writes it, with a length of its own.
func dirent(length int, name string) []byte {
	d := make([]byte, max(length, int(unsafe.Offsetof(unix.Dirent{}.Name))+len(name)))
	d[0] = 1 // inode
	d[unsafe.Offsetof(unix.Dirent{}.Reclen)] = byte(length)
	copy(d[unsafe.Offsetof(unix.Dirent{}.Name):], name)
	return d[:max(length, 0)]
}

// TestDirents: an executor's entries of a directory have names, and nothing else is one.
func TestDirents(t *testing.T) {
	good := slices.Concat(dirent(24, ".\x00"), dirent(24, "..\x00"), dirent(24, "a\x00"), dirent(32, "long name\x00"))
	if names, ok := dirents(good); !ok || !slices.Equal(names, []string{"a", "long name"}) {
		t.Errorf("%q, %v", names, ok)
	}
	for name, data := range map[string][]byte{
		"a part of a head":     good[:10],
		"a part of a name":     good[:23],
		"no length":            make([]byte, 24),
		"half a head":          dirent(18, ""),
		"a length beyond":      dirent(24, "a\x00")[:22],
		"a head alone":         dirent(19, ""),
		"a name without end":   dirent(24, "abcde"),
		"no name":              dirent(24, ""),
		"a way to elsewhere":   dirent(32, "../etc/x\x00"),
		"garbage after a name": append(dirent(24, "a\x00"), 1),
	} {
		if names, ok := dirents(data); ok {
			t.Errorf("%s: %q", name, names)
		}
	}
}

func FuzzDirents(f *testing.F) {
	f.Add(dirent(24, "a\x00"))
	f.Add(dirent(18, ""))
	f.Fuzz(func(t *testing.T, data []byte) { dirents(data) })
}
