package devcontainer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/cove-sandbox/cove"
)

// ReadLayout returns the files of an artifact of dev containers in an OCI layout, a directory: of the one with a tag,
// or of the only one. Errors: InvalidArgument, NotFound, Corrupt, TooLarge.
func ReadLayout(layout fs.FS, tag string) (Files, error) {
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	data, err := bounded(layout, "index.json")
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "it is no OCI layout: %w", err)
	}
	var tags []string
	digest := ""
	for _, m := range index.Manifests {
		ref := m.Annotations["org.opencontainers.image.ref.name"]
		if tags = append(tags, ref); tag == ref || tag == "" && len(index.Manifests) == 1 {
			digest = m.Digest
		}
	}
	if digest == "" {
		return nil, cove.Errorf(cove.NotFound, "the layout has %d artifacts, and which is not said", len(tags)).
			WithHint("say which: PATH:TAG, of %s", strings.Join(tags, ", "))
	}
	var manifest struct{ Layers []struct{ Digest string } }
	if data, err = blob(layout, digest); err != nil {
		return nil, err
	}
	if err = json.Unmarshal(data, &manifest); err == nil && len(manifest.Layers) != 1 {
		err = fmt.Errorf("it has %d layers", len(manifest.Layers))
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the artifact %s: %w", digest, err)
	}
	if data, err = blob(layout, manifest.Layers[0].Digest); err != nil {
		return nil, err
	}
	return ReadArchive(data)
}

// blob reads a blob, which is what its digest says. Errors: Corrupt, InvalidArgument, TooLarge.
func blob(layout fs.FS, digest string) ([]byte, error) {
	sum, is := strings.CutPrefix(digest, "sha256:")
	if want, err := hex.DecodeString(sum); !is || err != nil || len(want) != sha256.Size {
		return nil, cove.Errorf(cove.InvalidArgument, "%.100q is no digest by SHA-256", digest)
	}
	data, err := bounded(layout, "blobs/sha256/"+sum)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the layout lacks %s: %w", digest, err)
	}
	if has := sha256.Sum256(data); hex.EncodeToString(has[:]) != sum {
		return nil, cove.Errorf(cove.Corrupt, "the blob %s has other content", digest)
	}
	return data, nil
}

func bounded(of fs.FS, name string) ([]byte, error) {
	f, err := of.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFeatureAll+1))
	if len(data) > maxFeatureAll {
		err = cove.Errorf(cove.TooLarge, "%s has more than %d MiB", name, maxFeatureAll>>20)
	}
	return data, err
}

// MaxArchive is the size of the largest archive of an artifact, in bytes.
const MaxArchive = maxFeatureAll

// ReadArchive returns the files of an artifact of dev containers, whose archive is plain or compressed with gzip.
// Errors: InvalidArgument for anything but files and directories below it, TooLarge.
func ReadArchive(archive []byte) (Files, error) {
	var from io.Reader = bytes.NewReader(archive)
	if bytes.HasPrefix(archive, []byte{0x1f, 0x8b}) {
		var err error
		if from, err = gzip.NewReader(from); err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the archive: %w", err)
		}
	}
	all, total, entries := Files{}, 0, 0
	for t := tar.NewReader(from); ; entries++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the archive: %w", err)
		}
		name := path.Clean(h.Name)
		switch {
		case !fs.ValidPath(name) || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
			return nil, cove.Errorf(cove.InvalidArgument, "the archive has %.200q, which is no file below it", h.Name)
		case entries > 2*maxFiles:
			return nil, cove.Errorf(cove.TooLarge, "the archive has more than %d entries", 2*maxFiles)
		case h.Typeflag == tar.TypeDir:
			continue
		}
		data, err := io.ReadAll(io.LimitReader(t, int64(maxFeatureAll-total+1)))
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the archive: %w", err)
		}
		if total += len(data); total > maxFeatureAll || len(all) == maxFiles {
			return nil, cove.Errorf(cove.TooLarge, "the archive has more than %d MiB or %d files", maxFeatureAll>>20, maxFiles)
		}
		all[name] = data
	}
}
