package sandbox

import (
	"context"
	"strings"

	"github.com/cove-sandbox/cove/internal/engine"
)

// rootfs resolves an image for an engine and holds it until release is called.
// An engine that holds images itself is asked by its own references, unless
// the reference names another place.
func (m *Manager) rootfs(ctx context.Context, eng engine.Engine, ref string) (root engine.Rootfs, release func(), err error) {
	release = func() {}
	if ref == "" || ref == "host" {
		return engine.Rootfs{Kind: engine.RootfsHost}, release, nil
	}
	scheme, _, _ := strings.Cut(ref, ":")
	elsewhere := scheme == "dir" || scheme == "tar" || scheme == "oci" || scheme == "docker-archive"
	if eng.Capabilities().OwnImages && !elsewhere {
		if own, ok := eng.(engine.Resolver); ok {
			root, err = own.Resolve(ctx, ref)
			return root, release, err
		}
		return engine.Rootfs{Kind: engine.RootfsImage, Image: ref}, release, nil
	}
	if root, err = m.o.Images.Resolve(ctx, ref); err == nil && root.Digest != "" {
		release, err = m.o.Images.Hold(ctx, root.Digest)
	}
	return root, release, err
}
