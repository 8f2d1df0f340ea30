package flags

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestGitIdentity: commits inside are of whom git names in the repository, then of whom it names everywhere.
func TestGitIdentity(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	config := "[user]\n\tname = Everywhere\n\temail = everywhere@git.test\n"
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	repository := gittest.NewGit(t, t.TempDir())
	repository.Run("init", "-q", ".")
	repository.Run("config", "user.email", "here@git.test")
	environment := map[string]string{"EMAIL": "unused@git.test"}
	for _, c := range []struct {
		dir, author string
		want        api.GitIdentity
	}{
		{"", "", api.GitIdentity{Name: "Everywhere", Email: "everywhere@git.test"}},
		{repository.Dir, "", api.GitIdentity{Name: "Everywhere", Email: "here@git.test"}},
		{repository.Dir, "Of the shell", api.GitIdentity{Name: "Of the shell", Email: "here@git.test"}},
	} {
		environment["GIT_AUTHOR_NAME"] = c.author
		got := GitIdentity(func(name string) string { return environment[name] }, c.dir)
		if got == nil || *got != c.want {
			t.Errorf("in %q: %+v, want %+v", c.dir, got, c.want)
		}
	}
}

// TestLikeDirectory: OWNER/REPO that is a directory here, too, is said to be GitHub's.
func TestLikeDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("w/site", 0o700); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"w/site":     "w/site is a repository of GitHub; write ./w/site for the directory",
		"w/other":    "",
		"./w/site":   "",
		"https://x/": "",
	} {
		if got := LikeDirectory(source); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// TestIdentityWithPipes: a repository in which git would wait for a writer is not asked.
func TestIdentityWithPipes(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Skipf("git does not run: %v %s", err, out)
	}
	config := filepath.Join(dir, ".git/config")
	if err := errors.Join(os.Remove(config), unix.Mkfifo(config, 0o600)); err != nil {
		t.Fatal(err)
	}
	if id := GitIdentity(func(string) string { return "" }, dir); id != nil {
		t.Errorf("%+v", id)
	}
}
