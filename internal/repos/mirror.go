package repos

import (
	"context"
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

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Mirror is a repository in the store.
type Mirror struct {
	Address   string           `json:"address"` // or the directory
	Key       string           `json:"key"`
	Size      int64            `json:"size"` // bytes on disk
	FetchedAt time.Time        `json:"fetched_at"`
	Borrowers []cove.SandboxID `json:"borrowers,omitempty"`
	Kept      []string         `json:"kept,omitempty"` // checkouts that outlive their sandbox and still borrow
	// HeadAt is when the remote last stated its default branch.
	HeadAt time.Time `json:"head_at"`
	// Partial omits contents of files until their first checkout.
	Partial bool `json:"partial,omitempty"`
	// UsedAt is when a workspace of it was made or removed last, or it was fetched.
	UsedAt time.Time `json:"-"`
	// Promisor is the address of what a partial clone of this machine lacked when it was last read.
	Promisor string `json:"promisor,omitempty"`
}

// mirrorFile describes the mirror in its directory.
const mirrorFile = "cove.json"

// mirror is a repository of the store that may exist.
type mirror struct {
	s    *Store
	key  string
	dir  string
	held []*os.File // its lock, for git to inherit; nil when it is not held
}

// mirrorLocks returns the directory of the locks of mirrors.
func (s *Store) mirrorLocks() string { return filepath.Join(s.repos, ".locks") }

func (s *Store) mirror(key string) *mirror {
	return &mirror{s: s, key: key, dir: filepath.Join(s.repos, filepath.FromSlash(key)+".git")}
}

// hold waits for the mirror's exclusive lock.
func (m *mirror) hold(ctx context.Context) (release func(), err error) {
	l, err := lock(ctx, m.lockFile(), filelock.Exclusive)
	if err != nil {
		return nil, err
	}
	m.held = []*os.File{l}
	return func() { m.held = nil; l.Close() }, nil
}

func (m *mirror) lockFile() string {
	sum := sha256.Sum256([]byte(m.key))
	return filepath.Join(m.s.mirrorLocks(), hex.EncodeToString(sum[:16]))
}

func (m *mirror) there() bool {
	_, err := os.Stat(filepath.Join(m.dir, mirrorFile))
	return err == nil
}

// description reads the mirror's description. Errors: those of reading it.
func (m *mirror) description() (d Mirror, err error) {
	f, err := os.Open(filepath.Join(m.dir, mirrorFile))
	if err != nil {
		return d, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = json.NewDecoder(f).Decode(&d)
	}
	if err == nil {
		d.UsedAt = info.ModTime()
	}
	return d, err
}

func (m *mirror) git(ctx context.Context, r hostgit.Run) ([]byte, error) {
	r.Dir = m.dir
	return m.s.git(ctx, m.held, r)
}

// remove removes a mirror, whose lock is held. Without its description it counts as incomplete, whatever fails from
// there on, and is swept.
func (m *mirror) remove() error {
	err := os.Remove(filepath.Join(m.dir, mirrorFile))
	if err == nil {
		err = os.RemoveAll(m.dir)
	}
	if err != nil {
		return storageFull("remove "+m.key, err)
	}
	return nil
}

// used records that a mirror is used now.
func (m *mirror) used() {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(m.dir, mirrorFile), now, now) // only the order in which mirrors go
}

// described reads the descriptions of all mirrors.
func (s *Store) described() ([]Mirror, error) {
	var all []Mirror
	err := filepath.WalkDir(s.repos, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || !d.IsDir() || !strings.HasSuffix(d.Name(), ".git") {
			return err
		}
		m, err := (&mirror{s: s, dir: path}).description()
		if errors.Is(err, fs.ErrNotExist) {
			return fs.SkipDir // incomplete
		}
		if err != nil || s.mirror(m.Key).dir != path {
			s.o.Log.Warn("mirror cannot be read", "dir", path, "error", err)
			return fs.SkipDir
		}
		all = append(all, m)
		return fs.SkipDir
	})
	if err != nil {
		return nil, storageFull("read the store", err)
	}
	slices.SortFunc(all, func(a, b Mirror) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}
