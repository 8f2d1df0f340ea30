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
func (u *uploads) reserve(id cove.UploadID, who cove.Principal, more int64, fits func(int64) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum, err := u.uploaded(who, "")
	if err == nil {
		err = fits(sum + more)
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

// DropUploads removes uploads of all callers, below Cove's home, that waited too long for the sandbox that takes them.
func DropUploads(home string, now time.Time) {
	old, _ := filepath.Glob(filepath.Join(uploadsIn(home), "*", "*up_*"))
	for _, path := range old {
		if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()) > uploadAge {
			os.Remove(path)
		}
	}
}
