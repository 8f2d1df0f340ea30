package engine

import (
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
)

// MaxLayers is the most of Rootfs.Layers: the kernel bounds the length of their names together.
const MaxLayers = 80

// Directories of a layer.
const (
	layerUpper = "upper"
	layerWork  = "work"
)

// MakeLayer makes a directory for Template.Layer, without changes yet. On error nothing is left.
func MakeLayer(dir string) (err error) {
	if err = os.Mkdir(dir, 0o700); err != nil {
		return noLayer(err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	for name, mode := range map[string]os.FileMode{layerUpper: 0o755, layerWork: 0o700} {
		path := filepath.Join(dir, name)
		if err = os.Mkdir(path, mode); err == nil {
			err = os.Chmod(path, mode) // independent of the umask
		}
		if err != nil {
			return noLayer(err)
		}
	}
	return nil
}

func noLayer(err error) error {
	return cove.Errorf(cove.StorageFull, "cannot make a layer of a root filesystem: %w", err).
		WithHint("free some space, or choose another home with COVE_HOME")
}

// SealLayer makes a layer one of Rootfs.Layers alone: no Template.Layer any more.
func SealLayer(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, layerWork)); err != nil {
		return cove.Errorf(cove.Internal, "cannot seal a layer of a root filesystem: %w", err)
	}
	return nil
}

// Changes returns the directory of a layer in which an overlay has its changes: files and directories that came or
// changed, devices 0:0 for those that went, and user.overlay.opaque at directories that hide what is below. Programs of
// a sandbox wrote them, and hostile ones.
func Changes(layer string) string { return filepath.Join(layer, layerUpper) }
