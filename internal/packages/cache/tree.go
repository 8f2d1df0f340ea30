//go:build linux

package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// A tree has files of the cache where npm's own cache has what it fetched: under their SHA-512. It is what the
// sandboxes of one owner have asked one registry for, from which none learns what others have installed. Its files are
// links to those in files, and go with them; a tree goes that no sandbox has been shown for a while.

// Tree names a tree.
type Tree struct {
	Owner    cove.Principal
	Registry string // host:port
}

const (
	trees = "trees"
	// content is npm's cache of contents (cacache), below ~/.npm, for files with a SHA-512.
	content = "_cacache/content-v2/sha512"
	unused  = 30 * 24 * time.Hour
)

func (c *Cache) treesOf(owner cove.Principal) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", owner.Tenant, owner))
	return filepath.Join(trees, hex.EncodeToString(sum[:]))
}

// has reports whether an owner may have trees. Requests of Cove's own and of unknown principals have none.
func (c *Cache) has(owner cove.Principal) bool {
	return !c.o.Apart && owner != cove.Principal{} && (owner.IsOwner() || !owner.SeesAll())
}

// Share adds the file of a URL to a tree, if its index stated a SHA-512.
func (c *Cache) Share(t Tree, url string) {
	n, ok := c.read(url)
	if !ok || !isHex(n.Stated.SHA512, 64) || filepath.Base(t.Registry) != t.Registry || !c.has(t.Owner) {
		return
	}
	sum, top := n.Stated.SHA512, c.place(c.treesOf(t.Owner), t.Registry)
	at := filepath.Join(top, content, sum[:2], sum[2:4], sum[4:])
	var err error
	for range 2 { // eviction may remove an empty directory meanwhile
		if err = os.MkdirAll(filepath.Dir(at), private); err == nil {
			err = os.Link(c.place("files", n.SHA256), at)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return
	}
	c.failed(err)
	if err == nil {
		c.use(top)
		c.grown(block) // two directories
	}
}

// use notes that a tree is used.
func (c *Cache) use(top string) {
	now := c.o.Clock.Now()
	_ = os.Chtimes(top, now, now) // otherwise it goes earlier
}

// Shown returns the trees of an owner by their registries, to be shown read-only. They are used from now on.
func (c *Cache) Shown(owner cove.Principal) map[string]hostpath.Own {
	if !c.has(owner) {
		return nil
	}
	all := map[string]hostpath.Own{}
	of := c.treesOf(owner)
	entries, _ := os.ReadDir(c.place(of, "")) // an owner may have none
	for _, e := range entries {
		all[e.Name()] = hostpath.Own{Dir: c.o.Dir, Name: filepath.Join(of, e.Name())}
	}
	return all
}

// Use notes that a sandbox is shown a tree.
func (c *Cache) Use(t Tree) { c.use(c.place(c.treesOf(t.Owner), t.Registry)) }

// linked are the files of trees by their inodes, with the time at which the last of these trees was used.
type linked map[uint64]time.Time

// survey walks the trees. It removes those that are not used any more, and calls keep for each file, which goes unless
// it says so, as empty directories do. It returns the bytes of the directories that are left.
func (c *Cache) survey(keep func(inode uint64, used time.Time) bool) (total int64) {
	owners, _ := os.ReadDir(c.place(trees, ""))
	for _, owner := range owners {
		of := c.place(filepath.Join(trees, owner.Name()), "")
		all, _ := os.ReadDir(of)
		for _, e := range all {
			top := filepath.Join(of, e.Name())
			info, err := e.Info()
			if err != nil {
				continue
			}
			used := info.ModTime()
			if c.o.Clock.Now().Sub(used) > unused {
				_ = os.RemoveAll(top)
				continue
			}
			bytes := prune(top, func(inode uint64) bool { return keep(inode, used) })
			if bytes > 0 {
				_ = os.Chtimes(top, used, used) // it is not used by that
			}
			total += bytes
		}
		_ = os.Remove(of) // it may have trees
	}
	return total
}

// prune removes the files of a directory that keep does not want, and then what is empty. It returns the bytes of the
// directories that are left; 0: none is.
func prune(dir string, keep func(inode uint64) bool) (total int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	left := false
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if e.IsDir() {
			bytes := prune(at, keep)
			left, total = left || bytes > 0, total+bytes
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it is gone
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && keep(st.Ino) {
			left = true
		} else {
			_ = os.Remove(at) // it may be gone
		}
	}
	if !left && os.Remove(dir) == nil {
		return 0
	}
	return total + block
}

func isHex(s string, bytes int) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == bytes && strings.ToLower(s) == s
}
