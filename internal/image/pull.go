package image

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
	"github.com/cove-sandbox/cove/internal/version"
)

// PullOptions configure Pull.
type PullOptions struct {
	Progress Progress // may be nil
	Platform string   // "linux/arm64"; empty is this machine's
	// Insecure allows plain HTTP to a registry that is not on loopback.
	Insecure bool
}

// Pull downloads an image from its registry into the store and gives it the requested name. It checks manifests,
// configuration and layers against their digests before unpacking. If the name exists already, Pull asks the registry
// again and moves the name if the registry's has moved.
//
// Errors: InvalidArgument, ImageMissing, Unauthenticated, Unsupported (the platform, or a kind of image), Corrupt (a
// digest does not match), TooLarge, Forbidden (plain HTTP, an address that is not permitted for a registry),
// Overloaded, Unavailable, StorageFull, Canceled.
func (s *Store) Pull(ctx context.Context, ref string, o PullOptions) (Image, error) {
	t, err := parse(ref)
	if err != nil {
		return Image{}, err
	}
	if ref == "" {
		return Image{}, cove.Errorf(cove.InvalidArgument,
			"no image was named").WithHint("write NAME[:TAG] or HOST/NAME[:TAG], such as debian:stable-slim")
	}
	if t.kind != fromRef {
		return Image{}, cove.Errorf(cove.InvalidArgument, "%s is not in a registry", t).WithHint("use \"cove image import\"")
	}
	p, err := parsePlatform(o.Platform)
	if err != nil {
		return Image{}, err
	}
	r, err := s.connect(ctx, t, o)
	if err != nil {
		return Image{}, err
	}
	defer r.close()
	c, err := r.find(ctx, p, s.limits)
	if err != nil {
		return Image{}, about(t.String(), explain(ctx, t.name, err))
	}
	report := oneAtATime(o.Progress)
	c.begin = func(ctx context.Context, dir string) func() { return r.download(ctx, dir, c, report) }
	digest, err := s.add(ctx, c, t.String(), report, func(i *index) { i.name(t, c) })
	if err != nil {
		return Image{}, about(t.String(), err)
	}
	return s.Get(ctx, digest)
}

// name records the name of a pulled image. The digests of its manifests find it too, as long as it has another name.
func (i *index) name(t target, c *content) {
	for _, alias := range c.aliases {
		ref := canonical(t.name.Context().Digest(alias))
		if n, ok := i.Names[ref]; !ok || n.Implied {
			i.Names[ref] = named{Digest: c.digest, Implied: true}
		}
	}
	i.Names[t.ref] = named{Digest: c.digest}
}

// upstream is the source of one pulled image.
type upstream struct {
	ref      name.Reference
	puller   *remote.Puller
	top      *remote.Descriptor // of ref, once it was found
	patience patience
	close    func()
}

func (s *Store) connect(ctx context.Context, t target, o PullOptions) (*upstream, error) {
	ref := t.name
	if o.Insecure {
		var err error
		if ref, err = name.ParseReference(t.name.Name(), name.Insecure); err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "%s: %w", t, err)
		}
	}
	g := newGuard(ref.Context().RegistryStr(), o.Insecure)
	puller, err := remote.NewPuller(
		remote.WithContext(ctx), remote.WithTransport(g), remote.WithAuthFromKeychain(s.keychain),
		remote.WithUserAgent("cove/"+version.Version), remote.WithJobs(parallel),
		remote.WithRetryBackoff(s.patience.backoff()))
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "reach the registry: %w", err)
	}
	return &upstream{ref: ref, puller: puller, patience: s.patience, close: g.closeIdle}, nil
}

// find requests the manifest and follows it to the image.
func (r *upstream) find(ctx context.Context, p v1.Platform, limits unpack.Limits) (c *content, err error) {
	if r.top, err = r.puller.Get(ctx, r.ref); err != nil {
		return nil, err
	}
	return load(ctx, r, r.top.Descriptor, p, limits)
}

func (r *upstream) manifest(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	if d.Digest == r.top.Digest {
		return r.top.Manifest, nil
	}
	got, err := r.puller.Get(ctx, r.ref.Context().Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	return got.Manifest, nil
}

// blob ignores addresses of layers in a manifest: the user named one registry.
func (r *upstream) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	l, err := r.puller.Layer(ctx, r.ref.Context().Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	return l.Compressed()
}

// download fetches a content's layers into a directory, a few at a time, and makes each layer's open wait for its file.
// The returned function waits for all downloads to end.
func (r *upstream) download(ctx context.Context, dir string, c *content, report Progress) func() {
	var inOrder []*download
	byDigest := map[string]*download{}
	for i := range c.layers {
		l := &c.layers[i]
		d := byDigest[l.digest]
		if d == nil {
			d = &download{layer: *l, file: filepath.Join(dir, strings.TrimPrefix(l.digest, "sha256:")),
				ready: make(chan struct{}),
				event: Event{Stage: Download, Layer: i, Layers: len(c.layers), Digest: l.digest, Total: l.size}}
			report(d.event) // announces all layers at the beginning
			byDigest[l.digest] = d
			inOrder = append(inOrder, d)
		} else {
			d.keep = true // the same layer twice, as empty ones often are
		}
		l.open = d.open
	}
	var all sync.WaitGroup
	all.Go(func() {
		var few errgroup.Group
		few.SetLimit(parallel)
		for _, d := range inOrder {
			few.Go(func() error { d.run(ctx, r, report); return nil })
		}
		few.Wait()
	})
	return all.Wait
}

type download struct {
	layer layer
	file  string
	keep  bool // for another layer of the same digest
	event Event
	ready chan struct{} // closed when err is set or the file is complete
	err   error
}

func (d *download) run(ctx context.Context, r *upstream, report Progress) {
	defer close(d.ready)
	if err := d.retry(ctx, r.patience, report); err != nil {
		d.err = explain(ctx, r.ref, err)
	}
}

func (d *download) retry(ctx context.Context, p patience, report Progress) error {
	pause := p.pause
	for attempt := 1; ; attempt++ {
		err := d.once(ctx, p, report)
		if err == nil || attempt >= p.attempts || ctx.Err() != nil || !worthRetrying(err) {
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 3
		case <-ctx.Done():
			return err
		}
	}
}

// worthRetrying distinguishes a broken connection from an answer.
func worthRetrying(err error) bool {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return answer.Temporary()
	}
	_, known := errors.AsType[*cove.Error](err)
	return !known
}

// once tries to download the whole layer, and checks it before it is read.
func (d *download) once(ctx context.Context, p patience, report Progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(p.stall, func() {
		cancel(cove.Errorf(cove.Unavailable, "the registry sent nothing for %v", p.stall))
	})
	defer stalled.Stop()
	rc, err := d.layer.open(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	defer rc.Close()
	f, err := os.OpenFile(d.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return storage(err, "store a layer")
	}
	defer f.Close()
	body := report.reader(readerFunc(func(buf []byte) (int, error) {
		n, err := rc.Read(buf)
		if n > 0 {
			stalled.Reset(p.stall)
		}
		return n, err
	}), d.event)
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, verify(body, "layer", d.layer.digest, d.layer.size),
		make([]byte, 256<<10))
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return storage(err, "store a layer")
	}
	return cause(ctx, err)
}

// cause returns the cause of a context's end in preference to its effect on a connection.
func cause(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*cove.Error](context.Cause(ctx)); ok && err != nil {
		return known
	}
	return err
}

// open waits for the file, and unlinks it unless it is to be kept: unpacking the layer then frees its space.
func (d *download) open(ctx context.Context) (io.ReadCloser, error) {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.err != nil {
		return nil, d.err
	}
	f, err := os.Open(d.file)
	if err != nil {
		return nil, storage(err, "read a layer")
	}
	if !d.keep {
		_ = os.Remove(d.file) // otherwise removed with its directory
	}
	return f, nil
}

// backoff is the patience with single requests.
func (p patience) backoff() remote.Backoff {
	return remote.Backoff{Duration: p.pause, Factor: 3, Jitter: 0.1, Steps: p.attempts}
}

// explain gives a network error a code and a hint.
func explain(ctx context.Context, ref name.Reference, err error) error {
	if known, ok := errors.AsType[*cove.Error](err); ok {
		return known
	}
	if ctx.Err() != nil {
		return cove.Errorf(cove.Canceled, "the transfer was canceled: %w", ctx.Err())
	}
	// The library reports these errors without a type.
	if strings.Contains(err.Error(), "does not match requested digest") {
		return mismatch("manifest", ref.Identifier(), "another")
	}
	host := ref.Context().RegistryStr()
	answer, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return cove.Errorf(cove.Unavailable, "the registry %s cannot be reached: %w", host, err).
			WithHint("check the name, the network and HTTPS_PROXY; a registry that speaks plain HTTP needs " +
				"--insecure")
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return cove.Errorf(cove.Unauthenticated, "the registry %s refuses: %w", host, err).
			WithHint("the name may be wrong, or the image private: log in with \"docker login %s\"", host)
	case http.StatusNotFound:
		return cove.Errorf(cove.ImageMissing, "the registry %s has no such image: %w", host,
			err).WithHint("check its name and tag")
	case http.StatusTooManyRequests:
		return cove.Errorf(cove.Overloaded, "the registry %s wants fewer requests: %w", host,
			err).WithHint("try again later, or log in")
	}
	return cove.Errorf(cove.Unavailable, "the registry %s answers: %w", host, err)
}
