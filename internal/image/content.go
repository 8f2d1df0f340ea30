package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// Limits of manifests and configurations, far above real sizes.
const (
	maxManifest = 4 << 20
	maxConfig   = 8 << 20
	maxLayers   = 1000
)

// content is an image on its way into the store, the common form of every source. No layer has been unpacked yet.
type content struct {
	digest  string // of the image, "sha256:…"; empty for a directory until it was read
	config  v1.ConfigFile
	raw     []byte // config as it came; nil for a plain tree
	layers  []layer
	aliases []string // digests of the manifests that led to it
	plain   bool     // a plain tree: it must look like a root filesystem
	// begin starts to fetch the layers into a directory; end waits for them.
	begin func(ctx context.Context, dir string) (end func())
}

// layer is one archive of an image.
type layer struct {
	digest string // of the bytes of open; empty when only diffID is known
	size   int64  // of the same; -1 when unknown
	diffID string // of the uncompressed bytes; empty when only digest is known
	kind   unpack.Kind
	open   func(ctx context.Context) (io.ReadCloser, error)
}

// blobs is a source of manifests and blobs: a registry or an OCI layout.
type blobs interface {
	// manifest returns the bytes of a manifest; the caller checks its digest.
	manifest(ctx context.Context, d v1.Descriptor) ([]byte, error)
	// blob opens a blob; the caller checks its digest.
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// load follows a manifest, or an index by platform, to a content.
func load(ctx context.Context, from blobs, top v1.Descriptor, p v1.Platform, limits unpack.Limits) (*content, error) {
	c := &content{}
	for range 3 { // an index may list indexes; real ones do not nest deeper
		raw, err := readManifest(ctx, from, top)
		if err != nil {
			return nil, err
		}
		c.aliases = append(c.aliases, top.Digest.String())
		if !isIndex(top.MediaType, raw) {
			return c, c.loadImage(ctx, from, raw, p, limits)
		}
		if top, err = choose(raw, p); err != nil {
			return nil, err
		}
	}
	return nil, cove.Errorf(cove.InvalidArgument, "the image's indexes are nested too deeply")
}

func readManifest(ctx context.Context, from blobs, d v1.Descriptor) ([]byte, error) {
	if d.Size > maxManifest {
		return nil, cove.Errorf(cove.TooLarge, "a manifest of %d bytes: at most %d are allowed", d.Size, maxManifest)
	}
	raw, err := from.manifest(ctx, d)
	if err != nil {
		return nil, err
	}
	if got := hashOf(raw); got != d.Digest {
		return nil, mismatch("manifest", d.Digest.String(), got.String())
	}
	return raw, nil
}

func hashOf(raw []byte) v1.Hash {
	sum := sha256.Sum256(raw)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

func isIndex(mediaType types.MediaType, raw []byte) bool {
	if mediaType.IsIndex() {
		return true
	}
	var probe struct {
		Manifests []json.RawMessage `json:"manifests"`
		Config    json.RawMessage   `json:"config"`
	}
	return !mediaType.IsImage() && json.Unmarshal(raw, &probe) == nil && probe.Manifests != nil && probe.Config == nil
}

// choose returns a platform's manifest from an index.
func choose(raw []byte, p v1.Platform) (v1.Descriptor, error) {
	var idx v1.IndexManifest
	if err := json.Unmarshal(raw, &idx); err != nil {
		return v1.Descriptor{}, cove.Errorf(cove.InvalidArgument, "the image's index is not readable: %w", err)
	}
	var others []string
	for _, d := range idx.Manifests {
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
			continue
		}
		if d.Platform == nil && len(idx.Manifests) > 1 {
			continue
		}
		if d.Platform == nil || d.Platform.Satisfies(p) {
			return d, validDescriptor(d)
		}
		if d.Platform.OS != "unknown" { // attestations
			others = append(others, d.Platform.String())
		}
	}
	return v1.Descriptor{}, wrongPlatform(p, others...)
}

func wrongPlatform(want v1.Platform, have ...string) error {
	slices.Sort(have)
	return cove.Errorf(cove.Unsupported, "the image is not made for %s, only for %.200q", want, slices.Compact(have)).
		WithHint("choose another image, or one of those with --platform if this machine can run it")
}

func validDescriptor(d v1.Descriptor) error {
	if !validDigest(d.Digest.String()) {
		return cove.Errorf(cove.Unsupported, "digest %.80q: only SHA-256 is understood", d.Digest)
	}
	if d.Size < 0 {
		return cove.Errorf(cove.InvalidArgument, "the image's manifest gives a negative size")
	}
	return nil
}

func (c *content) loadImage(ctx context.Context, from blobs, raw []byte, p v1.Platform, limits unpack.Limits) error {
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return cove.Errorf(cove.InvalidArgument, "the image's manifest is not readable: %w", err)
	}
	if m.SchemaVersion != 2 || m.Config.Digest.Hex == "" {
		return cove.Errorf(cove.Unsupported, "not an image that can run: its manifest has no configuration")
	}
	if err := validDescriptor(m.Config); err != nil {
		return err
	}
	if m.Config.Size > maxConfig {
		return cove.Errorf(cove.TooLarge, "a configuration of %d bytes: at most %d are allowed", m.Config.Size, maxConfig)
	}
	rc, err := from.blob(ctx, m.Config)
	if err != nil {
		return err
	}
	config, err := io.ReadAll(verify(rc, "configuration", m.Config.Digest.String(), m.Config.Size))
	rc.Close()
	if err != nil {
		return err
	}
	if err := c.setConfig(config, p, len(m.Layers)); err != nil {
		return err
	}
	return c.setLayers(from, m.Layers, limits)
}

// setConfig applies the configuration, which identifies the image and its layers.
func (c *content) setConfig(raw []byte, p v1.Platform, layers int) error {
	if err := json.Unmarshal(raw, &c.config); err != nil {
		return cove.Errorf(cove.InvalidArgument, "the image's configuration is not readable: %w", err)
	}
	c.digest, c.raw = hashOf(raw).String(), raw
	if layers > maxLayers {
		return cove.Errorf(cove.TooLarge, "%d layers: at most %d are allowed", layers, maxLayers)
	}
	if n := len(c.config.RootFS.DiffIDs); n != layers {
		return cove.Errorf(cove.InvalidArgument, "not an image that can run: %d layers, but its configuration names %d",
			layers, n)
	}
	have := c.platform()
	if have.OS == "" && have.Architecture == "" {
		return nil // made by hand, without a platform
	}
	want := v1.Platform{OS: p.OS, Architecture: p.Architecture} // the index selects variants
	if !have.Satisfies(want) {
		return wrongPlatform(p, have.String())
	}
	return nil
}

// platform is the configuration's; empty when it states none.
func (c *content) platform() v1.Platform {
	return v1.Platform{OS: c.config.OS, Architecture: c.config.Architecture, Variant: c.config.Variant}
}

func (c *content) setLayers(from blobs, descs []v1.Descriptor, limits unpack.Limits) error {
	var total int64
	for i, d := range descs {
		if err := validDescriptor(d); err != nil {
			return err
		}
		if !isLayer(d.MediaType) {
			return cove.Errorf(cove.Unsupported, "a layer of type %.100q is not read", d.MediaType)
		}
		if d.Size > limits.Bytes || total+d.Size > limits.Bytes {
			return cove.Errorf(cove.TooLarge, "the image's layers have more than %d bytes", limits.Bytes)
		}
		total += d.Size
		c.layers = append(c.layers, layer{
			digest: d.Digest.String(), size: d.Size, diffID: c.config.RootFS.DiffIDs[i].String(), kind: unpack.Layer,
			open: func(ctx context.Context) (io.ReadCloser, error) { return from.blob(ctx, d) },
		})
	}
	return nil
}

func isLayer(t types.MediaType) bool {
	return t.IsLayer() && !strings.Contains(string(t), "encrypted") || t == types.OCILayerZStd
}

func hostPlatform() v1.Platform {
	return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
}

// parsePlatform parses "linux/arm64"; "" is this machine's platform.
func parsePlatform(s string) (v1.Platform, error) {
	if s == "" {
		return hostPlatform(), nil
	}
	p, err := v1.ParsePlatform(s)
	if err != nil || p.OS != "linux" || p.Architecture == "" {
		return v1.Platform{}, cove.Errorf(cove.InvalidArgument, "%.80q is not a platform", s).
			WithHint("write linux/amd64 or linux/arm64")
	}
	return *p, nil
}

// verify returns a reader that fails before reporting the end unless the bytes have this size and digest.
func verify(r io.Reader, what, digest string, size int64) io.Reader {
	return &verified{r: r, what: what, want: digest, size: size, hash: sha256.New()}
}

type verified struct {
	r          io.Reader
	what, want string
	size, n    int64
	hash       hash.Hash
}

func (v *verified) Read(p []byte) (int, error) {
	if v.n == v.size {
		return 0, v.end()
	}
	if left := v.size - v.n; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := v.r.Read(p)
	v.n += int64(n)
	v.hash.Write(p[:n])
	switch {
	case v.n == v.size:
		return n, nil // the next Read checks the end
	case err == io.EOF:
		return n, fmt.Errorf("the %s ends after %d of %d bytes: %w", v.what, v.n, v.size, io.ErrUnexpectedEOF)
	}
	return n, err
}

// end compares before it reads further: the source may check too, with a less specific error.
func (v *verified) end() error {
	if got := "sha256:" + hex.EncodeToString(v.hash.Sum(nil)); got != v.want {
		return mismatch(v.what, v.want, got)
	}
	var one [1]byte
	switch n, err := io.ReadFull(v.r, one[:]); {
	case n > 0:
		return cove.Errorf(cove.Corrupt, "the %s is longer than the %d bytes it should have; it was refused", v.what, v.size)
	case err != io.EOF:
		return err
	}
	return io.EOF
}

func mismatch(what, want, got string) error {
	return cove.Errorf(cove.Corrupt, "the %s does not match its digest (want %s, got %s); it was refused",
		what, want, got).
		WithHint("the source is damaged or was tampered with: do not trust it")
}

// readerFunc is an io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// withContext ends a long read with its context.
func withContext(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, cove.Errorf(cove.Canceled, "reading was canceled: %w", err)
		}
		return r.Read(p)
	})
}

// written returns what write writes, beside the caller.
func written(write func(io.Writer) error) io.ReadCloser {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(write(pw))
	}()
	return &pipe{pr, done}
}

// pipe waits, when closed, for its writer.
type pipe struct {
	*io.PipeReader
	done <-chan struct{}
}

func (p *pipe) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}
