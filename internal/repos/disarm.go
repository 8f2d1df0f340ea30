package repos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// deepestKept bounds the directories in a row of a checkout that is kept; each holds a descriptor.
const deepestKept = 512

// keptDirectories and keptFiles are the parts that stay of a sandbox's git directory: data, and the state of a merge.
// Hooks, configuration, pointers elsewhere, and the commands of a rebase that has begun are removed.
var (
	keptDirectories = []string{"objects", "refs", "logs", "info", "modules"}
	keptFiles       = []string{"HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE",
		"CHERRY_PICK_HEAD", "REVERT_HEAD", "COMMIT_EDITMSG", "index", "packed-refs", "shallow"}
)

// disarm makes the checkout of a sandbox that is gone files of the host: no program in it has a set-user-ID or
// set-group-ID bit or capabilities, and no repository in it, at whatever depth, says what git executes. files is where
// the checkout stays, and config the configuration of its repository. It can be done again.
func disarm(checkout string, r record, files, config string) error {
	top, err := os.OpenRoot(checkout)
	if err != nil {
		return storageFull("keep the work", err)
	}
	defer top.Close()
	d := disarming{config: config}
	if r.Worktree != "" {
		hidden := r.Hidden
		if !filepath.IsAbs(hidden) {
			hidden = filepath.Join(files, hidden)
		}
		d.pointer = "gitdir: " + filepath.Join(hidden, "worktrees", r.Worktree) + "\n"
	}
	if err = d.tree(top, ".", 0); err != nil && cove.ErrorCode(err) == "" {
		err = storageFull("keep the work", err)
	}
	return err
}

type disarming struct {
	config  string // of the repository at the top
	pointer string // that is its .git, where it is a worktree
}

// tree disarms a directory, which at names from the top. What cannot be read by its owner becomes readable.
func (d disarming) tree(dir *os.Root, at string, depth int) error {
	if depth > deepestKept {
		return cove.Errorf(cove.TooLarge, "the work has more than %d directories in each other, and cannot be kept",
			deepestKept).WithHint("push or apply it, and remove the sandbox without keeping its work")
	}
	self, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()
	entries, err := self.ReadDir(-1)
	for _, e := range entries {
		if err == nil {
			err = d.entry(dir, int(self.Fd()), at, e, depth)
		}
	}
	if err != nil {
		return err
	}
	has := func(name string) bool {
		_, err := dir.Lstat(name)
		return err == nil
	}
	if inModules(at) && policy.IsGitDirectory(has) { // a submodule's
		return repository(dir, coreConfig("sha1", false))
	}
	return d.git(dir, at) // of which all is readable now
}

// inModules reports whether a directory has git directories of submodules, or is one.
func inModules(at string) bool { return strings.Contains("/"+at+"/", "/.git/modules/") }

func (d disarming) entry(dir *os.Root, fd int, at string, e fs.DirEntry, depth int) error {
	info, err := e.Info()
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0 && inModules(at):
		return dir.Remove(e.Name()) // a submodule leads there
	case info.Mode()&fs.ModeSymlink != 0:
		return nil
	}
	mode := info.Mode() & (fs.ModePerm | fs.ModeSticky)
	if info.IsDir() {
		mode |= 0o700
	}
	if mode != info.Mode()&^fs.ModeType {
		if err := dir.Chmod(e.Name(), mode); err != nil {
			return err
		}
	}
	if info.IsDir() {
		sub, err := dir.OpenRoot(e.Name())
		if err != nil {
			return err
		}
		defer sub.Close()
		return d.tree(sub, filepath.Join(at, e.Name()), depth+1)
	}
	const capabilities = "security.capability"
	name := fmt.Sprintf("/proc/self/fd/%d/%s", fd, e.Name())
	if n, err := unix.Lgetxattr(name, capabilities, nil); n <= 0 || err != nil {
		return nil
	}
	if err := unix.Lremovexattr(name, capabilities); os.Geteuid() == 0 || !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil // they hold in a user namespace alone
}

// git writes the .git of a directory anew. What leads elsewhere goes, but from a submodule to its place in the
// repository at the top.
func (d disarming) git(dir *os.Root, at string) error {
	if at == "." && d.pointer != "" {
		if err := dir.RemoveAll(".git"); err != nil {
			return err
		}
		return dir.WriteFile(".git", []byte(d.pointer), 0o644)
	}
	info, err := dir.Lstat(".git")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		git, err := dir.OpenRoot(".git")
		if err != nil {
			return err
		}
		defer git.Close()
		if at != "." {
			return repository(git, coreConfig("sha1", false))
		}
		return repository(git, d.config)
	case info.Mode().IsRegular() && info.Size() < maxLink:
		text, err := dir.ReadFile(".git")
		target := strings.TrimSpace(strings.TrimPrefix(string(text), "gitdir: "))
		if err == nil && strings.HasPrefix(filepath.Join(at, target), ".git/modules/") {
			return nil
		}
	}
	return dir.RemoveAll(".git")
}

// repository leaves the data of a git directory, and gives it a configuration.
func repository(git *os.Root, config string) error {
	entries, err := fs.ReadDir(git.FS(), ".")
	for _, e := range entries {
		if e.IsDir() && slices.Contains(keptDirectories, e.Name()) ||
			e.Type().IsRegular() && slices.Contains(keptFiles, e.Name()) {
			continue
		}
		err = errors.Join(err, git.RemoveAll(e.Name()))
	}
	head, e := git.ReadFile("HEAD") // a file, if it is there
	ref, symbolic := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: ")
	if e != nil || symbolic && !hostgit.ValidRef(ref) || !symbolic && !hostgit.ValidID(ref) {
		err = errors.Join(err, git.RemoveAll("HEAD"), git.WriteFile("HEAD", []byte("ref: refs/heads/main\n"), 0o644))
	}
	return errors.Join(err, git.MkdirAll("objects", 0o755), git.MkdirAll("refs", 0o755),
		git.WriteFile("config", []byte(config), 0o644))
}
