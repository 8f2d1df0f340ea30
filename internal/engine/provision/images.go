package provision

import (
	"context"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Images resolves references of images to root filesystems.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Rootfs, error)
	// Hold keeps an image from being removed until release is called.
	Hold(ctx context.Context, digest string) (release func(), err error)
}

// Rootfs resolves an image for an engine, and holds the image until release is called. An engine that stores images
// itself resolves its own references, unless the reference names another place.
func Rootfs(ctx context.Context, images Images, eng engine.Engine,
	ref string) (root engine.Rootfs, release func(), err error) {
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
	for range 2 { // it may make room for another between the two calls; then it comes back
		if root, err = images.Resolve(ctx, ref); err == nil && root.Digest != "" {
			release, err = images.Hold(ctx, root.Digest)
		}
		if cove.ErrorCode(err) != cove.ImageMissing {
			break
		}
	}
	return root, release, err
}
