package folder

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// unpacked has git check a pack, and returns what the commit has, its subjects, and its files.
func unpacked(t *testing.T, p *Pack) (tree, subjects string) {
	t.Helper()
	var pack bytes.Buffer
	if err := p.Write(t.Context(), &pack); err != nil {
		t.Fatal(err)
	}
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q", "--bare", "-b", "main", ".")
	if len(p.Shallow) > 0 {
		git.Write("shallow", strings.Join(p.Shallow, "\n")+"\n")
	}
	c := exec.Command("git", "index-pack", "--stdin", "--strict")
	c.Dir, c.Stdin = git.Dir, &pack
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return git.Run("ls-tree", "-r", "--format=%(objectmode) %(path)", p.Commit), git.Run("log", "--format=%s", p.Commit)
}

// everything returns the names and contents of all files below a directory.
func everything(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$1" && find . -printf '%p %m\n' && find . -type f -exec sha1sum {} +`, "sh",
		dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestPack: a repository is packed as a sandbox of this machine would begin, with or without what is not committed, and
// nothing in it changes. What was aside is gone.
func TestPack(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q", "-b", "main")
	git.Write(".gitignore", "*.log\n")
	git.Write("kept", "1\n")
	git.Write("gone", "1\n")
	git.Run("add", ".")
	git.Run("commit", "-qm", "one")
	git.Run("branch", "other")
	git.Write("kept", "2\n")
	git.Run("commit", "-qam", "two")
	git.Run("remote", "add", "origin", "https://me:secret@git.example/a/b.git")
	git.Write("kept", "3\n")
	git.Write("new", "1\n")
	git.Write("staged", "1\n")
	git.Run("add", "staged")
	git.Write("noise.log", "1\n")
	if err := os.Remove(filepath.Join(git.Dir, "gone")); err != nil {
		t.Fatal(err)
	}
	aside := t.TempDir()
	t.Setenv("TMPDIR", aside)
	before := everything(t, git.Dir)
	const committed = "100644 .gitignore\n100644 gone\n100644 kept"
	const now = "100644 .gitignore\n100644 kept\n100644 new\n100644 staged"
	for name, tt := range map[string]struct {
		want                 Wanted
		from, tree, subjects string
	}{
		"committed":       {Wanted{}, "main", committed, "two\none"},
		"uncommitted":     {Wanted{Uncommitted: true}, "main", now, "What was not committed\ntwo\none"},
		"another branch":  {Wanted{Branch: "other"}, "other", committed, "one"},
		"a new branch":    {Wanted{Branch: "fresh"}, "main", committed, "two\none"},
		"from a branch":   {Wanted{Branch: "fresh", From: "other"}, "other", committed, "one"},
		"from an absence": {Wanted{From: "nowhere"}, "", "", ""},
	} {
		p, err := NewPack(t.Context(), git.Dir, tt.want)
		if tt.tree == "" {
			if cove.ErrorCode(err) != cove.NotFound {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tree, subjects := unpacked(t, p)
		if tree != tt.tree || subjects != tt.subjects || p.From != tt.from || p.Remote != "" {
			t.Errorf("%s: %+v\n%s\n%s", name, p, tree, subjects)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := everything(t, git.Dir); after != before {
		t.Errorf("the folder has changed:\n%s\n%s", before, after)
	}
	if left, _ := os.ReadDir(aside); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// A history that ends somewhere ends there in the pack.
	cut := gittest.NewGit(t, t.TempDir())
	cut.Run("clone", "-q", "--depth", "1", "file://"+git.Dir, ".")
	p, err := NewPack(t.Context(), cut.Dir, Wanted{Uncommitted: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if tree, subjects := unpacked(t, p); tree != committed || subjects != "two" || len(p.Shallow) != 1 {
		t.Errorf("%+v\n%s\n%s", p, tree, subjects)
	}
}

// TestPackElsewhere: a repository that borrows objects is packed with those, and one that lacks objects is refused in
// words.
func TestPackElsewhere(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q", "-b", "main", "all")
	git.In("all").Run("config", "uploadpack.allowFilter", "true")
	for _, text := range []string{"one", "two"} {
		git.In("all").Commit(text, "file", text)
	}
	git.Run("clone", "-q", "--shared", "all", "shared")
	git.In("shared").Write("file", "three")
	git.Run("clone", "-q", "--filter=blob:none", "file://"+git.In("all").Dir, "partial")
	for name, code := range map[string]cove.Code{"shared": "", "partial": cove.Unsupported} {
		p, err := NewPack(t.Context(), git.In(name).Dir, Wanted{Uncommitted: true, Tell: func(string) {}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if code == "" {
			if tree, subjects := unpacked(t, p); tree != "100644 file" || subjects != "What was not committed\ntwo\none" {
				t.Errorf("%s: %s, %s", name, tree, subjects)
			}
			continue
		}
		if err := p.Write(t.Context(), &bytes.Buffer{}); cove.ErrorCode(err) != code ||
			!strings.Contains(err.Error(), "is a partial clone") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPackPlain: a folder without a repository is packed without git: its files, links and programs, each content once.
func TestPackPlain(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewPack(t.Context(), dir, Wanted{}); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("without --uncommitted: %v", err)
	}
	files := map[string]string{"a.txt": "1\n", "a/b": strings.Repeat("long ", 1000), "a/c": "1\n", "empty": "",
		"é/ü":              "2\n",
		"nested/.git/HEAD": "ref: refs/heads/main\n", "nested/x": "1\n"}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{os.WriteFile(filepath.Join(dir, "run"), []byte("1\n"), 0o755),
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "hollow"), 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	program, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	p, err := NewPack(t.Context(), dir, Wanted{Uncommitted: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(program)+":"+path)
	const want = "100644 a.txt\n100644 a/b\n100644 a/c\n100644 empty\n120000 link\n" +
		"100755 run\n100644 \"\\303\\251/\\303\\274\""
	if tree, subjects := unpacked(t, p); tree != want || subjects != "What was in the directory" {
		t.Errorf("%s\n%s", tree, subjects)
	}
	if err := os.WriteFile(filepath.Join(dir, "a/b"), []byte("2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), new(bytes.Buffer)); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("a file that has changed: %v", err)
	}
}
