//go:build linux

package daemon_test

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/image"
)

// TestImagesLeaveTheFloor: an image is not unpacked into what Cove leaves free of the host's disk, and one that did not
// fit leaves nothing.
func TestImagesLeaveTheFloor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a file system of its own needs root")
	}
	const mib = 1 << 20
	cfg := settings(t)
	if err := os.Mkdir(cfg.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", cfg.Home, "tmpfs", 0, "size=400m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(cfg.Home, 0) })
	free := func() int64 {
		var st unix.Statfs_t
		if err := unix.Statfs(cfg.Home, &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Bavail) * st.Bsize
	}
	store, err := daemon.OpenImages(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	before := free()
	for _, size := range []int64{390 * mib, 64 * mib} {
		fits := size == 64*mib
		path := filepath.Join(t.TempDir(), "root.tar")
		f, err := os.Create(path)
		w := tar.NewWriter(f)
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "bin/sh", Mode: 0o755, Size: size}))
		if err == nil {
			_, err = io.CopyN(w, rand.Reader, size)
		}
		if err = errors.Join(err, w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = store.Import(t.Context(), "tar:"+path, "big", image.ImportOptions{})
		switch {
		case fits && err != nil:
			t.Errorf("%d MiB: %v", size/mib, err)
		case !fits && (cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(err.Error(), "leaves 20 alone")):
			t.Errorf("%d MiB: %v", size/mib, err)
		case !fits && free() < before-mib:
			t.Errorf("%d MiB of what did not fit are left", (before-free())/mib)
		}
	}
}
