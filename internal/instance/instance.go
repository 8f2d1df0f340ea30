// Package instance distinguishes living Cove processes from dead ones: each holds a lock on its own file while it
// lives, however it ends.
package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// Dir is the directory of the instances' lock files and sockets, below the run directory.
const Dir = "instances"

// Instance is this process's claim to be alive.
type Instance struct {
	ID   cove.InstanceID
	dir  string
	lock *os.File
}

// Hold makes a new instance below runDir, which must exist.
func Hold(runDir string) (*Instance, error) {
	dir := filepath.Join(runDir, Dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, cove.Errorf(cove.StorageFull, "cannot use the run directory: %w", err).
			WithHint("choose another with --run-dir or COVE_RUN_DIR")
	}
	id := cove.NewInstanceID()
	// The file is locked under a temporary name, so that it is locked from its first appearance.
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return nil, cove.Errorf(cove.StorageFull, "cannot write to the run directory: %w", err).
			WithHint("free some space, or choose another with --run-dir or COVE_RUN_DIR")
	}
	i := &Instance{ID: id, dir: dir, lock: f}
	err = filelock.Try(f, filelock.Exclusive)
	if err == nil {
		err = os.Rename(f.Name(), lockPath(dir, id))
	}
	if err != nil {
		os.Remove(f.Name())
		f.Close()
		return nil, err
	}
	return i, nil
}

func lockPath(dir string, id cove.InstanceID) string { return filepath.Join(dir, string(id)+".lock") }

// Socket returns the path of the socket for the instance's own user.
func (i *Instance) Socket() string { return filepath.Join(i.dir, string(i.ID)+".sock") }

// Files returns the path of a directory for the instance's own files. The user of the directory makes it; it is removed
// with the instance.
func (i *Instance) Files() string { return filepath.Join(i.dir, string(i.ID)+".files") }

// Release ends the claim. The caller must have removed everything that the instance owns.
func (i *Instance) Release() error { return errors.Join(i.remove(), i.lock.Close()) }

// Lock returns the locked file: the instance lives as long as any process holds it open.
func (i *Instance) Lock() *os.File { return i.lock }

// Entrust leaves the claim to a process that holds the lock. After its end, Forget removes the files.
func (i *Instance) Entrust() error { return i.lock.Close() }

// remove removes the instance's files, the lock last.
func (i *Instance) remove() error {
	os.Remove(i.Socket())
	return errors.Join(os.RemoveAll(i.Files()), os.Remove(lockPath(i.dir, i.ID)))
}

// Alive reports whether the instance's process lives. Without a lock file it is dead.
func Alive(runDir string, id cove.InstanceID) bool {
	f, err := os.Open(lockPath(filepath.Join(runDir, Dir), id))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true // unknown: nothing of it may be touched
	}
	defer f.Close()
	return filelock.Try(f, filelock.Shared) != nil
}

// Realm returns a name for a run directory, unique on a host or a daemon. Only within one run directory can living
// instances be told from dead ones, so everything that an engine leaves on the host carries the realm. It survives a
// reboot.
func Realm(runDir string) string {
	machine, _ := os.ReadFile("/etc/machine-id")
	host, _ := os.Hostname()
	sum := sha256.Sum256([]byte(strings.Join([]string{host, string(machine), strconv.Itoa(os.Getuid()), runDir}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// List returns the instances that have a lock file, living or not, or files.
func List(runDir string) ([]cove.InstanceID, error) {
	entries, err := os.ReadDir(filepath.Join(runDir, Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []cove.InstanceID
	for _, e := range entries {
		name, ext, _ := strings.Cut(e.Name(), ".")
		id, err := cove.ParseInstanceID(name)
		if err == nil && (ext == "lock" || ext == "files") && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// use is the beginning of the names of the files that Note makes.
const use = "uses-"

// Note records that an instance uses an engine, before the engine makes anything: another process removes with it what
// the instance leaves when it dies.
func Note(runDir string, id cove.InstanceID, engine string) error {
	return write(runDir, id, use+engine)
}

// Noted returns the engines that an instance uses or, if it is dead, has used.
func Noted(runDir string, id cove.InstanceID) []string {
	entries, _ := os.ReadDir(of(runDir, id).Files()) // not there: it has used none
	var all []string
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), use); ok {
			all = append(all, name)
		}
	}
	return all
}

// FoundDead returns when a dead instance was first asked about.
func FoundDead(runDir string, id cove.InstanceID) (time.Time, error) {
	const name = "dead"
	info, err := os.Stat(filepath.Join(of(runDir, id).Files(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Now(), write(runDir, id, name)
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// write makes an empty file among those of an instance.
func write(runDir string, id cove.InstanceID, name string) error {
	i := of(runDir, id)
	if err := os.MkdirAll(i.Files(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(i.Files(), name), nil, 0o600)
}

// of returns an instance that may be another process's.
func of(runDir string, id cove.InstanceID) *Instance {
	return &Instance{ID: id, dir: filepath.Join(runDir, Dir)}
}

// Forget removes the files of a dead instance, once nothing else of it is left. It does nothing to a living one.
func Forget(runDir string, id cove.InstanceID) {
	if Alive(runDir, id) {
		return
	}
	of(runDir, id).remove()
}
