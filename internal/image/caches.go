package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/filelock"
)

// cachesName is the directory of a store for the caches of builds: each a directory by a digest of its id, with a
// record, and a lock beside it. Commands of builds write to them. They make room as images that come back do.
const (
	cachesName  = "caches"
	cacheRecord = "cache.json"
	cacheData   = "data"
)

// cached is the record of a cache. Its time of change says when the cache was used last.
type cached struct {
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"`
}

// caches is the directory of a store for the caches of builds.
type caches struct {
	store *Store
	dir   string
}

func cachesOf(s *Store) caches { return caches{s, filepath.Join(s.dir, cachesName)} }

func (c caches) place(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:]))
}

// make makes a cache at its place with what fill gives it, by way of a temporary directory.
func (c caches) make(temp, id string, fill func(dir string) error) error {
	data := filepath.Join(temp, "new", cacheData)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	if err := fill(data); err != nil {
		return err
	}
	if err := c.record(filepath.Dir(data), id); err != nil {
		return err
	}
	err := os.Rename(filepath.Dir(data), c.place(id))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil // another build was first
	}
	return err
}

// record writes what a cache has, and that it was used.
func (c caches) record(place, id string) error {
	data, err := json.Marshal(cached{ID: id, Bytes: diskUsage(c.store.files, place)})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(place, cacheRecord), data, 0o600)
}

// usedCache is a cache, or a layer, with what its record says.
type usedCache struct {
	place string
	bytes int64
	used  time.Time
	// removes removes it unless a build has it, and reports whether it did.
	removes func() (gone bool, err error)
}

// list lists the caches of builds.
func (c caches) list() (all []usedCache, err error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		u := usedCache{place: filepath.Join(c.dir, e.Name())}
		u.removes = func() (bool, error) { return c.remove(u.place) }
		record := filepath.Join(u.place, cacheRecord)
		if info, err := os.Stat(record); err == nil {
			u.used = info.ModTime()
		}
		var says cached
		if data, err := os.ReadFile(record); err == nil && json.Unmarshal(data, &says) == nil {
			u.bytes = says.Bytes
		}
		all = append(all, u)
	}
	return all, nil
}

// remove removes a cache that no build has, and reports whether it did.
func (c caches) remove(place string) (gone bool, err error) {
	lock, err := filelock.Open(place+lockSuffix, filelock.Exclusive)
	if err == filelock.ErrHeld {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if err := c.store.files.Remove(place); err != nil {
		return false, err
	}
	return true, os.Remove(lock.Name())
}

// prune removes the caches that no build has.
func (c caches) prune() (freed int64, err error) {
	all, err := c.list()
	locks, _ := filepath.Glob(filepath.Join(c.dir, "*"+lockSuffix)) // of those that failed to be made, too
	for _, lock := range locks {
		if place := strings.TrimSuffix(lock, lockSuffix); !slices.ContainsFunc(all, func(u usedCache) bool {
			return u.place == place
		}) {
			all = append(all, usedCache{place: place})
		}
	}
	for _, u := range all {
		bytes := diskUsage(c.store.files, u.place)
		gone, e := c.remove(u.place)
		if err = errors.Join(err, e); gone {
			freed += bytes
		}
	}
	return freed, err
}
