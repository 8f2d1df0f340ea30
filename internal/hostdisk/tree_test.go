//go:build linux

package hostdisk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTree: a tree is measured to its depth, each file once, and what cannot be read is an error.
func TestTree(t *testing.T) {
	top, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := top
	for range 5 { // 1,000 levels, which no path reaches
		deep := strings.Repeat("d/", 200)
		err := at.MkdirAll(deep, 0o700)
		if err == nil {
			at, err = at.OpenRoot(deep)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(at.WriteFile("file", make([]byte, 1<<20), 0o600), at.Link("file", "again")); err != nil {
		t.Fatal(err)
	}
	bytes, files, err := Tree(t.Context(), top.Name())
	if err != nil || files != 1002 || bytes < 1<<20 || bytes > 8<<20 {
		t.Errorf("%d bytes, %d files, %v", bytes, files, err)
	}
	if _, _, err := Tree(t.Context(), filepath.Join(top.Name(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
