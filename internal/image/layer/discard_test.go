package layer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

// TestDiscardStaysInside: a link in a layer in place of a directory leads to nothing that is removed.
func TestDiscardStaysInside(t *testing.T) {
	outside := tree(t, "hostname", "of the machine", "empty/", "")
	changes := tree(t, "etc", "-> "+outside, "deep/etc", "-> "+outside)
	if err := Discard(changes, rootfs.Stack{tree(t)}, []string{"etc/hostname", "deep/etc/hostname"},
		[]string{"etc/empty", "deep/etc/empty"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hostname", "empty"} {
		if _, err := os.Lstat(filepath.Join(outside, name)); err != nil {
			t.Error(err)
		}
	}
}
