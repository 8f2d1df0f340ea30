package repos

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// deepestBorrowing is the number of repositories in a row that git borrows from.
const deepestBorrowing = 5

// borrowing judges the directories in which git finds a repository's objects.
type borrowing struct {
	git   string // the repository
	home  string // Cove's own
	store string // of mirrors
	owner uint32 // of the repository
	found []string
}

// checkObjects judges where git reads the objects of a repository of this machine: in its own directory, and in those
// that it borrows from (objects/info/alternates), which may borrow in turn. It returns those outside the store. Each is
// judged as the directory of a project is: its author chose it, and its contents come into a sandbox. The person's own
// repository may borrow where the person may read; another user's may borrow from that user alone; and a checkout in
// Cove's home, whose author is a sandbox, from the store alone. Errors: Forbidden.
func (s *Store) checkObjects(git string) ([]string, error) {
	home, err := filepath.EvalSymlinks(s.o.Home)
	if err != nil {
		return nil, storageFull("find the store", err)
	}
	store, err := filepath.EvalSymlinks(s.repos)
	if err != nil {
		return nil, storageFull("find the store", err)
	}
	b := &borrowing{git: git, home: home + "/", store: store + "/"}
	info, err := os.Lstat(git)
	if err != nil {
		return nil, b.refused("objects that cannot be read")
	}
	b.owner = ownerOf(info)
	return b.found, b.judge(filepath.Join(git, "objects"), 0)
}

func (b *borrowing) refused(what string) error {
	return cove.Errorf(cove.Forbidden, "the repository %s has %s", b.git, what).
		WithHint(`make it whole, if you trust it: "git repack -a -d", then remove objects/info/alternates`)
}

// judge judges a directory of objects, and those that it borrows from.
func (b *borrowing) judge(objects string, depth int) error {
	err := filepath.WalkDir(objects, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return b.refused("objects that cannot be read")
		case d.Type()&fs.ModeSymlink != 0:
			return b.refused("objects that are symbolic links")
		case depth == 0 || b.owner == uint32(os.Geteuid()):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return b.refused("objects that cannot be read")
		}
		if ownerOf(info) != b.owner {
			return b.refused("objects of another one (objects/info/alternates), which belongs to another user: " + objects)
		}
		return nil
	})
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(objects, "info/alternates"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return b.refused("objects that cannot be read")
	}
	for line := range strings.SplitSeq(string(text), "\n") { // as git reads it
		if line == "" || line[0] == '#' {
			continue
		}
		if err := b.alternate(objects, line, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// alternate judges one line of objects/info/alternates.
func (b *borrowing) alternate(objects, line string, depth int) error {
	const what = "objects of another one (objects/info/alternates), "
	other := line
	if !filepath.IsAbs(other) {
		other = objects + "/" + other // not cleaned: symbolic links come before what is above them
	}
	other, err := filepath.EvalSymlinks(other)
	inside := func(tree string) bool { return strings.HasPrefix(other, tree) }
	switch {
	case err != nil: // also a path in quotes
		return b.refused(what + "which is not there: " + line)
	case inside(b.store), other == filepath.Join(b.git, "objects"), slices.Contains(b.found, other):
		return nil
	case inside(b.home) || strings.HasPrefix(b.git, b.home):
		return b.refused(what + "in or from what belongs to a sandbox: " + other)
	case depth > deepestBorrowing:
		return b.refused(what + "which has objects of others, and so on: more than git reads")
	}
	if _, err := hostpath.CheckProject(other); err != nil {
		return cove.Errorf(cove.Forbidden, "the repository %s has %s: %w", b.git, strings.TrimSuffix(what, ", "), err)
	}
	b.found = append(b.found, other)
	return b.judge(other, depth)
}

func ownerOf(info fs.FileInfo) uint32 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid
	}
	return 0
}
