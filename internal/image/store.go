// Package image owns root filesystems: a content-addressed store of OCI images and archives, unpacked once, without a
// container engine.
//
// # Layout
//
//	index.json                    names and files, and their digests
//	sha256/<hex>/image.json       the record of one image
//	sha256/<hex>/rootfs/          its tree: flattened, never written to again
//	tmp/<name>/, tmp/<name>.lock  being unpacked or removed; locked by its owner
//	locks/<hex>                   one lock per digest
//
// An image exists when its directory does: unpacking happens in tmp, and one rename publishes it. The digest of an
// image is that of its configuration (other tools' image id), which contains the digest of every layer's uncompressed
// bytes. The digest of a plain archive is that of the file, and of an imported directory that of its canonical archive.
// Only the store's owner can reach it.
//
// # Processes
//
// Any number of processes may use one store. A process that makes or removes an image holds its lock exclusively, a
// process that runs it holds it shared ([Store.Hold]). Locks end with their process, so a crash leaves only a directory
// in tmp, which the next Open or Prune removes. The lock of an image is taken before that of the index.
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

// Options configure a store and its limits.
type Options struct {
	Dir string // the store's directory; made on demand
	// CheckPath resolves a user's path and refuses paths by invariant H5; its result contains no symbolic link. nil
	// checks nothing.
	CheckPath func(path string) (string, error)
	Limits    unpack.Limits // zero is unpack.DefaultLimits
	Log       *slog.Logger  // nil discards messages
}

// Image is the store's record of one image.
type Image struct {
	Digest   string    `json:"digest"`            // "sha256:…"
	Names    []string  `json:"names,omitempty"`   // as users write them: "python:3.13", "tar:/srv/root.tar"
	Source   string    `json:"source"`            // its first source
	Platform string    `json:"platform"`          // "linux/amd64"
	Created  time.Time `json:"created,omitempty"` // build time, as the image states
	Added    time.Time `json:"added"`             // time of its addition to the store
	Size     int64     `json:"size"`              // bytes of its files
	Files    int64     `json:"files"`             // all entries except directories
	Skipped  int64     `json:"skipped,omitempty"` // devices that were skipped
	Config   Config    `json:"config"`
}

// Config is the runtime part of an image's configuration, written by the image's author.
type Config struct {
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// Store is a directory of images. Its methods may be called concurrently, by several processes.
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

// Open returns the store of a directory, which need not exist, and removes the remains of crashes.
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

// Get returns the record of an image by its name, digest or file.
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

// image returns an image's record; fs.ErrNotExist when it is missing. Every call checks the directory's existence, and
// nothing more.
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
			WithHint("the image store belongs to another user: check its owner, or set another state directory")
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
