package repos

import (
	"bytes"
	"context"
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
	"github.com/cove-sandbox/cove/internal/hostgit"
)

const (
	maxLink    = 4096      // bytes of a symlink
	maxApplied = 128 << 20 // bytes of all written files
)

// contents reads blobs of at most most bytes in total. Errors: TooLarge.
func (s *Store) contents(ctx context.Context, dir string, ids []string, most int64) (map[string][]byte, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	out, err := s.git(ctx, nil, hostgit.Run{Dir: dir, Command: []string{"cat-file"},
		Flags: []string{"--batch", "--buffer"}, Stdin: strings.NewReader(strings.Join(ids, "\n") + "\n"),
		MaxOutput: most + int64(len(ids))*128}) // and a line for each
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		parts := strings.Fields(string(line)) // id, type, size
		size := int64(-1)
		if len(parts) == 3 && parts[1] == "blob" {
			if size, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
				size = -1
			}
		}
		if size < 0 || size >= int64(len(rest)) {
			return nil, cove.Errorf(cove.Corrupt, "git does not give the content of %.100q", line)
		}
		all[parts[0]], out = rest[:size], rest[size+1:] // with its newline
	}
	return all, nil
}

// ApplyStyle configures Apply.
type ApplyStyle struct {
	Restricted bool // include files that affect what others execute
	Merge      bool // merge files that both sides have changed
}

// Applied is the result of Apply.
type Applied struct {
	Changes   []Change
	Merged    []string // paths of changes that were merged with the checkout's own
	Conflicts []Clash  // changes that were not applied, or not entirely
}

// Apply applies imported work to a person's checkout, entirely or not at all. A file that differs from the sandbox's
// base is a Conflict, or merged. dir must have passed package hostpath; no symlink in it is followed. If the process is
// killed in between, the next one rolls the changes back. Errors: NotFound, Forbidden (see Judge), Conflict, TooLarge,
// StorageFull.
func (s *Store) Apply(ctx context.Context, id cove.SandboxID, w Work, dir string, style ApplyStyle) (Applied, error) {
	sp, err := s.span(ctx, id, w)
	if err != nil {
		return Applied{}, err
	}
	changes, err := s.changes(ctx, sp, ChangeStyle{})
	if err != nil {
		return Applied{}, err
	}
	if err := refuse(Judge(changes), style.Restricted); err != nil {
		return Applied{}, err
	}
	var ids []string
	for _, c := range changes {
		if isFile(c.New) {
			ids = append(ids, c.New.ID)
		}
	}
	content, err := s.contents(ctx, sp.dir, ids, maxApplied)
	if err != nil {
		return Applied{}, err
	}
	if err := s.takeBack(dir); err != nil {
		return Applied{}, err
	}
	t, err := openTree(dir)
	if err != nil {
		return Applied{}, err
	}
	defer t.close()
	done := Applied{Changes: changes}
	meet := func(c Change, _ Entry, why error) (Change, error) { return c, why }
	if style.Merge {
		meet = func(c Change, have Entry, _ error) (Change, error) {
			return s.merge(ctx, sp.dir, t, c, have, content, &done)
		}
	}
	todo, err := t.pending(changes, meet)
	if err != nil || len(todo) == 0 {
		return done, err
	}
	return done, s.make(t, dir, todo, content)
}

func isFile(e Entry) bool { return e.Mode == policy.File || e.Mode == policy.Program }

// refuse returns the error of objections, except those that the caller accepts.
func refuse(all []Objection, restricted bool) error {
	all = slices.DeleteFunc(all, func(o Objection) bool { return o.Asked && restricted })
	if len(all) == 0 {
		return nil
	}
	more := ""
	if len(all) > 1 {
		more = fmt.Sprintf(", and %d more", len(all)-1)
	}
	err := cove.Errorf(cove.Forbidden, "%q is not applied: %s%s", all[0].Path, all[0].Why, more)
	if slices.ContainsFunc(all, func(o Objection) bool { return !o.Asked }) {
		return err.WithHint("leave it out by naming the paths that you want")
	}
	return err.WithHint("look at it, and ask for restricted files, or name the paths that you want")
}

// make applies judged changes to a directory, or none of them.
func (s *Store) make(t *tree, dir string, todo []Change, content map[string][]byte) error {
	j, err := s.begin(t, dir, todo)
	if err != nil {
		return err
	}
	defer j.close()
	err = t.stage(j.Staging, todo, content)
	for i := 0; i < len(todo) && err == nil; i++ {
		err = t.exchange(i, todo[i])
	}
	if err != nil {
		return errors.Join(err, t.rollback(j))
	}
	return t.commit(j)
}

// tree is a directory in which no symlink is followed.
type tree struct {
	top     int // descriptor
	stageFD int // of the staging directory in it; -1 while there is none
	owner   unix.Stat_t
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

func conflict(path, why string) error {
	return cove.Errorf(cove.Conflict, "%q cannot be changed: %s", path,
		why).WithHint("nothing was applied; commit or stash what you have, or merge: --3way")
}

// sameKind ignores the executable bit, which some file systems lack.
func sameKind(a, b policy.Mode) bool {
	return a == b || a != 0 && b != 0 && a != policy.Symlink && b != policy.Symlink
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
			data, ok := content[c.New.ID]
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

// Names in the staging directory: of new and of replaced files.
func staged(i int) string   { return "new-" + strconv.Itoa(i) }
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
