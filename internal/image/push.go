package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/files"
	layerfiles "github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/version"
)

// PushOptions configure Push.
type PushOptions struct {
	Progress Progress // may be nil
	// Insecure allows plain HTTP to a registry that is not on loopback.
	Insecure bool
}

// Pushed is an image as a registry has it.
type Pushed struct {
	Name   string `json:"name"`   // "HOST/NAME:TAG", as users write it
	Digest string `json:"digest"` // of its manifest, "sha256:…"
	Layers int    `json:"layers"`
}

// Push sends an image to a registry, under a name: its own, where as is empty. It has the layers of Save, compressed,
// which depend on the image alone: those that the registry has already are not sent.
//
// Errors: InvalidArgument (no name of a registry), ImageMissing, Unsupported, Unauthenticated, Forbidden (plain HTTP,
// an address that is not permitted for a registry), Overloaded, Unavailable, StorageFull, Canceled.
func (b Builds) Push(ctx context.Context, ref, as string, o PushOptions) (Pushed, error) {
	to, err := destination(ref, as, o.Insecure)
	if err != nil {
		return Pushed{}, err
	}
	base, release, err := b.Base(ctx, ref)
	if err != nil {
		return Pushed{}, err
	}
	defer release()
	if base.Digest == "" {
		return Pushed{}, cove.Errorf(cove.Unsupported, "%s is no image that can be pushed", ref)
	}
	room, done, err := b.Room(ctx)
	if err != nil {
		return Pushed{}, err
	}
	defer done()
	parts, err := b.parts(base)
	if err != nil {
		return Pushed{}, storage(err, "read the image")
	}
	g := newGuard(to.Context().RegistryStr(), o.Insecure)
	defer g.closeIdle()
	if err := b.tryToPush(ctx, to, g); err != nil { // before the work
		return Pushed{}, explain(ctx, to, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := packing{dir: room, from: b.Files(), report: oneAtATime(o.Progress), stall: b.store.patience.stall, fail: cancel}
	img, err := p.image(ctx, base.Config, parts)
	if err != nil {
		return Pushed{}, err
	}
	err = remote.Write(to, img, remote.WithContext(ctx), remote.WithTransport(g),
		remote.WithAuthFromKeychain(b.store.keychain), remote.WithUserAgent("cove/"+version.Version),
		remote.WithJobs(parallel), remote.WithRetryBackoff(b.store.patience.backoff()))
	if err != nil {
		return Pushed{}, explain(ctx, to, cause(ctx, err))
	}
	digest, err := img.Digest()
	return Pushed{Name: familiar(canonical(to)), Digest: digest.String(), Layers: len(parts)}, err
}

// tryToPush asks a registry whether it is there, and for a token to push with where it gives out tokens.
func (b Builds) tryToPush(ctx context.Context, to name.Reference, through http.RoundTripper) error {
	who, err := b.store.keychain.Resolve(to.Context())
	if err == nil {
		_, err = transport.NewWithContext(ctx, to.Context().Registry, who, through, []string{to.Scope(transport.PushScope)})
	}
	return err
}

// destination returns the name in a registry under which an image is pushed.
func destination(ref, as string, insecure bool) (name.Reference, error) {
	if as == "" {
		as = ref
	}
	t, err := parse(as)
	if err != nil {
		return nil, err
	}
	tag, ok := t.name.(name.Tag)
	if !ok || t.kind != fromRef {
		return nil, cove.Errorf(cove.InvalidArgument, "%.200q is no name under which a registry could have it", as).
			WithHint("write where it goes: cove image push %.80s HOST/NAME:TAG", ref)
	}
	if !insecure {
		return tag, nil
	}
	to, err := name.NewTag(tag.Name(), name.Insecure)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %w", t, err)
	}
	return to, nil
}

// packing makes compressed layers, in files of a directory.
type packing struct {
	dir    string
	from   *files.Files
	report Progress
	stall  time.Duration           // of a registry that takes nothing
	fail   context.CancelCauseFunc // ends the push then
}

// image compresses the layers of an image, a few at a time, and describes it.
func (p packing) image(ctx context.Context, c v1.ConfigFile, parts []part) (v1.Image, error) {
	all := make([]*packed, len(parts))
	several, within := errgroup.WithContext(ctx)
	several.SetLimit(parallel)
	for i := range parts {
		several.Go(func() (err error) {
			all[i], err = p.layer(within, &parts[i], Event{Stage: Pack, Layer: i, Layers: len(parts), Total: -1})
			return err
		})
	}
	if err := several.Wait(); err != nil {
		return nil, cause(ctx, storage(err, "compress the image"))
	}
	config, err := json.Marshal(configOf(c, parts))
	if err != nil {
		return nil, err
	}
	d := hashOf(config)
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: []v1.Descriptor{},
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: d, Size: int64(len(config))}}
	layers := map[v1.Hash]*packed{}
	for _, l := range all {
		layers[l.digest] = l
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCILayer, Digest: l.digest, Size: l.size})
	}
	manifest, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(packedImage{config, manifest, layers})
}

// layer compresses a layer, and sets the part's digest and size.
func (p packing) layer(ctx context.Context, of *part, e Event) (*packed, error) {
	if err := layerfiles.Spare(p.dir); err != nil {
		return nil, err
	}
	p.report(e)
	f, err := os.Create(filepath.Join(p.dir, strconv.Itoa(e.Layer)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, inside, size, taken := sha256.New(), sha256.New(), counted{}, counted{}
	z := gzip.NewWriter(io.MultiWriter(f, inside, &size))
	err = p.from.Write(ctx, io.MultiWriter(z, plain, &taken), of.dir)
	if err = errors.Join(err, z.Close(), f.Close()); err != nil {
		return nil, err
	}
	of.digest, of.size = hashIn(plain.Sum(nil)), taken.bytes
	e.Done, e.Total = taken.bytes, taken.bytes
	p.report(e)
	l := &packed{packing: p, file: f.Name(), digest: hashIn(inside.Sum(nil)), size: size.bytes, event: e}
	l.event.Stage, l.event.Done, l.event.Total, l.event.Digest = Upload, 0, size.bytes, l.digest.String()
	return l, nil
}

func hashIn(sum []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum)} }

// packed is a compressed layer. It implements partial.CompressedLayer.
type packed struct {
	packing
	file   string
	digest v1.Hash
	size   int64
	event  Event // of its upload
}

func (l *packed) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l *packed) Size() (int64, error)                { return l.size, nil }
func (l *packed) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// Compressed opens the layer to be sent. The push ends where nothing of it is read for long.
func (l *packed) Compressed() (io.ReadCloser, error) {
	f, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	stalled := time.AfterFunc(l.stall, func() {
		l.fail(cove.Errorf(cove.Unavailable, "the registry took nothing for %v", l.stall))
	})
	body := l.report.reader(readerFunc(func(buf []byte) (int, error) {
		n, err := f.Read(buf)
		if stalled.Reset(l.stall); err != nil {
			stalled.Stop()
		}
		return n, err
	}), l.event)
	return sending{body, func() error { stalled.Stop(); return f.Close() }}, nil
}

// sending is a layer on its way.
type sending struct {
	io.Reader
	close func() error
}

func (s sending) Close() error { return s.close() }

// packedImage implements partial.CompressedImageCore.
type packedImage struct {
	config, manifest []byte
	layers           map[v1.Hash]*packed
}

func (i packedImage) RawConfigFile() ([]byte, error)      { return i.config, nil }
func (i packedImage) RawManifest() ([]byte, error)        { return i.manifest, nil }
func (i packedImage) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (i packedImage) LayerByDigest(d v1.Hash) (partial.CompressedLayer, error) {
	return i.layers[d], nil
}
