package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
)

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
}

const indexVersion = 1

func (s *Store) indexPath() string { return filepath.Join(s.dir, "index.json") }

// index returns the index, which callers must not change. It is parsed again only when its bytes have changed.
func (s *Store) index() (*index, error) {
	data, err := os.ReadFile(s.indexPath())
	if errors.Is(err, fs.ErrNotExist) {
		return &index{}, nil
	}
	if err != nil {
		return nil, storage(err, "read the image index")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parsed != nil && bytes.Equal(data, s.raw) {
		return s.parsed, nil
	}
	idx := &index{}
	if err := json.Unmarshal(data, idx); err != nil || idx.Version != indexVersion {
		return nil, cove.Errorf(cove.Corrupt, "the image index %s cannot be read", s.indexPath()).
			WithHint("move that file away: images stay on disk, and their names come back when they are pulled or " +
				"imported again")
	}
	s.raw, s.parsed = data, idx
	return idx, nil
}

// update changes the index under its lock.
func (s *Store) update(ctx context.Context, change func(*index) error) error {
	lock, err := lockFile(ctx, filepath.Join(s.dir, "index.lock"), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	old, err := s.index()
	if err != nil {
		return err
	}
	idx := &index{Version: indexVersion, Names: map[string]named{}, Files: map[string]filed{}}
	maps.Copy(idx.Names, old.Names)
	maps.Copy(idx.Files, old.Files)
	if err := change(idx); err != nil {
		return err
	}
	data, err := json.MarshalIndent(idx, "", "\t")
	if err != nil {
		return err
	}
	return storage(atomicfile.Write(s.indexPath(), append(data, '\n'), 0o600), "write the image index")
}

// sweepIndex removes half-written indexes of a crash.
func (s *Store) sweepIndex() error {
	left, err := filepath.Glob(filepath.Join(s.dir, ".index.json.*"))
	if err != nil || len(left) == 0 {
		return err
	}
	lock, err := tryLock(filepath.Join(s.dir, "index.lock"), unix.LOCK_EX)
	if err == errHeld {
		return nil // another process is writing one
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// keeps reports whether a name or an unchanged file keeps an image.
func (i *index) keeps(digest string) bool {
	for _, n := range i.Names {
		if n.Digest == digest && !n.Implied {
			return true
		}
	}
	for _, f := range i.Files {
		if f.Digest == digest {
			return true
		}
	}
	return false
}

// drop removes every name of an image.
func (i *index) drop(digest string) {
	maps.DeleteFunc(i.Names, func(_ string, n named) bool { return n.Digest == digest })
	maps.DeleteFunc(i.Files, func(_ string, f filed) bool { return f.Digest == digest })
}

// namesOf returns the names that keep an image, as users write them.
func (i *index) namesOf(digest string) []string {
	var names []string
	for name, n := range i.Names {
		if n.Digest == digest && !n.Implied {
			names = append(names, familiar(name))
		}
	}
	for name, f := range i.Files {
		if f.Digest == digest {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// stamp identifies the version of a file.
type stamp struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds
	CTime int64  `json:"ctime"` // unlike MTime, the file's owner cannot set it back
}

func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return stamp{Dev: st.Dev, Inode: st.Ino, Size: st.Size, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()}, nil
}

// dropStale removes files that changed or disappeared.
func (i *index) dropStale() {
	maps.DeleteFunc(i.Files, func(_ string, f filed) bool {
		now, err := stampOf(f.Path)
		return err != nil || now != f.Stamp
	})
}

// validDigest accepts "sha256:" and 64 lower-case hex digits, which are also a safe file name.
func validDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}
