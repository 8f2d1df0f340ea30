// Package image owns root filesystems: a content-addressed store of OCI images and archives, unpacked once, without a
// container engine.
//
// # Layout
//
//	index.json                    names and files, and their digests
//	sha256/<hex>/image.json       the record of one image
//	sha256/<hex>/config.json      its configuration as it came; an archive has none
//	sha256/<hex>/rootfs/          its tree: flattened, never written to again
//	sha256/<hex>/flat/tree/       the same with one owner, for users of sandboxes that share the ids of the store's owner
//	sha256/<hex>/owned            says that its files have owners, in a store of an ordinary user
//	sha256/<hex>/pins/            a file for each sandbox that keeps changes to it
//	build/<key>/                  a layer that a build has made, for the next one and for images
//	build/<key>/pins/             a file for each image that has the layer
//	notes/<name>                  the key of the layer that a step of a build has made
//	tmp/<name>/, tmp/<name>.lock  being unpacked or removed; locked by its owner
//	locks/<hex>                   one lock per digest
//
// An image exists when its directory does: unpacking happens in tmp, and one rename publishes it. The digest of an
// image is that of its configuration (other tools' image id), which contains the digest of every layer's uncompressed
// bytes. The digest of a plain archive is that of the file, and of an imported directory that of its canonical archive.
// Only the store's owner can reach it.
//
// # Owners
//
// The files of a tree have their owners where the process is root, or has subordinate ids: package files does the work
// that needs those. Otherwise all are the store's owner's, as in stores that earlier versions have written.
//
// # Processes
//
// Any number of processes may use one store. A process that makes or removes an image holds its lock exclusively, a
// process that runs it holds it shared ([Store.Hold]). Locks end with their process, so a crash leaves only a directory
// in tmp, which the next Open or Prune removes. The lock of an image is taken before that of the index.
package image

import (
	"context"
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
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/image/unpack"
	"github.com/cove-sandbox/cove/internal/linux/disk"
)

// Options configure a store and its limits.
type Options struct {
	Dir string // the store's directory; made on demand
	// CheckPath resolves a user's path and refuses paths by invariant H5; its result contains no symbolic link. nil
	// checks nothing.
	CheckPath func(path string) (string, error)
	Limits    unpack.Limits // zero is unpack.DefaultLimits
	// Home is Cove's, below which room on the disk is reserved; empty: Dir.
	Home string
	// Most bounds the images together, in bytes; 0 is no bound.
	Most  int64
	Files *files.Files // does the work on the images' files; nil: this process does
	Log   *slog.Logger // nil discards messages
}

// Image is the store's record of one image.
type Image struct {
	Digest   string    `json:"digest"`              // "sha256:…"
	Names    []string  `json:"names,omitempty"`     // as users write them: "python:3.13", "tar:/srv/root.tar"
	Source   string    `json:"source"`              // its first source
	Platform string    `json:"platform"`            // "linux/amd64"
	Created  time.Time `json:"created,omitempty"`   // build time, as the image states
	Added    time.Time `json:"added"`               // time of its addition to the store
	Used     time.Time `json:"used"`                // time of its last use, or of its addition
	Base     string    `json:"base,omitempty"`      // digest of the image that it was built on, and shares files with
	Layers   int       `json:"layers,omitempty"`    // of its own, above those of Base
	Kept     []string  `json:"kept,omitempty"`      // keys of these layers, where builds keep them
	KeptSize int64     `json:"kept_size,omitempty"` // bytes of the files of Kept
	Size     int64     `json:"size"`                // bytes of its files, those of Base included
	Files    int64     `json:"files"`               // all entries except directories
	Skipped  int64     `json:"skipped,omitempty"`   // devices that were skipped
	Config   Config    `json:"config"`
}

// Config is the runtime part of an image's configuration, written by the image's author.
type Config struct {
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`

	Health engine.Health `json:"health,omitzero"`
	Ports  []uint16      `json:"ports,omitempty"` // of TCP

	StopSignal string `json:"stop_signal,omitempty"` // a name or a number
}

// Store is a directory of images. Its methods may be called concurrently, by several processes.
type Store struct {
	dir       string
	checkPath func(string) (string, error)
	limits    unpack.Limits
	home      string // Cove's
	most      int64  // bytes of all images; 0 is no bound
	files     *files.Files
	log       *slog.Logger
	keychain  authn.Keychain
	patience  patience
	drafts    disk.Templates

	mu     sync.Mutex
	raw    []byte            // index.json as last read
	parsed *index            // of raw; never changed
	known  map[string]*Image // by digest; never changed
	sizes  map[string]sized  // of layers that builds keep, by their records
}

// sized has the bytes of a layer, as its record states them, which does not change.
type sized struct {
	inode uint64 // of the record
	bytes int64
}

const (
	recordName = "image.json"
	rootfsName = "rootfs"
	configName = "config.json"
	// ownedName is the file of an image whose files have owners in a store of an ordinary user. Images of earlier
	// versions, and of users without subordinate ids, have none.
	ownedName = "owned"
)

func (s *Store) imageDir(digest string) string {
	return filepath.Join(s.dir, "sha256", strings.TrimPrefix(digest, "sha256:"))
}

func (s *Store) ensure() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return storage(err, "make the image store")
	}
	if err := os.Chmod(s.dir, 0o700); err != nil { // files in it may be set-user-id
		return storage(err, "close the image store to others")
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
	if _, known := errors.AsType[*cove.Error](err); known || err == nil {
		return err
	}
	switch {
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

// patience bounds the time of a registry; tests use shorter values.
type patience struct {
	attempts int           // for each request and each layer
	pause    time.Duration // after the first failure; tripled after each further one
	stall    time.Duration // without a byte of a layer
}

var defaultPatience = patience{attempts: 3, pause: time.Second, stall: time.Minute}

// stamp identifies the version of a file.
type stamp struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds
	CTime int64  `json:"ctime"` // unlike MTime, the file's owner cannot set it back
}

// index is the content of index.json.
type index struct {
	Version int `json:"version"`
	// Names maps a canonical reference to its image.
	Names map[string]named `json:"names,omitempty"`
	// Files maps keys such as "tar:/path" to the file's stamp and image at its last reading.
	Files map[string]filed `json:"files,omitempty"`
}

type named struct {
	Digest string `json:"digest"`
	// Implied marks a digest reference from a pull by tag: it finds the image, but does not keep it.
	Implied bool `json:"implied,omitempty"`
}

type filed struct {
	Digest string `json:"digest"`
	Path   string `json:"path"` // the file that changes when the image does
	Stamp  stamp  `json:"stamp"`
	// Implied marks a file that a request named, and no user imported: its image makes room for others.
	Implied bool `json:"implied,omitempty"`
}
