package repos

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// uploadAge is how long an upload waits for the sandbox that takes it.
const uploadAge = 15 * time.Minute

// uploads are the uploads of all callers that no sandbox has taken yet.
type uploads struct {
	dir string

	mu     sync.Mutex
	coming map[cove.UploadID]arriving // guarded by mu
}

// arriving is an upload that has not come whole. It counts with what it has reserved.
type arriving struct {
	who      cove.Principal
	reserved int64 // bytes
}

func uploadsIn(home string) string { return filepath.Join(home, "uploads") }

// of returns the directory of a caller's uploads: no caller finds those of another one.
func (u *uploads) of(who cove.Principal) string {
	sum := sha256.Sum256([]byte(who.String()))
	return filepath.Join(u.dir, hex.EncodeToString(sum[:16]))
}

// Uploaded implements workspace.Disks.
func (u *uploads) Uploaded(who cove.Principal, but string, f func(bytes int64) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum, err := u.uploaded(who, but)
	if err != nil {
		return err
	}
	return f(sum)
}

// uploaded returns the bytes of a caller's uploads but one, with what is reserved; mu is held.
func (u *uploads) uploaded(who cove.Principal, but string) (sum int64, err error) {
	for _, a := range u.coming {
		if a.who == who {
			sum += a.reserved
		}
	}
	all, err := os.ReadDir(u.of(who))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, storageFull("look at uploads", err)
	}
	for _, e := range all {
		_, comes := u.coming[cove.UploadID(strings.TrimPrefix(e.Name(), coming))]
		if comes || e.Name() == but {
			continue
		}
		if info, err := e.Info(); err == nil { // else it was taken
			sum += info.Size()
		}
	}
	return sum, nil
}

// reserve counts more bytes of an upload, before they are written. Errors: those of fits.
func (u *uploads) reserve(id cove.UploadID, who cove.Principal, more int64, fits func(sent, more int64) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum, err := u.uploaded(who, "")
	if err == nil {
		err = fits(sum, more)
	}
	if err == nil {
		u.coming[id] = arriving{who, u.coming[id].reserved + more}
	}
	return err
}

// settle ends the arrival of an upload, which counts with its file from now on.
func (u *uploads) settle(id cove.UploadID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.coming, id)
}

// DropUploads removes uploads of all callers, below Cove's home, that no sandbox takes any more: those that waited too
// long, and those whose process died while they came. While another process looks for them, it leaves them to it.
func DropUploads(home string, now time.Time) {
	if l, _ := tryLock(uploadsLock(uploadsIn(home)), filelock.Exclusive); l != nil { // an error: there are none
		defer l.Close()
		dropUploads(uploadsIn(home), now)
	}
}

// uploadsLock is the lock under which uploads begin and are dropped: a file that no process holds has no process.
func uploadsLock(dir string) string { return filepath.Join(dir, ".lock") }

// dropUploads is DropUploads with the lock held.
func dropUploads(dir string, now time.Time) {
	all, _ := filepath.Glob(filepath.Join(dir, "*", "*up_*"))
	for _, path := range all {
		info, err := os.Lstat(path)
		if err != nil {
			continue // it has come, or was taken
		}
		if comes := strings.HasPrefix(info.Name(), coming); comes && !held(path) ||
			!comes && now.Sub(info.ModTime()) > uploadAge {
			os.Remove(path)
		}
	}
}

// held reports whether a process may hold the lock of a file.
func held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	return filelock.Try(f, filelock.Exclusive) != nil
}
