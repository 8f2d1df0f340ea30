package repos

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// journal records the changes to a checkout in progress, so that the next process can roll back those of a killed one.
// It is stored below Cove's home, out of reach of the checkout's content, and locked as long as its writer lives. A
// stage named done holds changes that were all made.
type journal struct {
	Directory     string
	Device, Inode uint64   // of the directory
	Staging       string   // name of the staging directory in it
	Changes       []Change // in the order of execution
	Made          []string // new directories, parents first

	file *os.File
}

const (
	stagePrefix = ".cove-apply-"
	doneSuffix  = "-done"
)

func (s *Store) journals() string { return filepath.Join(s.o.Home, "applying") }

// begin writes the journal before the first change. Errors: StorageFull.
func (s *Store) begin(t *tree, dir string, todo []Change) (*journal, error) {
	name := rand.Text()
	j := &journal{Directory: dir, Device: t.owner.Dev, Inode: t.owner.Ino, Staging: stagePrefix + name, Changes: todo}
	for _, c := range todo {
		if c.New == (Entry{}) {
			continue
		}
		for dir := path.Dir(c.Path); dir != "." && !slices.Contains(j.Made, dir) && !t.has(dir); dir = path.Dir(dir) {
			j.Made = append(j.Made, dir)
		}
	}
	slices.Sort(j.Made)
	data, err := json.Marshal(j)
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "write down what is applied: %w", err)
	}
	file := filepath.Join(s.journals(), name+".json")
	if j.file, err = lock(context.Background(), file, filelock.Exclusive); err != nil {
		return nil, err
	}
	if _, err = j.file.Write(data); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return nil, errors.Join(storageFull("write down what is applied", err), j.forget())
	}
	return j, nil
}

func (j *journal) close() { j.file.Close() }

// forget removes the journal: there is nothing to roll back any more.
func (j *journal) forget() error {
	if err := os.Remove(j.file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFull("remove the journal of what was applied", err)
	}
	return nil
}

// has reports whether a directory exists.
func (t *tree) has(dir string) bool {
	fd, err := t.parent(dir+"/x", false)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// commit marks all changes as made, so that none is rolled back, and cleans up.
func (t *tree) commit(j *journal) error {
	done := j.Staging + doneSuffix
	if err := unix.Renameat(t.top, j.Staging, t.top, done); err != nil {
		return errors.Join(storageFull("write to the checkout", err), t.rollback(j))
	}
	return errors.Join(t.unstage(done), j.forget())
}

// rollback rolls back the changes of a journal, also of another process. A file that was changed since stays, and its
// former version stays in the stage. Errors: Conflict, with the place.
func (t *tree) rollback(j *journal) error {
	if t.stageFD < 0 {
		return j.forget()
	}
	var kept []string
	for i, c := range slices.Backward(j.Changes) {
		if c.New == (Entry{}) || t.onStage(staged(i)) {
			continue // it has not been moved into place
		}
		have, err := t.entry(c)
		if err == nil && (have.ID != c.New.ID || !sameKind(have.Mode, c.New.Mode)) && have != (Entry{}) {
			err = errors.New("it has changed")
		}
		if err == nil && have != (Entry{}) {
			err = t.fromPlace(c.Path, staged(i))
		}
		if err != nil {
			kept = append(kept, c.Path)
		}
	}
	for _, dir := range slices.Backward(j.Made) {
		t.rmdir(dir) // unless it is not empty
	}
	for i, c := range slices.Backward(j.Changes) {
		if t.onStage(replaced(i)) && t.toPlace(replaced(i), c.Path) != nil && !slices.Contains(kept, c.Path) {
			kept = append(kept, c.Path)
		}
	}
	if len(kept) > 0 {
		slices.Sort(kept)
		return cove.Errorf(cove.Conflict,
			"changes that were applied to %s in part cannot be taken back: %.500q was changed since", j.Directory, kept).
			WithHint("the former files are in %s; remove that directory when the checkout is right",
				filepath.Join(j.Directory, j.Staging))
	}
	return errors.Join(t.unstage(j.Staging), j.forget())
}

func (t *tree) onStage(name string) bool {
	return unix.Faccessat(t.stageFD, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// fromPlace moves the entry at a path to the stage.
func (t *tree) fromPlace(p, staged string) error {
	fd, err := t.parent(p, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Renameat(fd, path.Base(p), t.stageFD, staged)
}

// toPlace moves a staged entry to a free path.
func (t *tree) toPlace(staged, p string) error {
	fd, err := t.parent(p, true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return t.place(staged, fd, path.Base(p))
}

// unstage removes the stage, which has this name now.
func (t *tree) unstage(name string) error {
	dir := os.NewFile(uintptr(t.stageFD), name)
	t.stageFD = -1
	defer dir.Close()
	entries, err := dir.Readdirnames(-1)
	for _, entry := range entries {
		err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), entry, 0))
	}
	if err = errors.Join(err, unix.Unlinkat(t.top, name, unix.AT_REMOVEDIR)); err != nil {
		return storageFull("clean up the checkout", err)
	}
	return nil
}

// takeBack rolls back partial changes of killed processes to a directory, or to any where dir is empty. Errors:
// Conflict if that fails for this directory.
func (s *Store) takeBack(dir string) error {
	files, err := os.ReadDir(s.journals())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFull("look for what was applied in part", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		j, err := s.takeBackOne(filepath.Join(s.journals(), f.Name()))
		if j == nil && err == nil {
			continue // its writer lives
		}
		s.o.Log.Warn("what was applied in part was taken back", "journal", f.Name(), "error", err)
		if err != nil && j != nil && j.Directory == dir {
			return err
		}
	}
	return nil
}

// takeBackOne does so for one journal, and returns it.
func (s *Store) takeBackOne(file string) (*journal, error) {
	held, err := tryLock(file, filelock.Exclusive)
	if held == nil {
		return nil, err
	}
	defer held.Close()
	j := &journal{file: held}
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, j) != nil || !strings.HasPrefix(j.Staging, stagePrefix) ||
		strings.ContainsRune(j.Staging, '/') {
		return j, j.forget() // it was not completely written, so no change was begun
	}
	t, err := openTree(j.Directory)
	if cove.ErrorCode(err) == cove.NotFound || err == nil && (t.owner.Dev != j.Device || t.owner.Ino != j.Inode) {
		return j, j.forget() // the checkout is gone
	}
	if err != nil {
		return j, err
	}
	defer t.close()
	if t.openStage(j.Staging+doneSuffix) == nil {
		return j, errors.Join(t.unstage(j.Staging+doneSuffix), j.forget())
	}
	if err := t.openStage(j.Staging); err != nil && !errors.Is(err, unix.ENOENT) {
		return j, storageFull("look at the checkout", err)
	}
	return j, t.rollback(j)
}
