package repos

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestKeptRunsNothing: the person's next command of git in work that was kept runs no program that the sandbox has
// chosen, wherever a repository of it lies, and none of its files is set-user-ID.
func TestKeptRunsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	lib := server.Create("lib.git")
	s := newStore(t, server)
	if os.Geteuid() == 0 {
		s = diskStore(t, server)
	}
	for _, disk := range []bool{false, true} {
		want := ownSpec("quiet-heron", workspace.Repository{Source: repo.URL})
		if disk {
			if os.Geteuid() != 0 {
				t.Log("without root there are no disks of their own to try")
				continue
			}
			want = onDisk(want, 32<<20, 3000)
		}
		w := create(t, s, want)
		marker := filepath.Join(t.TempDir(), "marker")
		arm(t, server.Client(), w.Directory, lib.URL, "touch "+marker+"; false")
		for _, dir := range []string{"", "embedded", "sub", "pointed", "linked"} {
			ordinary(filepath.Join(w.Directory, dir), "-c", "safe.directory=*", "status")
			if err := os.Remove(marker); err != nil {
				t.Errorf("in %q git runs nothing before, so that this shows nothing: %v", dir, err)
			}
		}
		if err := s.Remove(t.Context(), w.ID, true); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"", "embedded", "sub", "pointed", "linked"} {
			for _, args := range [][]string{{"status"}, {"commit", "-q", "--allow-empty", "-m", "mine"},
				{"rebase", "--continue"}} {
				out := ordinary(filepath.Join(w.Directory, dir), append([]string{"-c", "safe.directory=*"}, args...)...)
				if exists(marker) {
					t.Errorf("%v: in %q git %v runs what the sandbox chose: %s", disk, dir, args, out)
					os.Remove(marker)
				}
			}
		}
		if out := ordinary(w.Directory, "-c", "safe.directory=*", "log", "--oneline"); !strings.Contains(out, "mine") ||
			!strings.Contains(out, "work") || strings.Contains(out, "fatal") {
			t.Errorf("%v: the history is lost: %s", disk, out)
		}
		out := ordinary(filepath.Join(w.Directory, "sub"), "-c", "safe.directory=*", "log", "--oneline")
		if strings.Contains(out, "fatal") {
			t.Errorf("%v: the history of the submodule is lost: %s", disk, out)
		}
		if err := filepath.WalkDir(w.Directory, func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
				t.Errorf("%v: %s is %v", disk, name, info.Mode())
			}
			if n, _ := unix.Lgetxattr(name, "security.capability", nil); n > 0 {
				t.Errorf("%v: %s has capabilities", disk, name)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if made := hostpath.Kept(t.Context(), w.Directory); strings.Join(made.Git, " ") != "bare pointed/it" ||
			strings.Join(made.Files, " ") != ".envrc .gitmodules" || made.Beyond != "" {
			t.Errorf("%v: named are %+v", disk, made)
		}
		if exists(w.Directory, "dir/.git") || !exists(w.Directory, "bare/config") {
			t.Errorf("%v: what leads elsewhere stays, or what is named went", disk)
		}
	}
}

// arm does in a checkout what a sandbox can.
func arm(t *testing.T, c gittest.Git, dir, lib, command string) {
	t.Helper()
	git := c.In(dir)
	git.Commit("work", "file", "work\n")
	git.Run("submodule", "-q", "add", lib, "sub")
	c.Run("clone", "-q", lib, filepath.Join(dir, "embedded"))
	git.Run("add", "embedded")
	git.Run("commit", "-q", "-m", "work")
	git.Run("init", "-q", "--bare", "bare")
	git.Run("--git-dir=bare", "config", "core.bare", "false")
	git.Run("init", "-q", "pointed")
	if err := errors.Join(os.Rename(filepath.Join(dir, "pointed/.git"), filepath.Join(dir, "pointed/it")),
		os.WriteFile(filepath.Join(dir, "pointed/.git"), []byte("gitdir: it\n"), 0o644),
		os.Symlink("../../bare", filepath.Join(dir, ".git/modules/linked")), os.Mkdir(filepath.Join(dir, "linked"), 0o755),
		os.WriteFile(filepath.Join(dir, "linked/.git"), []byte("gitdir: ../.git/modules/linked\n"), 0o644),
		os.Mkdir(filepath.Join(dir, "dir"), 0o755), os.Symlink("../bare", filepath.Join(dir, "dir/.git"))); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{".git", ".git/modules/sub", "embedded/.git", "pointed/it", "bare"} {
		git.Run("--git-dir="+place, "config", "core.fsmonitor", command)
		hook := filepath.Join(dir, place, "hooks/pre-commit")
		if err := errors.Join(os.MkdirAll(filepath.Dir(hook), 0o755),
			os.WriteFile(hook, []byte("#!/bin/sh\n"+command+"\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	git.Write(".envrc", command)
	git.Write(".git/rebase-merge/git-rebase-todo", "exec "+command+"\n")
	git.Write("deep/program", "\x7fELF")
	program := filepath.Join(dir, "deep/program")
	if err := errors.Join(os.Chmod(program, 0o6755|fs.ModeSetuid|fs.ModeSetgid),
		os.Chmod(filepath.Join(dir, "deep"), 0)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // cap_net_raw+ep, of version 2
		capability := append([]byte{1, 0, 0, 2, 0, 0x20}, make([]byte, 14)...)
		if err := unix.Setxattr(program, "security.capability", capability, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeptTooDeep: work that cannot be looked through is not kept, which is said before anything is gone.
func TestKeptTooDeep(t *testing.T) {
	s := newStore(t, nil)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron"})
	deep := w.Directory
	for range deepestKept + 1 {
		deep += "/d"
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), w.ID, true); cove.ErrorCode(err) != cove.TooLarge || !exists(deep) {
		t.Errorf("%v", err)
	}
	if err := s.Remove(t.Context(), w.ID, false); err != nil {
		t.Error(err)
	}
}
