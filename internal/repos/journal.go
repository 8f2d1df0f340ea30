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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// journal says what is being done to a checkout, so that whoever comes after a
// process that was killed can take it back. It is below Cove's home, where
// nothing that is in a checkout decides what it says, and locked as long as its
// writer lives. A stage that is called done is one of changes that all were made.
type journal struct {
	Directory     string
	Device, Inode uint64   // of it
	Staging       string   // name of a directory in it, for files on their way
	Changes       []Change // in the order they are made in
	Made          []string // directories that were not there, after those they are in

	file *os.File
}

const (
	stagePrefix = ".cove-apply-"
	doneSuffix  = "-done"
)

func (s *Store) journals() string { return filepath.Join(s.o.Home, "applying") }

// begin writes down what is going to be done. Errors: StorageFull.
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
	if j.file, err = lock(context.Background(), filepath.Join(s.journals(), name+".json"), syscall.LOCK_EX); err != nil {
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

// forget removes it: there is nothing to be taken back any more.
func (j *journal) forget() error {
	if err := os.Remove(j.file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFull("remove the journal of what was applied", err)
	}
	return nil
}

// has reports whether a directory is there.
func (t *tree) has(dir string) bool {
	fd, err := t.parent(dir+"/x", false)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// commit says that all is done, from when on nothing is taken back, and cleans
// up.
func (t *tree) commit(j *journal) error {
	done := j.Staging + doneSuffix
	if err := unix.Renameat(t.top, j.Staging, t.top, done); err != nil {
		return errors.Join(storageFull("write to the checkout", err), t.rollback(j))
	}
	return errors.Join(t.unstage(done), j.forget())
}

// rollback takes back what was done of a journal, as far as it goes: also what
// another process did. A file that somebody has changed since stays, and what
// was there before stays on the stage. Errors: Conflict, which says where.
func (t *tree) rollback(j *journal) error {
	if t.stageFD < 0 {
		return j.forget()
	}
	var kept []string
	for i, c := range slices.Backward(j.Changes) {
		if c.New == (Entry{}) || t.onStage(staged(i)) {
			continue // it has not been put in its place
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
		t.rmdir(dir) // unless somebody has put something there
	}
	for i, c := range slices.Backward(j.Changes) {
		if t.onStage(replaced(i)) && t.toPlace(replaced(i), c.Path) != nil && !slices.Contains(kept, c.Path) {
			kept = append(kept, c.Path)
		}
	}
	if len(kept) > 0 {
		slices.Sort(kept)
		return cove.Errorf(cove.Conflict, "what was applied to %s in part cannot be taken back: somebody has changed %.500q since", j.Directory, kept).
			WithHint("what was there is in %s; remove that directory when the files are right", filepath.Join(j.Directory, j.Staging))
	}
	return errors.Join(t.unstage(j.Staging), j.forget())
}

func (t *tree) onStage(name string) bool {
	return unix.Faccessat(t.stageFD, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// fromPlace puts what is at a path on the stage.
func (t *tree) fromPlace(p, staged string) error {
	fd, err := t.parent(p, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Renameat(fd, path.Base(p), t.stageFD, staged)
}

// toPlace puts what is on the stage at a path where nothing is.
func (t *tree) toPlace(staged, p string) error {
	fd, err := t.parent(p, true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return t.place(staged, fd, path.Base(p))
}

// place puts what is on the stage in a directory, where nothing has the name.
// The error is the kernel's.
func (t *tree) place(staged string, dir int, name string) error {
	err := unix.Renameat2(t.stageFD, staged, dir, name, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// A file system that does not know of it.
	switch err := unix.Faccessat(dir, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		return unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	return unix.Renameat(t.stageFD, staged, dir, name)
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

// takeBack takes back what processes that were killed have done to a directory
// in part; to any, where dir is empty. Errors: Conflict where that is not
// possible, for this directory.
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
			continue // who writes it lives
		}
		s.o.Log.Warn("what was applied in part was taken back", "journal", f.Name(), "error", err)
		if err != nil && j != nil && j.Directory == dir {
			return err
		}
	}
	return nil
}

// takeBackOne does so for one journal, and says what is in it.
func (s *Store) takeBackOne(file string) (*journal, error) {
	held, err := tryLock(file, syscall.LOCK_EX)
	if held == nil {
		return nil, err
	}
	defer held.Close()
	j := &journal{file: held}
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, j) != nil || !strings.HasPrefix(j.Staging, stagePrefix) || strings.ContainsRune(j.Staging, '/') {
		return j, j.forget() // it was not written to its end, so nothing was begun
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
