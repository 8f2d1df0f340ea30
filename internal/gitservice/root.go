//go:build linux

package gitservice

import (
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Where programs of Cove's own are in a companion's root.
const (
	gitProgram    = "/usr/bin/git"
	editorProgram = "/usr/libexec/cove/git-edit"
)

// execPaths lists the directories in which distributions keep git's own programs.
var execPaths = []string{"/usr/lib/git-core", "/usr/libexec/git-core"}

// libraryPaths lists the default directories of the dynamic linker, beside
// the directories of libraries that were found already.
var libraryPaths = []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/lib/x86_64-linux-gnu",
	"/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}

// MakeRoot makes, as the new directory dir, a root filesystem in which git of this machine runs and nothing else does:
// no shell, no interpreter, nothing that a repository could name as a program. editor is cove-guest. Errors:
// Unavailable when git is not installed, StorageFull.
func MakeRoot(dir, editor string) (engine.Rootfs, error) {
	r := &root{dir: dir, done: map[string]bool{}}
	err := r.fill(editor)
	if err != nil {
		os.RemoveAll(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return engine.Rootfs{}, cove.Errorf(cove.Unavailable, "git is not installed on this machine: %w", err).
				WithHint("install it: apt-get install git")
		}
		return engine.Rootfs{}, cove.Errorf(cove.StorageFull, "make a root filesystem with git: %w", err)
	}
	return engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}, nil
}

// root is a root filesystem that is being made.
type root struct {
	dir  string
	done map[string]bool
}

func (r *root) fill(editor string) error {
	for _, d := range []string{"/etc", "/tmp", "/run", "/var/tmp", "/proc", "/sys", "/dev", cove.Home, cove.WorkDir} {
		if err := os.MkdirAll(r.dir+d, 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/nologin\ncove:x:1000:1000:cove:" + cove.Home + ":/nologin\n",
		"/etc/group":         "root:x:0:\ncove:x:1000:\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	} {
		if err := os.WriteFile(r.dir+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := r.program(gitProgram, gitProgram); err != nil {
		return err
	}
	core := execPaths[0]
	for _, p := range execPaths {
		if _, err := os.Stat(p); err == nil {
			core = p
			break
		}
	}
	if err := r.program(core+"/git-remote-http", core+"/git-remote-http"); err != nil {
		return err
	}
	for name, target := range map[string]string{"/git-remote-https": "git-remote-http", "/git": gitProgram} {
		if err := os.Symlink(target, r.dir+core+name); err != nil {
			return err
		}
	}
	return r.program(editor, editorProgram)
}

// program copies one, with the libraries it needs.
func (r *root) program(from, to string) error {
	if r.done[to] {
		return nil
	}
	r.done[to] = true
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if err := copyFile(real, r.dir+to); err != nil {
		return err
	}
	f, err := elf.Open(real)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		loader := strings.TrimRight(string(name), "\x00")
		if err := r.program(loader, loader); err != nil {
			return err
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range libraries {
		found := ""
		for _, d := range append([]string{path.Dir(real)}, libraryPaths...) {
			if _, err := os.Stat(d + "/" + name); err == nil {
				found = d + "/" + name
				break
			}
		}
		if found == "" {
			return &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
		}
		if err := r.program(found, found); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
