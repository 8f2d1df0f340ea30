package repos

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

const (
	maxLink    = 4096      // bytes of a symlink
	maxApplied = 128 << 20 // bytes of all written files
)

// tree is a directory in which no symlink is followed.
type tree struct {
	top     int // descriptor
	stageFD int // of the staging directory in it; -1 while there is none
	owner   unix.Stat_t
	forms   map[placed][]byte // of files that git writes in another form than it stores them
}

// placed is a stored content at a path, whose attributes may give its file another form: CRLF, another encoding, $Id$.
type placed struct{ path, id string }

// place moves a staged entry into a directory, under a free name. The error is the kernel's.
func (t *tree) place(staged string, dir int, name string) error {
	err := unix.Renameat2(t.stageFD, staged, dir, name, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// The file system lacks RENAME_NOREPLACE.
	switch err := unix.Faccessat(dir, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		return unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	return unix.Renameat(t.stageFD, staged, dir, name)
}

func openTree(dir string) (*tree, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, cove.Errorf(cove.NotFound, "the directory %q cannot be opened: %w", dir, err)
	}
	t := &tree{top: fd, stageFD: -1}
	if err := unix.Fstat(fd, &t.owner); err != nil {
		t.close()
		return nil, storageFull("look at the checkout", err)
	}
	return t, nil
}

func (t *tree) close() {
	unix.Close(t.top)
	if t.stageFD >= 0 {
		unix.Close(t.stageFD)
	}
}

// parent opens the directory of a path, and optionally makes it. The error is the kernel's.
func (t *tree) parent(p string, make bool) (fd int, err error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	dir := path.Dir(p)
	if !make || dir == "." {
		return unix.Openat2(t.top, dir, how)
	}
	above, err := t.parent(dir, true)
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	switch err := unix.Mkdirat(above, path.Base(dir), 0o777); {
	case err == nil:
		t.own(above, path.Base(dir))
	case !errors.Is(err, unix.EEXIST):
		return -1, err
	}
	return unix.Openat2(t.top, dir, how)
}

func (t *tree) rmdir(dir string) error {
	fd, err := t.parent(dir, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Unlinkat(fd, path.Base(dir), unix.AT_REMOVEDIR)
}

// own gives an entry made by root to the owner of the checkout.
func (t *tree) own(dir int, name string) {
	if os.Geteuid() == 0 {
		unix.Fchownat(dir, name, int(t.owner.Uid), int(t.owner.Gid), unix.AT_SYMLINK_NOFOLLOW)
	}
}

// pending returns the changes that are not in the checkout yet, deletions first. For a file that differs from the
// sandbox's base, meet returns the change to make instead: none where Old and New are the same. Errors: Conflict.
func (t *tree) pending(changes []Change, meet func(c Change, have Entry, why error) (Change, error)) ([]Change, error) {
	var todo []Change
	for _, c := range changes {
		have, err := t.entry(c)
		if err != nil {
			return nil, err
		}
		if have.ID, err = t.stored(c, have); err != nil {
			return nil, err
		}
		if have == c.New || have.ID == c.New.ID && sameKind(have.Mode, c.New.Mode) && c.Old.Mode == c.New.Mode {
			continue
		}
		if have.ID != c.Old.ID || !sameKind(have.Mode, c.Old.Mode) {
			why := conflict(c.Path, "it is not as the sandbox found it")
			if have == (Entry{}) {
				why = conflict(c.Path, "it is not there")
			}
			if c, err = meet(c, have, why); err != nil {
				return nil, err
			}
			if c.Old == c.New {
				continue
			}
		}
		todo = append(todo, c)
	}
	slices.SortStableFunc(todo, func(a, b Change) int {
		return map[bool]int{true: 0, false: 1}[a.New == Entry{}] - map[bool]int{true: 0, false: 1}[b.New == Entry{}]
	})
	return todo, nil
}

// entry returns the entry at a change's path. It ignores a directory whose files are all removed, and a path below a
// removed file: exchange checks them.
func (t *tree) entry(c Change) (Entry, error) {
	fd, err := t.parent(c.Path, false)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return Entry{}, nil
	case errors.Is(err, unix.ELOOP):
		return Entry{}, conflict(c.Path, "it is below a symbolic link")
	case err != nil:
		return Entry{}, storageFull("look at the checkout", err)
	}
	defer unix.Close(fd)
	name := path.Base(c.Path)
	var st unix.Stat_t
	err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, storageFull("look at the checkout", err)
	}
	length := len(c.New.ID + c.Old.ID)
	if c.New.ID != "" && c.Old.ID != "" {
		length /= 2
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return Entry{}, nil
	case unix.S_IFLNK:
		target := make([]byte, maxLink)
		n, err := unix.Readlinkat(fd, name, target)
		if err != nil {
			return Entry{}, storageFull("look at the checkout", err)
		}
		id, err := blobID(length, bytes.NewReader(target[:n]), int64(n))
		return Entry{policy.Symlink, id}, err
	case unix.S_IFREG:
	default:
		return Entry{}, conflict(c.Path, "something else than a file is there")
	}
	f, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Entry{}, storageFull("look at the checkout", err)
	}
	file := os.NewFile(uintptr(f), name)
	defer file.Close()
	id, err := blobID(length, file, st.Size)
	mode := policy.File
	if st.Mode&0o100 != 0 {
		mode = policy.Program
	}
	return Entry{mode, id}, err
}

// stage writes all new files beside the old ones, so that most failures come before any change.
func (t *tree) stage(name string, todo []Change, content map[string][]byte) error {
	err := unix.Mkdirat(t.top, name, 0o700)
	if err == nil {
		err = t.openStage(name)
	}
	if err != nil {
		return storageFull("write to the checkout", err)
	}
	for i, c := range todo {
		var err error
		switch c.New.Mode {
		case 0:
			continue
		case policy.Symlink:
			err = unix.Symlinkat(c.Link, t.stageFD, staged(i))
		default:
			data, ok := t.form(c.Path, c.New, content)
			if !ok {
				return cove.Errorf(cove.Corrupt, "the content of %q is not there", c.Path)
			}
			err = t.write(staged(i), data, map[bool]uint32{false: 0o666, true: 0o777}[c.New.Mode == policy.Program])
		}
		if err != nil {
			return storageFull("write to the checkout", err)
		}
		t.own(t.stageFD, staged(i))
	}
	return nil
}

// openStage opens the staging directory. The error is the kernel's.
func (t *tree) openStage(name string) error {
	fd, err := unix.Openat(t.top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		t.stageFD = fd
	}
	return err
}

func (t *tree) write(name string, data []byte, mode uint32) error {
	fd, err := unix.Openat(t.stageFD, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func isFile(e Entry) bool { return e.Mode == policy.File || e.Mode == policy.Program }

// refuse returns the error of objections, except those that the caller accepts.
func refuse(all []Objection, restricted bool) error {
	all = slices.DeleteFunc(all, func(o Objection) bool { return o.Asked && restricted })
	if len(all) == 0 {
		return nil
	}
	err := cove.Errorf(cove.Forbidden, "%q is not applied: %s", all[0].Path, all[0].Why)
	if len(all) > 1 {
		err = cove.Errorf(cove.Forbidden, "%d files are not applied: %s", len(all), listed(all))
	}
	if slices.ContainsFunc(all, func(o Objection) bool { return !o.Asked }) {
		return err.WithHint("leave out what is refused by naming the paths that you want")
	}
	return err.WithHint("look at what they do; --allow-restricted applies them, and naming paths leaves them out")
}

// listed names the files of objections, with each reason behind those that it is about.
func listed(all []Objection) string {
	var b strings.Builder
	for i, o := range all {
		if i == mostObjections {
			fmt.Fprintf(&b, ", and %d more", len(all)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(o.Path))
		if i == len(all)-1 || i == mostObjections-1 || all[i+1].Why != o.Why {
			b.WriteString(" (" + o.Why + ")")
		}
	}
	return b.String()
}

// mostObjections is how many refused files an error names.
const mostObjections = 20

func conflict(path, why string) error {
	return cove.Errorf(cove.Conflict, "%q cannot be changed: %s", path,
		why).WithHint("nothing was applied; commit or stash what you have, or merge: --3way")
}

// sameKind ignores the executable bit, which some file systems lack.
func sameKind(a, b policy.Mode) bool {
	return a == b || a != 0 && b != 0 && a != policy.Symlink && b != policy.Symlink
}

// blobID returns git's id of a content: SHA-1 for ids of 40 digits.
func blobID(length int, content io.Reader, size int64) (string, error) {
	var sum hash.Hash = sha1.New()
	if length == 64 {
		sum = sha256.New()
	}
	fmt.Fprintf(sum, "blob %d\x00", size)
	if n, err := io.Copy(sum, io.LimitReader(content, size+1)); err != nil || n != size {
		return "", cove.Errorf(cove.Conflict, "a file changes while it is read: %v", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Names in the staging directory: of new and of replaced files.
func staged(i int) string { return "new-" + strconv.Itoa(i) }

func replaced(i int) string { return "old-" + strconv.Itoa(i) }

// exchange puts one change in place, and keeps the former file.
func (t *tree) exchange(i int, c Change) error {
	fd, err := t.parent(c.Path, c.New != Entry{})
	if err != nil {
		return conflict(c.Path, "its directory is not one: "+err.Error())
	}
	defer unix.Close(fd)
	name := path.Base(c.Path)
	if c.Old != (Entry{}) {
		if err := unix.Renameat(fd, name, t.stageFD, replaced(i)); err != nil {
			return storageFull("write to the checkout", err)
		}
	}
	if c.New == (Entry{}) {
		t.prune(path.Dir(c.Path))
		return nil
	}
	// Only an empty directory can be in the way. A file that was created since the check is not replaced.
	unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
	err = t.place(staged(i), fd, name)
	if errors.Is(err, unix.EEXIST) {
		return conflict(c.Path, "something else is there")
	}
	if err != nil {
		return storageFull("write to the checkout", err)
	}
	return nil
}

// prune removes directories that have become empty, as git does.
func (t *tree) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if t.rmdir(dir) != nil {
			return
		}
	}
}

// stored returns the id of the stored content that a file has in its working form, or the id of the file itself.
func (t *tree) stored(c Change, have Entry) (string, error) {
	for _, e := range []Entry{c.New, c.Old} {
		if form, ok := t.forms[placed{c.Path, e.ID}]; ok && isFile(have) {
			id, err := blobID(len(e.ID), bytes.NewReader(form), int64(len(form)))
			if err != nil || id == have.ID {
				return e.ID, err
			}
		}
	}
	return have.ID, nil
}

// form returns the content of the file that a change makes.
func (t *tree) form(path string, e Entry, content map[string][]byte) (data []byte, ok bool) {
	if data, ok = t.forms[placed{path, e.ID}]; !ok {
		data, ok = content[e.ID]
	}
	return data, ok
}
