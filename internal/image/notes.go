package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/atomicfile"
)

// A note says which layer a step of a build has made: its key, in a file by a name that stands for all that the step
// depends on. The next build finds the layer by it without making the step again. A note is a hint: the layer may be
// gone.

// maxNotes is how many notes a store has at most.
const maxNotes = 1000

// notes is the directory of a store for notes.
type notes string

func notesOf(s *Store) notes { return notes(filepath.Join(s.dir, "notes")) }

func (n notes) find(name string) (key string, err error) {
	path := filepath.Join(string(n), name)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if !validDigest("sha256:" + string(data)) { // the machine has failed while it was written
		return "", fs.ErrNotExist
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // only the order in which notes go
	return string(data), nil
}

func (n notes) write(name, key string) error {
	if err := os.MkdirAll(string(n), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Replace(filepath.Join(string(n), name), []byte(key), 0o600); err != nil {
		return err
	}
	return n.shrink()
}

// shrink removes the notes that were used the longest ago while there are more than maxNotes.
func (n notes) shrink() error {
	entries, err := os.ReadDir(string(n))
	if err != nil || len(entries) <= maxNotes {
		return err
	}
	var all []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // no other build has removed it
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		if c := a.ModTime().Compare(b.ModTime()); c != 0 {
			return c
		}
		return strings.Compare(a.Name(), b.Name())
	})
	for _, old := range all[:max(0, len(all)-maxNotes)] {
		if e := os.Remove(filepath.Join(string(n), old.Name())); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
