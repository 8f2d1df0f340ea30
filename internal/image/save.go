package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/files"
	layerfiles "github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Format is the form in which an image is saved.
type Format string

const (
	FormatOCI    Format = "oci"    // an archive of an OCI image layout
	FormatDocker Format = "docker" // the same, which "docker load" reads
)

// Export writes the files of an image into a new directory of the caller's, without owners and special modes of their
// own. Errors: ImageMissing, Conflict (there is something), InvalidArgument (devices and the like).
func (b Builds) Export(ctx context.Context, ref, to string) error {
	base, release, err := b.Base(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	none, done, err := b.Room(ctx)
	if err != nil {
		return err
	}
	defer done()
	if to, err = filepath.Abs(to); err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot make the directory %s: %w", to, err)
	}
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return cove.Errorf(cove.InvalidArgument, "cannot make the directory %s: %w", to, err)
	}
	there, err := os.ReadDir(to)
	if err != nil || len(there) > 0 {
		return cove.Errorf(cove.Conflict, "%s is not an empty directory", to).WithHint("name one that is not there yet")
	}
	from, err := layerfiles.OpenStack(base.Stack)
	if err != nil {
		return err
	}
	defer from.Close()
	all := layerfiles.Copy{From: from, Words: []string{"."}, Dest: "/", Whole: true, Plain: true,
		Owner: new(b.Files().Self())}
	return b.Files().Copy(ctx, all, to, rootfs.Stack{none})
}

// part is a layer as it is saved: all files of a tree, or changes to what is below.
type part struct {
	dir     string
	digest  v1.Hash
	size    int64
	history []v1.History // of it, in which it is the last that is not empty
}

// Save writes an image as an archive, and returns how many layers it has. An image that a build has made has those of
// its base and of its steps; any other has one. The archive depends on these alone. Errors:
// ImageMissing, Unsupported (no image of the store), StorageFull.
func (b Builds) Save(ctx context.Context, w io.Writer, ref string, format Format) (layers int, err error) {
	base, release, err := b.Base(ctx, ref)
	if err != nil {
		return 0, err
	}
	defer release()
	if base.Digest == "" {
		return 0, cove.Errorf(cove.Unsupported, "%s is no image that can be saved", ref)
	}
	parts, err := b.parts(base)
	if err != nil {
		return 0, storage(err, "read the image")
	}
	for i := range parts {
		if err := parts[i].measure(ctx, b.Files()); err != nil {
			return 0, err
		}
	}
	a := archive{tar: tar.NewWriter(w), from: b.Files()}
	if err := a.write(ctx, base.Config, parts, b.tagOf(ref), format); err != nil {
		if errors.Is(err, context.Canceled) {
			return 0, cove.Errorf(cove.Canceled, "saving was canceled: %w", err)
		}
		return 0, storage(err, "save the image")
	}
	return len(parts), nil
}

// tagOf returns the name by which a reference asks for an image, "NAME:TAG"; empty where it is a digest.
func (b Builds) tagOf(ref string) string {
	if t, err := parse(ref); err == nil && t.kind == fromRef && !strings.Contains(t.ref, "@") {
		return familiar(t.ref)
	}
	return ""
}

// parts returns the layers of an image.
func (b Builds) parts(of Base) ([]part, error) {
	img, err := b.store.image(of.Digest)
	if err != nil {
		return nil, err
	}
	history := of.Config.History
	if img.Base == "" && img.Layers == 0 {
		made := []v1.History{{Created: of.Config.Created, CreatedBy: "files of " + of.Digest}}
		return []part{{dir: of.Stack[0], history: made}}, nil
	}
	var all []part
	if img.Base != "" {
		below := Base{Digest: img.Base, Stack: of.Stack[:len(of.Stack)-img.Layers]}
		base, err := b.store.image(img.Base)
		if err == nil {
			below.Config, err = b.config(base)
		}
		if err == nil {
			all, err = b.parts(below)
		}
		if err != nil {
			return nil, err
		}
		history = history[min(len(below.Config.History), len(history)):]
	}
	for i := range img.Layers {
		n := 0
		for n < len(history) && history[n].EmptyLayer {
			n++
		}
		n = min(n+1, len(history))
		all = append(all, part{dir: ownLayer(b.store, img, i), history: history[:n]})
		history = history[n:]
	}
	last := &all[len(all)-1]
	last.history = slices.Concat(last.history, history)
	return all, nil
}

// measure finds the digest and the size of a layer's archive.
func (p *part) measure(ctx context.Context, from *files.Files) error {
	h, n := sha256.New(), counted{}
	if err := from.Write(ctx, io.MultiWriter(h, &n), p.dir); err != nil {
		return err
	}
	p.digest, p.size = v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", h.Sum(nil))}, n.bytes
	return nil
}

type counted struct{ bytes int64 }

func (c *counted) Write(p []byte) (int, error) { c.bytes += int64(len(p)); return len(p), nil }

// archive is an image layout as it is written.
type archive struct {
	tar  *tar.Writer
	from *files.Files
}

func (a archive) write(ctx context.Context, c v1.ConfigFile, parts []part, tag string, format Format) error {
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: []v1.Descriptor{}}
	written := map[v1.Hash]bool{}
	for _, p := range parts {
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: p.digest, Size: p.size})
		if written[p.digest] {
			continue
		}
		written[p.digest] = true
		if err := a.header(blob(p.digest), p.size); err != nil {
			return err
		}
		if err := a.from.Write(ctx, a.tar, p.dir); err != nil {
			return err
		}
	}
	config, err := a.json(configOf(c, parts), types.OCIConfigJSON)
	if err != nil {
		return err
	}
	m.Config = config
	d, err := a.json(m, types.OCIManifestSchema1)
	if err != nil {
		return err
	}
	d.Platform = c.Platform()
	if tag != "" {
		_, version, _ := strings.Cut(tag[strings.LastIndexByte(tag, '/')+1:], ":")
		d.Annotations = map[string]string{"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": version}
	}
	texts := map[string]any{"index.json": v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{d}}, "oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"}}
	names := []string{"index.json", "oci-layout"}
	if format == FormatDocker {
		type saved struct {
			Config   string
			RepoTags []string
			Layers   []string
		}
		s := saved{Config: blob(config.Digest)}
		if tag != "" {
			s.RepoTags = []string{tag}
		}
		for _, p := range parts {
			s.Layers = append(s.Layers, blob(p.digest))
		}
		texts["manifest.json"], names = []saved{s}, append(names, "manifest.json")
	}
	for _, name := range names {
		data, err := json.Marshal(texts[name])
		if err == nil {
			err = a.file(name, data)
		}
		if err != nil {
			return err
		}
	}
	return a.tar.Close()
}

// configOf returns the configuration of an image with other layers.
func configOf(c v1.ConfigFile, parts []part) v1.ConfigFile {
	c.RootFS, c.History = v1.RootFS{Type: "layers"}, nil
	for _, p := range parts {
		c.RootFS.DiffIDs, c.History = append(c.RootFS.DiffIDs, p.digest), append(c.History, p.history...)
	}
	return c
}

func blob(digest v1.Hash) string { return "blobs/sha256/" + digest.Hex }

func (a archive) header(name string, size int64) error {
	return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size,
		Format: tar.FormatPAX})
}

func (a archive) file(name string, data []byte) error {
	if err := a.header(name, int64(len(data))); err != nil {
		return err
	}
	_, err := a.tar.Write(data)
	return err
}

// json writes a value as a blob.
func (a archive) json(value any, kind types.MediaType) (d v1.Descriptor, err error) {
	data, err := json.Marshal(value)
	if err != nil {
		return d, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		return d, err
	}
	return v1.Descriptor{MediaType: kind, Digest: digest, Size: size}, a.file(blob(digest), data)
}
