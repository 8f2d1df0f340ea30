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

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/filelock"
)

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
	lock, err := lockFile(ctx, filepath.Join(s.dir, "index.lock"), filelock.Exclusive)
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

// keeps reports whether a name or an unchanged file keeps an image.
func (i *index) keeps(digest string) bool { return len(i.namesOf(digest)) > 0 }

// comesBack reports whether an image comes back by itself when it is used again, or has no use.
func (i *index) comesBack(digest string) bool {
	for _, n := range i.Names {
		if n.Digest == digest && !n.Implied {
			return false
		}
	}
	for _, f := range i.Files {
		if f.Digest == digest && !f.Implied {
			return false
		}
	}
	return true
}

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

func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return stamp{Dev: st.Dev, Inode: st.Ino, Size: st.Size, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()}, nil
}

// image returns an image's record; fs.ErrNotExist when it is missing, for which every call looks.
func (s *Store) image(digest string) (*Image, error) {
	dir := s.imageDir(digest)
	if _, err := os.Lstat(filepath.Join(dir, recordName)); err != nil {
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
			WithHint("remove it with \"cove image remove %s\" and pull or import it again", digest)
	}
	s.mu.Lock()
	s.known[digest] = img
	s.mu.Unlock()
	return img, nil
}

// shown returns an image with its names and its last use.
func (s *Store) shown(img Image, idx *index) Image {
	img.Names, img.Used = idx.namesOf(img.Digest), s.usedAt(img)
	return img
}
