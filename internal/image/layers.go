package image

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/internal/filelock"
)

// layerRecord is the file of a layer with what it is. Its time of change says when the layer was used last. Images that
// have its files pin it.
const layerRecord = "layer.json"

// layerSynced is an empty file of a layer, which says that all of its files are on the disk. A layer without it counts
// until the machine is started again, and longer if an image has it or an earlier version has kept it.
const layerSynced = "synced"

// thisBoot is the kernel's id of this boot; empty: it states none.
var thisBoot = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// Layer is a layer that a build has made.
type Layer struct {
	Dir     string    `json:"-"` // of engine.MakeLayer
	DiffID  string    `json:"diff_id"`
	Created time.Time `json:"created"`
	Bytes   int64     `json:"bytes"`          // of its files
	Files   int64     `json:"files"`          // of them; unmeasured where an earlier version has kept it
	Boot    string    `json:"boot,omitempty"` // in which it was kept; empty: it was synced before

	held *os.File // until which it stays; nil: it is in a directory of Room
}

const unmeasured = -1

// key returns that of a layer which is kept.
func (l Layer) key() string { return filepath.Base(l.Dir) }

// synced reports whether a layer that is kept is known to be on the disk.
func (l Layer) synced() bool {
	if l.Boot == "" {
		return true
	}
	_, err := os.Lstat(filepath.Join(l.Dir, layerSynced))
	return err == nil
}

// whole reports whether a layer is as it was kept: the machine may have failed since.
func (l Layer) whole(s *Store) bool {
	return l.Boot == thisBoot() || l.synced() || PinsOf(s).pinned(l.Dir)
}

// Release lets a layer of Find or Keep go when the store needs room.
func (l Layer) Release() {
	if l.held != nil {
		l.held.Close()
	}
}

// pruneLayers removes the layers of builds that no image has, and all notes, unless a build runs.
func pruneLayers(s *Store) (freed int64, err error) {
	kept := keptIn(s)
	if _, err := os.Lstat(kept); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	lock, err := filelock.Open(kept+lockSuffix, filelock.Exclusive)
	if err == filelock.ErrHeld {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	entries, err := os.ReadDir(kept)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		dir := filepath.Join(kept, e.Name())
		if PinsOf(s).pinned(dir) {
			continue
		}
		bytes := diskUsage(s.files, dir)
		if e := takeOut(s, dir); e != nil {
			err = errors.Join(err, e)
			continue
		}
		freed += bytes
	}
	return freed, errors.Join(err, os.RemoveAll(string(notesOf(s))))
}

// holdRecord opens and locks the record of a layer, which is removed by a holder of its exclusive lock alone. Errors:
// fs.ErrNotExist, filelock.ErrHeld.
func holdRecord(path string, k filelock.Kind) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f, k); err != nil {
		f.Close()
		if err == filelock.ErrHeld && k == filelock.Shared {
			err = fs.ErrNotExist // it is being removed
		}
		return nil, err
	}
	mine, err := f.Stat()
	if err == nil {
		var current fs.FileInfo
		if current, err = os.Lstat(path); err == nil && !os.SameFile(mine, current) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// usedLayers lists the layers that builds keep.
func usedLayers(s *Store) (all []usedCache, err error) {
	kept := keptIn(s)
	entries, err := os.ReadDir(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		u := usedCache{place: filepath.Join(kept, e.Name())}
		record := filepath.Join(u.place, layerRecord)
		info, err := os.Stat(record)
		if err != nil {
			continue // it goes just now
		}
		u.bytes = layerBytes(s, record, info)
		u.used, u.removes = info.ModTime(), func() (bool, error) { return removeLayer(s, u.place) }
		all = append(all, u)
	}
	return all, nil
}

// layerBytes returns the bytes of a layer by its record, which is read once.
func layerBytes(s *Store, record string, info fs.FileInfo) int64 {
	inode := info.Sys().(*syscall.Stat_t).Ino
	s.mu.Lock()
	known, ok := s.sizes[record]
	s.mu.Unlock()
	if ok && known.inode == inode {
		return known.bytes
	}
	var l Layer
	if data, err := os.ReadFile(record); err != nil || json.Unmarshal(data, &l) != nil {
		return 0
	}
	s.mu.Lock()
	s.sizes[record] = sized{inode, l.Bytes}
	s.mu.Unlock()
	return l.Bytes
}

// removeLayer removes a layer that no build holds and no image has, and reports whether it did.
func removeLayer(s *Store, dir string) (gone bool, err error) {
	lock, err := holdRecord(filepath.Join(dir, layerRecord), filelock.Exclusive)
	if err == filelock.ErrHeld || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if PinsOf(s).pinned(dir) {
		return false, nil
	}
	return true, takeOut(s, dir)
}

// takeOut removes a layer: one rename takes it out, and the rest may be interrupted.
func takeOut(s *Store, dir string) error {
	t, err := s.newTemp()
	if err != nil {
		return err
	}
	defer s.discard(t)
	s.mu.Lock()
	delete(s.sizes, filepath.Join(dir, layerRecord))
	s.mu.Unlock()
	return os.Rename(dir, filepath.Join(t.dir, "layer"))
}

// used lists caches and layers of builds, the one that was used the longest ago first.
func used(s *Store) ([]usedCache, error) {
	all, err := cachesOf(s).list()
	if err != nil {
		return nil, err
	}
	layers, err := usedLayers(s)
	all = append(all, layers...)
	slices.SortStableFunc(all, func(a, b usedCache) int { return a.used.Compare(b.used) })
	return all, err
}

// evictUsed removes the cache or layer that was used the longest ago, of those that no build has, and reports whether
// there was one.
func evictUsed(s *Store) (bool, error) {
	all, err := used(s)
	if err != nil {
		return false, err
	}
	for _, u := range all {
		if gone, err := u.removes(); gone || err != nil {
			return gone, err
		}
	}
	return false, nil
}
