package repos

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/workspace"
)

func TestJudge(t *testing.T) {
	blob := Entry{policy.File, strings.Repeat("1", 40)}
	for _, tt := range []struct {
		change  Change
		refused bool
		asked   bool
	}{
		{Change{Path: "a", New: blob}, false, false},
		{Change{Path: "dir/ü/\U0001F600.txt", New: blob}, false, false},
		{Change{Path: ".gitignore", New: blob}, false, false},
		{Change{Path: "..a/b..", New: blob}, false, false},
		{Change{Path: "git~a", New: blob}, false, false},
		{Change{Path: ".gitx/y", New: blob}, false, false},
		{Change{Path: "a", Old: blob}, false, false},
		{Change{Path: "a", Old: blob, New: Entry{policy.Program, blob.ID}}, false, false},

		{Change{Path: "", New: blob}, true, false},
		{Change{Path: "/a", New: blob}, true, false},
		{Change{Path: "../a", New: blob}, true, false},
		{Change{Path: "a/../../b", New: blob}, true, false},
		{Change{Path: "a/./b", New: blob}, true, false},
		{Change{Path: "a//b", New: blob}, true, false},
		{Change{Path: "a/", New: blob}, true, false},
		{Change{Path: "..", New: blob}, true, false},
		{Change{Path: `..\a`, New: blob}, true, false},
		{Change{Path: `a\..\..\b`, New: blob}, true, false},
		{Change{Path: "a\x00b", New: blob}, true, false},
		{Change{Path: "a\rb", New: blob}, true, false},
		{Change{Path: "a\nb", New: blob}, true, false},
		{Change{Path: "a\x1b[31m", New: blob}, true, false},
		{Change{Path: "a\xff", New: blob}, false, false},
		{Change{Path: strings.Repeat("a", 256), New: blob}, true, false},
		{Change{Path: strings.Repeat("a/", 3000) + "a", New: blob}, true, false},
		{Change{Path: ".git", New: blob}, true, false},
		{Change{Path: ".git/config", New: blob}, true, false},
		{Change{Path: ".git/config", Old: blob}, true, false},
		{Change{Path: "a/.git/hooks/x", New: blob}, true, false},
		{Change{Path: ".GIT/config", New: blob}, true, false},
		{Change{Path: ".gIt", New: blob}, true, false},
		{Change{Path: ".git /config", New: blob}, true, false},
		{Change{Path: ".git./config", New: blob}, true, false},
		{Change{Path: ".git . ./config", New: blob}, true, false},
		{Change{Path: ".git::$INDEX_ALLOCATION/config", New: blob}, true, false},
		{Change{Path: "git~1/config", New: blob}, true, false},
		{Change{Path: "GIT~1", New: blob}, true, false},
		{Change{Path: "git~23", New: blob}, true, false},
		{Change{Path: ".g\u200cit/config", New: blob}, true, false},
		{Change{Path: "\ufeff.git", New: blob}, true, false},
		{Change{Path: ".\u202egit\u206f", New: blob}, true, false},
		{Change{Path: `a\.git\config`, New: blob}, true, false},
		{Change{Path: `.git\config`, New: blob}, true, false},
		{Change{Path: `a\`, New: blob}, true, false},

		{Change{Path: "sub", New: Entry{policy.Gitlink, blob.ID}}, true, false},
		{Change{Path: "sub", Old: Entry{policy.Gitlink, blob.ID}}, true, false},
		{Change{Path: "odd", New: Entry{0o040000, blob.ID}}, true, false},
		{Change{Path: "odd", New: Entry{0o104755, blob.ID}}, true, false},

		{Change{Path: ".github/workflows/x.yml", New: blob}, true, true},
		{Change{Path: ".GitHub/Workflows/x.yml", New: blob}, true, true},
		{Change{Path: ".github/workflows/x.yml", Old: blob}, true, true},
		{Change{Path: "docs/CODEOWNERS", New: blob}, true, true},
		{Change{Path: ".gitmodules", New: blob}, true, true},
		{Change{Path: "a/.gitattributes", New: blob}, true, true},
		{Change{Path: ".vscode/tasks.json", New: blob}, true, true},
		{Change{Path: ".husky/pre-commit", New: blob}, true, true},
	} {
		got := Judge([]Change{tt.change}, Checkout{})
		if (len(got) > 0) != tt.refused || len(got) > 0 && got[0].Asked != tt.asked {
			t.Errorf("%.60q: %+v", tt.change.Path, got)
		}
	}
}

func TestJudgeLinks(t *testing.T) {
	for _, tt := range []struct {
		at, target string
		refused    bool
	}{
		{"a", "b", false}, {"a", "./b/c", false}, {"d/a", "../b", false}, {"d/e/a", "../../b", false}, {"d/a", "b", false},
		{"d/a", "..", false}, {"a", ".", false},
		{"a", "", true}, {"a", "/etc/passwd", true}, {"a", "..", true}, {"a", "../b", true}, {"d/a", "../../b", true},
		{"a", "b/../../c", true}, {"a", "b/../c", true},
		{"d/a", "./../../x", true}, {"a", ".git/config", true}, {"d/a", "../.GIT/hooks", true}, {"a", "git~1/x", true},
		{"a", strings.Repeat("a/", 3000), true},
	} {
		c := Change{Path: tt.at, New: Entry{policy.Symlink, strings.Repeat("1", 40)}, Link: tt.target, LinkKnown: true}
		if got := Judge([]Change{c}, Checkout{}); (len(got) > 0) != tt.refused {
			t.Errorf("%s to %.60q: %+v", tt.at, tt.target, got)
		}
		c.LinkKnown = false
		if len(Judge([]Change{c}, Checkout{})) == 0 {
			t.Errorf("%s: a link of which nobody knows where it leads", tt.at)
		}
	}
}

// stays reports whether an accepted path stays in its directory, and outside git's, by the plainest reading.
func stays(p string) bool {
	lower := strings.ToLower(strings.ReplaceAll(p, `\`, "/"))
	clean := path.Clean("/root/" + lower)
	return strings.HasPrefix(clean, "/root/") && clean == "/root/"+lower &&
		!slices.Contains(strings.Split(lower, "/"), ".git") && filepath.IsLocal(p)
}

func FuzzJudge(f *testing.F) {
	for _, s := range []string{"a", ".git/x", "a/../b", "GIT~1", ".g\u200dit", `a\b`, "a/b/"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, p, target string) {
		if len(Judge([]Change{{Path: p, New: Entry{policy.File, strings.Repeat("1", 40)}}}, Checkout{})) == 0 && !stays(p) {
			t.Errorf("%q is let through", p)
		}
		link := Change{Path: p, New: Entry{policy.Symlink, strings.Repeat("1", 40)}, Link: target, LinkKnown: true}
		if len(Judge([]Change{link}, Checkout{})) == 0 {
			if end := path.Join("/root", path.Dir(p), target); path.IsAbs(target) ||
				end != "/root" && !strings.HasPrefix(end, "/root/") {
				t.Errorf("%q to %q is let through", p, target)
			}
		}
	})
}

// TestSpellings: no file system's spelling of .git is accepted.
func TestSpellings(t *testing.T) {
	ignored := []rune{0x200c, 0x200d, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x206a, 0x206b, 0x206c,
		0x206d, 0x206e, 0x206f, 0xfeff}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for _, c := range ".git" {
			for range rapid.IntRange(0, 2).Draw(t, "ignored") {
				b.WriteRune(rapid.SampledFrom(ignored).Draw(t, "rune"))
			}
			if rapid.Bool().Draw(t, "upper") {
				c = rune(strings.ToUpper(string(c))[0])
			}
			b.WriteRune(c)
		}
		b.WriteString(rapid.StringMatching(`[ .]{0,4}(:[a-z$]{0,8})?`).Draw(t, "end"))
		below := rapid.SampledFrom([]string{"", "/config", `\config`}).Draw(t, "below")
		above := rapid.SampledFrom([]string{"", "a/", `a\`, "a/b/"}).Draw(t, "above")
		if p := above + b.String() + below; objectionToPath(p) == "" {
			t.Fatalf("%q is let through", p)
		}
	})
}

func FuzzParseChanges(f *testing.F) {
	id := strings.Repeat("a", 40)
	f.Add(":100644 100755 " + id + " " + id + " M\x00a\x001\t2\ta\x00")
	f.Add(":000000 100644 " + id + " " + id + " A\x00a\tb\x00-\t-\ta\tb\x00")
	f.Add(":100644 100644 " + id + " " + id + " R090\x00a\x00b\x001\t2\t\x00a\x00b\x00")
	f.Fuzz(func(t *testing.T, s string) {
		changes, err := parseChanges(s)
		if err == nil {
			Judge(changes, Checkout{})
			addPatches(changes, s)
		}
	})
}

// worked returns a workspace with imported work, and a clone of the same repository to apply it to.
func worked(t *testing.T, do func(git gittest.Git)) (*Store, workspace.Workspace, gittest.Git) {
	t.Helper()
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	c := server.Client()
	c.Run("clone", "-q", repo.URL, "mine")
	mine := c.In("mine")
	mine.Commit("more", "a/one", "1\n", "a/two", "2\n", "b", "b\n", "c/d/e", "e\n", "run.sh", "true\n")
	mine.Run("push", "-q", "origin", "main")
	s := newStore(t, server)
	w := create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
	git := c.In(w.Directory)
	do(git)
	git.Run("add", "-A")
	git.Run("commit", "-q", "-m", "work")
	if _, err := s.Import(t.Context(), w.ID, 0, inside(t, w)); err != nil {
		t.Fatal(err)
	}
	return s, w, mine
}

// applying is a way in which work comes to a checkout.
type applying func(t *testing.T, s *Store, id cove.SandboxID, w Work, dir string, style ApplyStyle) (Applied, error)

// bothWays tests what holds for work that is applied on this machine, and on another one, to which it is sent.
func bothWays(t *testing.T, test func(*testing.T, applying)) {
	t.Run("here", func(t *testing.T) {
		test(t, func(t *testing.T, s *Store, id cove.SandboxID, w Work, dir string, style ApplyStyle) (Applied, error) {
			return s.Apply(t.Context(), id, w, dir, style)
		})
	})
	t.Run("sent", func(t *testing.T) {
		test(t, func(t *testing.T, s *Store, id cove.SandboxID, w Work, dir string, style ApplyStyle) (Applied, error) {
			var sent bytes.Buffer
			if err := s.Send(t.Context(), id, &sent); err != nil {
				return Applied{}, err
			}
			there, err := Open(Options{Home: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			return there.ApplySent(t.Context(), &sent, w.Paths, dir, style)
		})
	})
}

func TestApply(t *testing.T) {
	bothWays(t, testApply)
}

func testApply(t *testing.T, by applying) {
	work := func(git gittest.Git) {
		git.Write("a/one", "changed\n")
		git.Write("new/deep/file", "new\n")
		git.Write("bin", "\x00\x01\x02")
		git.Run("rm", "-q", "c/d/e", "b")
		git.Write("b/inside", "a directory now\n") // a file before
		git.Write("c", "a file now\n")             // a directory before
		if err := os.Chmod(filepath.Join(git.Dir, "run.sh"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../a/one", filepath.Join(git.Dir, "new/link")); err != nil {
			t.Fatal(err)
		}
	}
	s, w, mine := worked(t, work)
	done, err := by(t, s, w.ID, Work{}, mine.Dir, ApplyStyle{})
	if err != nil || len(done.Changes) != 9 {
		t.Fatalf("%+v, %v", done, err)
	}
	git := gittest.NewGit(t, w.Directory)
	mine.Run("add", "-A")
	if got, want := mine.Run("write-tree"), git.Run("rev-parse", "HEAD^{tree}"); got != want {
		t.Errorf("the checkout is another: %s", mine.Run("diff", "--cached", "--stat"))
	}
	if exists(mine.Dir, "c/d") || strings.Contains(names(t, mine.Dir), ".cove") {
		t.Errorf("it has %s", names(t, mine.Dir))
	}
	if _, err := by(t, s, w.ID, Work{}, mine.Dir, ApplyStyle{}); err != nil {
		t.Errorf("again: %v", err)
	}
	mine.Run("reset", "-q", "--hard")
	if _, err := by(t, s, w.ID, Work{Paths: []string{"a"}}, mine.Dir, ApplyStyle{}); err != nil ||
		read(t, mine.Dir, "a/one") != "changed\n" || exists(mine.Dir, "new") {
		t.Errorf("some paths: %v", err)
	}
	for _, p := range []string{"../x", "/etc", "-x"} {
		if _, err := by(t, s, w.ID, Work{Paths: []string{p}}, mine.Dir,
			ApplyStyle{}); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("the path %s: %v", p, err)
		}
	}
}

// TestApplyChoice: chosen files are applied, and of a file in part the lines and the mode that were chosen.
// A choice of something else than there is changes nothing.
func TestApplyChoice(t *testing.T) {
	bothWays(t, testApplyChoice)
}

func testApplyChoice(t *testing.T, by applying) {
	const lines = "1\r\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\nend"
	const work = "one\r\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\nlast\n"
	s, w, mine := worked(t, func(git gittest.Git) {
		git.Write("lines", lines)
		git.Run("add", "-A")
		git.Run("commit", "-q", "-m", "base")
		base := git.Run("rev-parse", "HEAD")
		if got := git.Try("update-ref", "refs/heads/base", base); got.Code != 0 {
			t.Fatal(got)
		}
		git.Write("lines", work)
		git.Write("a/one", "changed\n")
		git.Write("a/three", "new\n")
		git.Write("bin", "\x00\x01")
		git.Run("mv", "b", "moved")
		if err := os.Chmod(filepath.Join(git.Dir, "lines"), 0o755); err != nil {
			t.Fatal(err)
		}
	})
	r, err := s.read(w.ID)
	if err != nil {
		t.Fatal(err)
	}
	// As if the sandbox had begun at the first of its commits.
	inside := gittest.NewGit(t, w.Directory)
	r.Base = inside.Run("rev-parse", "base")
	if err := writeRecord(s.directory(w.ID), r); err != nil {
		t.Fatal(err)
	}
	mine.Write("lines", lines)
	mine.Run("add", "-A")
	mine.Run("commit", "-q", "-m", "base")
	id := inside.Run("rev-parse", "HEAD:lines")
	apply := func(choice map[string]Choice) (Applied, error) {
		var paths []string
		for p := range choice {
			paths = append(paths, p)
		}
		return by(t, s, w.ID, Work{Paths: paths}, mine.Dir, ApplyStyle{Choice: choice})
	}
	for name, c := range map[string]struct {
		choice map[string]Choice
		want   cove.Code
	}{
		"a part that there is not": {map[string]Choice{"lines": {Parts: []int{3}}}, cove.InvalidArgument},
		"parts of a new file":      {map[string]Choice{"a/three": {Parts: []int{1}}}, cove.InvalidArgument},
		"parts of a binary file":   {map[string]Choice{"bin": {Parts: []int{1}}}, cove.InvalidArgument},
		"a directory":              {map[string]Choice{"a": {}}, cove.NotFound},
		"one that is not changed":  {map[string]Choice{"a/two": {}, "bin": {}}, cove.NotFound},
		"another content":          {map[string]Choice{"lines": {ID: strings.Repeat("a", 40)}}, cove.Conflict},
	} {
		if _, err := apply(c.choice); cove.ErrorCode(err) != c.want || mine.Run("status", "-s") != "" {
			t.Errorf("%s: %v\n%s", name, err, mine.Run("status", "-s"))
		}
	}
	for _, c := range []struct {
		parts   []int
		want    string
		program bool
	}{
		{[]int{1}, "one\r\n" + lines[3:], false}, {[]int{2}, strings.TrimSuffix(lines, "end") + "last\n", false},
		{[]int{0}, lines, true}, {[]int{0, 2}, strings.TrimSuffix(lines, "end") + "last\n", true}, {nil, work, true},
		{[]int{0, 1, 2}, work, true},
	} {
		done, err := apply(map[string]Choice{"lines": {ID: id, Parts: c.parts}, "a/one": {}})
		if err != nil || len(done.Changes) != 2 {
			t.Fatalf("%v: %+v, %v", c.parts, done, err)
		}
		fi, _ := os.Stat(filepath.Join(mine.Dir, "lines"))
		if got := read(t, mine.Dir, "lines"); got != c.want || fi.Mode()&0o100 != 0 != c.program ||
			read(t, mine.Dir, "a/one") != "changed\n" || exists(mine.Dir, "bin") {
			t.Errorf("%v: %q, %v", c.parts, got, fi.Mode())
		}
		mine.Run("reset", "-q", "--hard")
	}
	if _, err := apply(map[string]Choice{"b": {}, "moved": {}, "bin": {}}); err != nil || exists(mine.Dir, "b") ||
		read(t, mine.Dir, "moved") != "b\n" || exists(mine.Dir, "a/three") {
		t.Errorf("a renamed file: %v", err)
	}
}

// TestApplyNothing: if one change fails, none is made.
func TestApplyNothing(t *testing.T) {
	bothWays(t, testApplyNothing)
}

func testApplyNothing(t *testing.T, by applying) {
	s, w, mine := worked(t, func(git gittest.Git) {
		git.Write("a/one", "changed\n")
		git.Write("z/new", "new\n")
		git.Run("rm", "-q", "b", "c/d/e")
	})
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "one"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		do   func()
	}{
		{"a file has changed", func() { mine.Write("a/one", "mine\n") }},
		{"a file is not there", func() { os.Remove(filepath.Join(mine.Dir, "a/one")) }},
		{"something is where a file comes", func() { mine.Write("z/new", "mine\n") }},
		{"a file is where a directory comes", func() { mine.Write("z", "mine\n") }},
		{"a directory is where a file comes", func() { mine.Write("z/new/mine", "mine\n") }},
		{"a file is a link", func() {
			os.Remove(filepath.Join(mine.Dir, "a/one"))
			os.Symlink(filepath.Join(elsewhere, "one"), filepath.Join(mine.Dir, "a/one"))
		}},
		{"a directory is a link out", func() {
			os.RemoveAll(filepath.Join(mine.Dir, "a"))
			os.Symlink(elsewhere, filepath.Join(mine.Dir, "a"))
		}},
		{"a directory is a link within", func() {
			os.Rename(filepath.Join(mine.Dir, "a"), filepath.Join(mine.Dir, "x"))
			os.Symlink("x", filepath.Join(mine.Dir, "a"))
		}},
		{"a new directory is a link", func() { os.Symlink(elsewhere, filepath.Join(mine.Dir, "z")) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mine.Run("reset", "-q", "--hard")
			mine.Run("clean", "-q", "-d", "-f", "-x")
			tt.do()
			before := mine.Run("status", "--porcelain", "-uall")
			_, err := by(t, s, w.ID, Work{}, mine.Dir, ApplyStyle{})
			if cove.ErrorCode(err) != cove.Conflict {
				t.Errorf("%v", err)
			}
			if after := mine.Run("status", "--porcelain", "-uall"); after != before {
				t.Errorf("there is\n%s\nwhere there was\n%s", after, before)
			}
			if got := names(t, elsewhere); got != "one" || read(t, elsewhere, "one") != "1\n" {
				t.Errorf("elsewhere has %s", got)
			}
			if strings.Contains(names(t, mine.Dir), ".cove") {
				t.Errorf("it left %s", names(t, mine.Dir))
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	bothWays(t, testApplyRefuses)
}

func testApplyRefuses(t *testing.T, by applying) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	s, w, mine := worked(t, func(git gittest.Git) {
		git.Write("fine", "fine\n")
		git.Write(".github/workflows/ci.yml", "on: push\n")
	})
	if _, err := by(t, s, w.ID, Work{}, mine.Dir, ApplyStyle{}); cove.ErrorCode(err) != cove.Forbidden ||
		exists(mine.Dir, "fine") {
		t.Errorf("a workflow: %v", err)
	}
	if _, err := by(t, s, w.ID, Work{}, mine.Dir, ApplyStyle{Restricted: true}); err != nil ||
		!exists(mine.Dir, ".github/workflows/ci.yml") {
		t.Errorf("a workflow that was asked for: %v", err)
	}
	for name, target := range map[string]string{"absolute": "/etc/passwd", "out": "../../x", "git's": ".git/config"} {
		t.Run("a link that is "+name, func(t *testing.T) {
			s, w, mine := worked(t, func(git gittest.Git) {
				git.Write("fine", "fine\n")
				if err := os.Symlink(target, filepath.Join(git.Dir, "link")); err != nil {
					t.Fatal(err)
				}
			})
			for _, restricted := range []bool{false, true} {
				if _, err := by(t, s, w.ID, Work{}, mine.Dir,
					ApplyStyle{Restricted: restricted}); cove.ErrorCode(err) != cove.Forbidden || exists(mine.Dir, "fine") {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// TestApplyMerges: files that both sides have changed are merged on request, and conflicts are reported; a file that
// cannot be merged is unchanged.
func TestApplyMerges(t *testing.T) {
	bothWays(t, testApplyMerges)
}

func testApplyMerges(t *testing.T, by applying) {
	const lines = "1\n2\n3\n4\n5\n6\n7\n"
	server := func(git gittest.Git) {
		git.Write("a/one", "1\nsandbox\n")
		git.Write("run.sh", "true\n# more\n")
		git.Write("c/d/e", "sandbox\n")
		git.Write("new", "sandbox\n")
		git.Run("rm", "-q", "b")
		git.Write("a/two", "2\nsandbox\n")
		git.Write("untouched", lines)
	}
	s, w, mine := worked(t, server)
	mine.Write("a/one", "here\n1\n") // another line
	mine.Write("run.sh", "false\n")  // the same line
	mine.Write("c/d/e", "\x00")      // binary
	mine.Write("new", "here\n")      // new on both sides
	mine.Write("b", "here\n")        // deleted in the sandbox
	os.Remove(filepath.Join(mine.Dir, "a/two"))
	if err := os.Chmod(filepath.Join(mine.Dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := mine.Run("stash", "create")
	if _, err := by(t, s, w.ID, Work{}, mine.Dir, ApplyStyle{}); cove.ErrorCode(err) != cove.Conflict ||
		exists(mine.Dir, "untouched") {
		t.Errorf("without merging: %v", err)
	}
	if mine.Run("diff", before) != "" {
		t.Error("without merging something is changed")
	}
	done, err := by(t, s, w.ID, Work{}, mine.Dir, ApplyStyle{Merge: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := "[a/one]"; fmt.Sprint(done.Merged) != want {
		t.Errorf("merged %v", done.Merged)
	}
	clashes := map[string]bool{}
	for _, c := range done.Conflicts {
		clashes[c.Path] = c.Markers
	}
	if want := map[string]bool{"a/two": false, "b": false, "c/d/e": false, "new": true,
		"run.sh": true}; !maps.Equal(clashes, want) {
		t.Errorf("conflicts %+v", done.Conflicts)
	}
	for name, want := range map[string]string{
		"a/one": "here\n1\nsandbox\n", "b": "here\n", "c/d/e": "\x00", "untouched": lines,
		"new":    "<<<<<<< here\nhere\n=======\nsandbox\n>>>>>>> sandbox\n",
		"run.sh": "<<<<<<< here\nfalse\n=======\ntrue\n# more\n>>>>>>> sandbox\n",
	} {
		if got := read(t, mine.Dir, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if fi, err := os.Stat(filepath.Join(mine.Dir, "run.sh")); err != nil || fi.Mode()&0o100 == 0 ||
		exists(mine.Dir, "a/two") {
		t.Errorf("run.sh is %v, %v", fi.Mode(), err)
	}
	if got := names(t, mine.Dir); strings.Contains(got, ".cove") {
		t.Errorf("it left %s", got)
	}
}

// TestApplyTakenBack: the next process rolls back the changes of a killed one, at every point.
func TestApplyTakenBack(t *testing.T) {
	s, w, mine := worked(t, func(git gittest.Git) {
		git.Write("a/one", "changed\n")
		git.Write("new/deep/file", "new\n")
		git.Run("rm", "-q", "c/d/e", "b")
		git.Write("b/inside", "a directory now\n")
		git.Write("c", "a file now\n")
	})
	clean := names(t, mine.Dir)
	sp, err := s.span(t.Context(), w.ID, Work{})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := s.changes(t.Context(), sp, ChangeStyle{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range changes {
		if isFile(c.New) {
			ids = append(ids, c.New.ID)
		}
	}
	content, err := s.contents(t.Context(), sp.dir, ids, maxApplied)
	if err != nil {
		t.Fatal(err)
	}
	// until applies a part of the changes, and stops.
	until := func(n int) *journal {
		tr, err := openTree(mine.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		todo, err := tr.pending(changes, nil)
		if err != nil || len(todo) != 6 {
			t.Fatalf("%d to do, %v", len(todo), err)
		}
		j, err := s.begin(tr, mine.Dir, todo)
		if err != nil {
			t.Fatal(err)
		}
		defer j.close()
		if n >= 0 {
			err = tr.stage(j.Staging, todo, content)
		}
		for i := 0; i < n && err == nil; i++ {
			err = tr.exchange(i, todo[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	for n := -1; n <= 6; n++ {
		until(n)
		if err := s.takeBack(mine.Dir); err != nil {
			t.Errorf("after %d: %v", n, err)
		}
		if got := names(t, mine.Dir); got != clean || mine.Run("status", "--porcelain", "-uall") != "" {
			t.Errorf("after %d: there is %s\n%s", n, got, mine.Run("status", "--porcelain", "-uall"))
		}
	}
	if left := names(t, s.journals()); left != "" {
		t.Errorf("journals are left: %s", left)
	}
	// A file that was written since is kept.
	j := until(6)
	mine.Write("a/one", "since\n")
	for range 2 {
		if _, err := s.Apply(t.Context(), w.ID, Work{}, mine.Dir, ApplyStyle{}); cove.ErrorCode(err) != cove.Conflict ||
			!strings.Contains(err.Error(), "a/one") {
			t.Errorf("%v", err)
		}
	}
	if got := mine.Run("status", "--porcelain", "-uno"); strings.TrimSpace(got) != "M a/one" ||
		read(t, mine.Dir, "a/one") != "since\n" {
		t.Errorf("there is %s", got)
	}
	os.RemoveAll(filepath.Join(mine.Dir, j.Staging))
	mine.Run("checkout", "-q", ".")
	if _, err := s.Apply(t.Context(), w.ID, Work{}, mine.Dir, ApplyStyle{}); err != nil ||
		read(t, mine.Dir, "a/one") != "changed\n" || names(t, s.journals()) != "" {
		t.Errorf("when that is done: %v", err)
	}
}

// applierEnv holds the arguments of TestApplyKilled's process: home, sandbox and directory.
const applierEnv = "COVE_TEST_APPLIER"

// TestApplyKilled: after a process is killed while it applies, the next one finds the checkout either unchanged or
// completely changed.
func TestApplyKilled(t *testing.T) {
	if what := strings.Split(os.Getenv(applierEnv), "\n"); len(what) == 3 {
		s, err := Open(Options{Home: what[0]})
		if err == nil {
			_, err = s.Apply(context.Background(), cove.SandboxID(what[1]), Work{}, what[2], ApplyStyle{})
		}
		t.Fatal(err)
	}
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	const files = 2000
	s, w, mine := worked(t, func(git gittest.Git) {
		git.Write("a/one", "changed\n")
		for i := range files {
			git.Write(fmt.Sprintf("z/%d/%d", i%10, i), "new\n")
		}
	})
	midst := false
	for range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestApplyKilled$")
		cmd.Env = append(os.Environ(), applierEnv+"="+strings.Join([]string{s.o.Home, string(w.ID), mine.Dir}, "\n"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		for !exists(mine.Dir, "z/5") {
			select {
			case <-ended:
				t.Fatal("it has not applied")
			default:
			}
		}
		cmd.Process.Kill()
		<-ended
		midst = midst || strings.Contains(names(t, mine.Dir), stagePrefix)
		if _, err := Open(s.o); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(mine.Run("status", "--porcelain", "-uall")+"\n", "\n"); got != 1 && got != files+1 ||
			strings.Contains(names(t, mine.Dir), ".cove") || names(t, s.journals()) != "" {
			t.Fatalf("%d files are changed; there is %s", got, names(t, mine.Dir))
		}
		mine.Run("reset", "-q", "--hard")
		mine.Run("clean", "-qdff")
		if midst {
			break
		}
	}
	if !midst {
		t.Error("it was never killed in the midst")
	}
	if done, err := s.Apply(t.Context(), w.ID, Work{}, mine.Dir, ApplyStyle{}); err != nil ||
		len(done.Changes) != files+1 {
		t.Errorf("%v", err)
	}
}
