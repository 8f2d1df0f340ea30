// Package image owns root filesystems: a content-addressed store of OCI images
// and archives, unpacked once, without a container engine.
//
// # Layout
//
//	index.json                    names and files, and the digest each stands for
//	sha256/<hex>/image.json       what is known of one image
//	sha256/<hex>/rootfs/          its tree: flattened, never written to again
//	tmp/<name>/, tmp/<name>.lock  being unpacked or removed; locked while somebody works on it
//	locks/<hex>                   one lock per digest
//
// An image is there when its directory is: unpacking happens in tmp, and one
// rename publishes it. The digest of an image is that of its configuration
// (what other tools call the image id), which names every layer by the digest
// of its uncompressed bytes; of a plain archive it is that of the file, of an
// imported directory that of its canonical archive. The store is reachable for
// its owner only.
//
// # Processes
//
// Any number of processes may use one store. Who makes or removes an image
// holds its lock alone, who runs it holds it shared ([Store.Hold]), and locks
// end with their process, so that a crash leaves nothing but a directory in
// tmp, which the next Open or Prune removes. The lock of an image is taken
// before that of the index.
package image

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// Options say where a store is and what it may take.
type Options struct {
	Dir string // the store's directory; made when first needed
	// CheckPath resolves a path that a user gave and refuses what invariant H5
	// refuses; its answer has no symbolic link in it. nil checks nothing.
	CheckPath func(path string) (string, error)
	Limits    unpack.Limits // zero is unpack.DefaultLimits
	Log       *slog.Logger  // nil drops everything
}

// Image is what the store knows of one image.
type Image struct {
	Digest   string    `json:"digest"`            // "sha256:…"
	Names    []string  `json:"names,omitempty"`   // as users write them: "python:3.13", "tar:/srv/root.tar"
	Source   string    `json:"source"`            // where it came from first
	Platform string    `json:"platform"`          // "linux/amd64"
	Created  time.Time `json:"created,omitempty"` // when it was built, as it says itself
	Added    time.Time `json:"added"`             // when it came into the store
	Size     int64     `json:"size"`              // bytes of its files
	Files    int64     `json:"files"`             // everything but directories
	Skipped  int64     `json:"skipped,omitempty"` // devices that were left out
	Config   Config    `json:"config"`
}

// Config is the part of an image's configuration that says how to run it. It
// was written by whoever built the image.
type Config struct {
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// Store is a directory of images. Its methods may be called concurrently, by
// several processes.
type Store struct {
	dir       string
	checkPath func(string) (string, error)
	limits    unpack.Limits
	log       *slog.Logger
	keychain  authn.Keychain
	patience  patience

	mu     sync.Mutex
	raw    []byte            // index.json as last read
	parsed *index            // of raw; never changed
	known  map[string]*Image // by digest; never changed
}

// Open returns the store of a directory, which need not exist, and removes what
// a crash left in it.
func Open(o Options) (*Store, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, cove.Errorf(cove.InvalidArgument, "%q is no directory for images", o.Dir)
	}
	s := &Store{dir: dir, checkPath: o.CheckPath, limits: o.Limits, log: o.Log, keychain: authn.DefaultKeychain,
		patience: defaultPatience, known: map[string]*Image{}}
	if s.checkPath == nil {
		s.checkPath = filepath.EvalSymlinks
	}
	if s.limits == (unpack.Limits{}) {
		s.limits = unpack.DefaultLimits()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if _, _, err := s.sweep(); err != nil {
		s.log.Warn("image store not swept", "dir", dir, "err", err)
	}
	return s, nil
}

// Get returns what is known of an image by its name, digest or file.
func (s *Store) Get(ctx context.Context, ref string) (Image, error) {
	t, err := parse(ref)
	if err != nil {
		return Image{}, err
	}
	idx, err := s.index()
	if err != nil {
		return Image{}, err
	}
	digest, err := s.find(t, idx)
	if err != nil {
		return Image{}, err
	}
	img, err := s.image(digest)
	if err != nil {
		return Image{}, missing(t)
	}
	out := *img
	out.Names = idx.namesOf(digest)
	return out, nil
}

// image reads an image's record; fs.ErrNotExist when it is not there. The look
// at its directory is the only one at every call.
func (s *Store) image(digest string) (*Image, error) {
	dir := s.imageDir(digest)
	if _, err := os.Lstat(filepath.Join(dir, rootfsName)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	img := s.known[digest]
	s.mu.Unlock()
	if img != nil {
		return img, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return nil, err
	}
	img = &Image{}
	if err := json.Unmarshal(data, img); err != nil || img.Digest != digest {
		return nil, cove.Errorf(cove.Corrupt, "the record of image %s cannot be read", short(digest)).
			WithHint("remove it with \"cove image rm %s\" and pull or import it again", digest)
	}
	s.mu.Lock()
	s.known[digest] = img
	s.mu.Unlock()
	return img, nil
}

const (
	recordName = "image.json"
	rootfsName = "rootfs"
)

func (s *Store) imageDir(digest string) string {
	return filepath.Join(s.dir, "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// ensure makes the store's directories.
func (s *Store) ensure() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return storage(err, "make the image store")
	}
	for _, name := range []string{"sha256", "tmp", "locks"} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return storage(err, "make the image store")
		}
	}
	return nil
}

// storage gives an error of the store's own files its code.
func storage(err error, doing string) error {
	var known *cove.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case unpack.IsFull(err):
		return unpack.Full(err)
	case errors.Is(err, fs.ErrPermission):
		return cove.Errorf(cove.Forbidden, "%s: %w", doing, err).
			WithHint("the image store belongs to somebody else: check its owner, or set another state directory")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return cove.Errorf(cove.Canceled, "%s: %w", doing, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cove.Errorf(cove.Corrupt, "%s: %w", doing, err)
	}
	return cove.Errorf(cove.Internal, "%s: %w", doing, err)
}

func short(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return hex[:min(len(hex), 12)]
}
