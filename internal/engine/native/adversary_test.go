//go:build linux

package native

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/disk"
	"github.com/cove-sandbox/cove/test/adversary"
	"github.com/cove-sandbox/cove/test/debian"
)

// adversaryGroups is the parent of control groups of every process of the suite.
const adversaryGroups = "cove-adversary"

// TestAdversary attacks sandboxes from inside. Each attempt is a subtest.
func TestAdversary(t *testing.T) {
	if os.Geteuid() != 0 && os.Getenv("COVE_ADVERSARY_USER") == "" {
		t.Skip("needs root, or a user as TestAdversaryWithoutRoot has one")
	}
	adversary.Run(t, openShared, adversary.Options{})
}

// TestAdversaryOfPrepared attacks sandboxes that a pool has prepared: from programs in empty ones, and from what their
// parked interpreters become, which were started there or made from a zygote.
func TestAdversaryOfPrepared(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it the pool is that of TestAdversaryWithoutRoot's engine")
	}
	for _, ahead := range []adversary.Ahead{adversary.Empty, adversary.Parked, adversary.Copied} {
		t.Run(string(ahead), func(t *testing.T) {
			adversary.Run(t, openShared, adversary.Options{Ahead: ahead})
		})
	}
}

// adversaryImage names the image of TestAdversaryOfRoot for a user who cannot make one.
const adversaryImage = "COVE_ADVERSARY_IMAGE"

// adversaryRoot returns the directory of the image in which programs are root.
func adversaryRoot(t *testing.T) string {
	if dir := os.Getenv(adversaryImage); dir != "" {
		return dir
	}
	return debian.Root(t)
}

// TestAdversaryOfRoot attacks sandboxes from programs that are root inside. What they change is kept on disks as those
// of long-lived sandboxes, or, without root, in memory.
func TestAdversaryOfRoot(t *testing.T) {
	o := adversary.Options{Root: true, Rootfs: engine.Rootfs{Kind: engine.RootfsDir, Dir: adversaryRoot(t)}}
	if os.Geteuid() == 0 {
		o.Layer = layerOnDisk
	}
	adversary.Run(t, openShared, o)
}

// TestAdversaryOfDebuggers attacks sandboxes whose programs may trace one another, as users of the host's toolchain and
// as root inside.
func TestAdversaryOfDebuggers(t *testing.T) {
	if os.Geteuid() != 0 && os.Getenv(adversaryImage) == "" {
		t.Skip("needs root, or a user as TestAdversaryWithoutRoot has one")
	}
	t.Run("user", func(t *testing.T) { adversary.Run(t, openShared, adversary.Options{Debuggers: true}) })
	t.Run("root", func(t *testing.T) {
		adversary.Run(t, openShared, adversary.Options{Debuggers: true, Root: true,
			Rootfs: engine.Rootfs{Kind: engine.RootfsDir, Dir: adversaryRoot(t)}})
	})
}

// layerOnDisk makes a layer on a file system of its own, whose size is a sandbox's limit.
func layerOnDisk(t testing.TB, l cove.Limits) string {
	t.Helper()
	base, err := os.MkdirTemp("", "cove-layer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	t.Cleanup(func() {
		if err := disk.DropBase(base); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(base, "one")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	i := disk.Image{File: filepath.Join(dir, "disk.img"), Dir: filepath.Join(dir, "disk"), Base: base}
	var templates disk.Templates
	if err := templates.Create(t.Context(), i, disk.Size{Bytes: l.Disk, Inodes: l.Inodes}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Unmount(); err != nil {
			t.Error(err)
		}
	})
	layer := filepath.Join(i.Dir, "layer")
	if err := engine.MakeLayer(layer); err != nil {
		t.Fatal(err)
	}
	return layer
}

// openShared makes an engine whose run directory is the suite's: engines of
// several processes, one of which may have been killed.
func openShared(t testing.TB, state string) engine.Engine {
	t.Helper()
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := instance.Hold(state)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Guest: enginetest.SharedGuest(t, state), RunDir: state, Instance: in.ID,
		CgroupParent: adversaryGroups, Paths: adversary.Rules(state),
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Ready: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		in.Release()
	})
	return e
}
