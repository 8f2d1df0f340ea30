//go:build linux

package gateway

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

// TestNoSpaceLeft: Open fails when a route's files cannot be written, with a clear error and without remains; it works
// when there is space again.
func TestNoSpaceLeft(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs root, for a file system of its own: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	g := New(Options{Dir: dir, Bundle: func() []byte { return bytes.Repeat([]byte("x"), 200<<10) }, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)})
	defer g.Close()
	spec := Spec{Sandbox: cove.NewSandboxID(), Name: "x"}
	_, err := g.Open(spec)
	if cove.ErrorCode(err) != cove.StorageFull || cove.ErrorHint(err) == "" ||
		!strings.Contains(err.Error(), "no space left") {
		t.Fatalf("%v, a hint %q", err, cove.ErrorHint(err))
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("there is %v, %v", left, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	w, err := g.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}
