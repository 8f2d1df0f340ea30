package sandbox

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestSnapshot: what is not committed becomes a commit, without a change to the index. Where there is nothing, no ref
// is left.
func TestSnapshot(t *testing.T) {
	const ref = "refs/cove/work"
	for name, c := range map[string]struct {
		do   func(*testing.T, gittest.Git)
		want string // whether there is a ref, and the difference to HEAD
	}{
		"no commit":  {do: func(*testing.T, gittest.Git) {}},
		"first file": {do: func(_ *testing.T, git gittest.Git) { git.Write("a", "1\n") }, want: "a ref; A\ta"},
		"committed":  {do: func(_ *testing.T, git gittest.Git) { git.Commit("one", "a", "1\n") }},
		"edited": {do: func(_ *testing.T, git gittest.Git) {
			git.Commit("one", "a", "1\n", "b", "1\n")
			git.Write("a", "22\n")
			git.Write("c", "1\n")
			git.Run("rm", "-q", "b")
		}, want: "a ref; M\ta\nD\tb\nA\tc"},
		"all removed": {do: func(_ *testing.T, git gittest.Git) {
			git.Commit("one", "a", "1\n")
			git.Run("rm", "-q", "a")
		}, want: "a ref; D\ta"},
		"in the second of the index": {do: func(t *testing.T, git gittest.Git) {
			git.Run("config", "core.trustctime", "false") // a test cannot set it
			long := time.Now().Add(-time.Hour)
			at := func(name string) {
				if err := os.Chtimes(filepath.Join(git.Dir, name), long, long); err != nil {
					t.Fatal(err)
				}
			}
			git.Write("a", "1\n")
			at("a")
			git.Run("add", "a")
			git.Run("commit", "-q", "-m", "one")
			git.Write("a", "2\n")
			at("a")
			at(".git/index")
		}, want: "a ref; M\ta"},
	} {
		t.Run(name, func(t *testing.T) {
			git := gittest.NewGit(t, t.TempDir())
			git.Run("init", "-q")
			c.do(t, git)
			index := filepath.Join(git.Dir, ".git/index")
			before, _ := os.ReadFile(index) // there may be none
			sh := exec.Command("sh", "-c", snapshot, "sh", ref)
			sh.Dir = git.Dir
			sh.Env = append(os.Environ(), "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x", "GIT_COMMITTER_NAME=x",
				"GIT_COMMITTER_EMAIL=x")
			if out, err := sh.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if after, _ := os.ReadFile(index); !bytes.Equal(after, before) {
				t.Error("the index has changed")
			}
			got := ""
			if git.Try("rev-parse", "--verify", ref).Code == 0 {
				base := "4b825dc642cb6eb9a060e54bf8d69288fbee4904" // the empty tree
				if git.Try("rev-parse", "--verify", "HEAD").Code == 0 {
					base = "HEAD"
				}
				got = "a ref; " + git.Run("diff", "--no-renames", "--name-status", base, ref)
			}
			if got != c.want {
				t.Errorf("it has %q, want %q", got, c.want)
			}
		})
	}
}
