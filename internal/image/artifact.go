package image

import (
	"bytes"
	"context"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cove-sandbox/cove"
)

// Artifact downloads the only layer, of at most limit bytes, of an artifact of a registry that is no image, such as a
// feature of dev containers. The store, whose way to registries it takes, does not keep it. Errors: those of Pull, and
// InvalidArgument for an artifact with several layers.
func Artifact(ctx context.Context, s *Store, ref string, limit int64) (digest string, data []byte, err error) {
	t, err := parse(ref)
	if err == nil && t.kind != fromRef {
		err = cove.Errorf(cove.InvalidArgument, "%s is not in a registry", t)
	}
	if err != nil {
		return "", nil, err
	}
	r, err := s.connect(ctx, t, PullOptions{})
	if err != nil {
		return "", nil, err
	}
	defer r.close()
	if r.top, err = r.puller.Get(ctx, r.ref); err == nil {
		data, err = r.onlyLayer(ctx, limit)
	}
	if err != nil {
		return "", nil, about(t.String(), explain(ctx, t.name, err))
	}
	return r.top.Digest.String(), data, nil
}

func (r *upstream) onlyLayer(ctx context.Context, limit int64) ([]byte, error) {
	m, err := v1.ParseManifest(bytes.NewReader(r.top.Manifest))
	switch {
	case err != nil:
		return nil, cove.Errorf(cove.InvalidArgument, "its manifest: %w", err)
	case len(m.Layers) != 1:
		return nil, cove.Errorf(cove.InvalidArgument, "it has %d layers, and one is wanted", len(m.Layers))
	case m.Layers[0].Size > limit:
		return nil, cove.Errorf(cove.TooLarge, "it has more than %d MiB", limit>>20)
	}
	layer := m.Layers[0]
	body, err := r.blob(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(verify(body, "layer", layer.Digest.String(), layer.Size))
}
