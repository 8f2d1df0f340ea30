package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// located is an archive or layout on disk.
type located struct {
	kind kind
	path string // resolved and checked
	tag  string
	dir  bool
}

func (f located) key() string {
	if f.tag != "" {
		return string(f.kind) + ":" + f.path + ":" + f.tag
	}
	return string(f.kind) + ":" + f.path
}

// stamped returns the path of the file that changes whenever the image does.
func (f located) stamped() string {
	if f.dir {
		return filepath.Join(f.path, "index.json")
	}
	return f.path
}

// locate finds the file of a target. Paths may contain colons: the longest existing part is the path, the rest the tag.
func (s *Store) locate(t target) (located, error) {
	f := located{kind: t.kind, path: t.path}
	if t.kind != fromTar {
		f.path, f.tag = splitTag(t.path)
	}
	real, err := s.userPath(f.path)
	if err != nil {
		return located{}, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return located{}, storage(err, "look at "+f.path)
	}
	f.path, f.dir = real, info.IsDir()
	if !info.Mode().IsRegular() && (!f.dir || t.kind != fromLayout) {
		return located{}, cove.Errorf(cove.InvalidArgument, "%s is not a file", t)
	}
	return f, nil
}

func splitTag(path string) (string, string) {
	for at := len(path); at > 0; at = strings.LastIndexByte(path[:at], ':') {
		if _, err := os.Lstat(path[:at]); err == nil {
			return path[:at], strings.TrimPrefix(path[at:], ":")
		}
	}
	return path, ""
}

// Get returns the record of an image by its name, digest or file.
func (s *Store) Get(ctx context.Context, ref string) (Image, error) {
	t, err := parse(ref)
	if err != nil {
		return Image{}, err
	}
	digest, err := s.find(t)
	if err != nil {
		return Image{}, err
	}
	img, err := s.image(digest)
	if err != nil {
		return Image{}, missing(t)
	}
	idx, err := s.index()
	if err != nil {
		return Image{}, err
	}
	return s.shown(*img, idx), nil
}

func (s *Store) digests() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "sha256"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, storage(err, "list the images")
	}
	var all []string
	for _, e := range entries {
		if digest := "sha256:" + e.Name(); validDigest(digest) {
			all = append(all, digest)
		}
	}
	return all, nil
}

// find returns the digest of a name, digest or known file.
func (s *Store) find(t target) (digest string, err error) {
	idx, err := s.index()
	if err != nil {
		return "", err
	}
	switch t.kind {
	case fromRef:
		digest = idx.Names[t.ref].Digest
	case fromDigest:
		return s.expand(t)
	case fromTar, fromLayout, fromDocker:
		if digest = idx.Files[s.fileKey(t)].Digest; digest == "" {
			digest = idx.Files[t.String()].Digest // the file is missing
		}
	default:
		return "", cove.Errorf(cove.InvalidArgument, "%s is not in the store: it is used where it is", t)
	}
	if digest == "" {
		return "", missing(t)
	}
	return digest, nil
}

// fileKey returns the index's key of a file, which may be missing.
func (s *Store) fileKey(t target) string {
	if f, err := s.locate(t); err == nil {
		return f.key()
	}
	return t.String()
}

func (s *Store) expand(t target) (string, error) {
	if validDigest(t.ref) {
		return t.ref, nil
	}
	digests, err := s.digests()
	if err != nil {
		return "", err
	}
	digests = slices.DeleteFunc(digests, func(digest string) bool { return !strings.HasPrefix(digest, t.ref) })
	switch len(digests) {
	case 0:
		return "", missing(t)
	case 1:
		return digests[0], nil
	}
	return "", cove.Errorf(cove.InvalidArgument, "%s is the beginning of several digests", t.ref).
		WithHint("write more of it")
}
