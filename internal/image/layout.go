package image

import (
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// loadLayout loads a content from an OCI layout (image-spec, image-layout.md).
func loadLayout(ctx context.Context, from namedFiles, tag string, p v1.Platform,
	limits unpack.Limits) (*content, error) {
	raw, err := readSmall(from, "index.json", maxManifest)
	if err != nil {
		return nil, err
	}
	var idx v1.IndexManifest
	if err := json.Unmarshal(raw, &idx); err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "index.json is not readable: %w", err)
	}
	top, err := tagged(idx, tag)
	if err != nil {
		return nil, err
	}
	blobs := layoutBlobs{files: from}
	if top == nil { // one image for several platforms, listed directly
		blobs.index = raw
		top = &v1.Descriptor{MediaType: types.OCIImageIndex, Size: int64(len(raw)), Digest: hashOf(raw)}
	}
	if err := validDescriptor(*top); err != nil {
		return nil, err
	}
	return load(ctx, blobs, *top, p, limits)
}

const (
	refAnnotation        = "org.opencontainers.image.ref.name"
	containerdAnnotation = "io.containerd.image.name"
)

// tagged returns the image of a layout by its tag, or the only one; nil means the index itself.
func tagged(idx v1.IndexManifest, tag string) (*v1.Descriptor, error) {
	var tags []string
	images := 0
	for _, d := range idx.Manifests {
		names := []string{d.Annotations[refAnnotation], d.Annotations[containerdAnnotation]}
		if tag != "" && slices.Contains(names, tag) || d.Digest.String() == tag {
			return &d, nil
		}
		if d.MediaType.IsImage() || d.MediaType.IsIndex() {
			images++
		}
		for _, n := range names {
			if n != "" && !slices.Contains(tags, n) {
				tags = append(tags, n)
			}
		}
	}
	switch {
	case tag != "":
		return nil, cove.Errorf(cove.NotFound, "no image is tagged %.100q in it, only %.300q", tag, tags)
	case len(idx.Manifests) == 1:
		return &idx.Manifests[0], nil
	case images == 0:
		return nil, cove.Errorf(cove.InvalidArgument, "there is no image in it")
	case len(tags) > 1:
		return nil, cove.Errorf(cove.InvalidArgument, "there are several images in it: %.300q",
			tags).WithHint("write oci:PATH:TAG")
	}
	return nil, nil
}

// layoutBlobs reads blobs by digest. Digests have been validated, so they are safe names.
type layoutBlobs struct {
	files namedFiles
	index []byte // in place of a manifest, the index itself
}

func (l layoutBlobs) manifest(_ context.Context, d v1.Descriptor) ([]byte, error) {
	if l.index != nil && d.MediaType == types.OCIImageIndex && d.Digest == hashOf(l.index) {
		return l.index, nil
	}
	return readSmall(l.files, "blobs/sha256/"+d.Digest.Hex, maxManifest)
}

func (l layoutBlobs) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	rc, _, err := l.files.open("blobs/sha256/" + d.Digest.Hex)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the blob %s is missing in it: %w", d.Digest, err)
	}
	return rc, nil
}

// saved is one image in the manifest.json of "docker save".
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// loadDockerArchive loads a content from the output of "docker save".
func loadDockerArchive(from namedFiles, tag string, p v1.Platform) (*content, error) {
	raw, err := readSmall(from, "manifest.json", maxManifest)
	if err != nil {
		return nil, err
	}
	var images []saved
	if err := json.Unmarshal(raw, &images); err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "manifest.json is not readable: %w", err)
	}
	img, err := pick(images, tag)
	if err != nil {
		return nil, err
	}
	config, err := readSmall(from, img.Config, maxConfig)
	if err != nil {
		return nil, err
	}
	c := &content{}
	if err := c.setConfig(config, p, len(img.Layers)); err != nil {
		return nil, err
	}
	for i, file := range img.Layers {
		_, size, err := from.open(file)
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the layer %.200q is missing in it: %w", file, err)
		}
		c.layers = append(c.layers, layer{
			size: size, diffID: c.config.RootFS.DiffIDs[i].String(), kind: unpack.Layer,
			open: func(context.Context) (io.ReadCloser, error) {
				rc, _, err := from.open(file)
				return rc, err
			},
		})
	}
	return c, nil
}

func pick(images []saved, tag string) (saved, error) {
	if tag == "" {
		if len(images) == 1 {
			return images[0], nil
		}
		var all []string
		for _, img := range images {
			all = append(all, img.RepoTags...)
		}
		return saved{}, cove.Errorf(cove.InvalidArgument, "there are %d images in it: %.300q", len(images), all).
			WithHint("write docker-archive:PATH:NAME:TAG")
	}
	want, err := name.NewTag(tag)
	if err != nil {
		return saved{}, cove.Errorf(cove.InvalidArgument, "%.200q is not a tag", tag)
	}
	for _, img := range images {
		for _, t := range img.RepoTags {
			if have, err := name.NewTag(t); err == nil && have.Name() == want.Name() {
				return img, nil
			}
		}
	}
	return saved{}, cove.Errorf(cove.NotFound, "no image is tagged %.200q in it", tag)
}
