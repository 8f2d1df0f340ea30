package patch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

func all(int) bool { return true }

func none(int) bool { return false }

// numbered returns lines "1" to "n", some replaced.
func numbered(n int, other map[int]string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if text, ok := other[i]; ok {
			b.WriteString(text)
			continue
		}
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.String()
}

// world is a repository before and after a change of every kind.
type world struct {
	git           gittest.Git
	before, after string // trees
}

// file is the content and the mode of a file; none without text.
type file struct {
	text    string
	program bool
	link    bool
}

func newWorld(t *testing.T, before, after map[string]file) world {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q")
	git.Run("config", "core.autocrlf", "false")
	commit := func(files map[string]file) string {
		git.Run("rm", "-rqf", "--ignore-unmatch", ".")
		for name, f := range files {
			at := filepath.Join(git.Dir, name)
			os.MkdirAll(filepath.Dir(at), 0o755)
			os.Remove(at)
			mode := os.FileMode(0o644)
			if f.program {
				mode = 0o755
			}
			var err error
			if f.link {
				err = os.Symlink(f.text, at)
			} else {
				err = os.WriteFile(at, []byte(f.text), mode)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		git.Run("add", "-A", ".")
		return git.Run("write-tree")
	}
	return world{git, commit(before), commit(after)}
}

// diff is git's patch, as Cove has it made.
func (w world) diff(renames string) string {
	got := w.git.Try("diff-tree", "-r", "--patch", "--binary", "--full-index", renames, "--no-color", w.before, w.after)
	return got.Stdout
}

// applied is the tree that plain "git apply" makes of a patch.
func (w world) applied(t *testing.T, patch string) string {
	t.Helper()
	w.git.Run("read-tree", w.before)
	if patch == "" {
		return w.before
	}
	if got := w.git.TryWith(patch, "apply", "--cached", "--whitespace=nowarn", "-"); got.Code != 0 {
		t.Fatalf("git apply: %s\n%s", got.Stderr, patch)
	}
	return w.git.Run("write-tree")
}

func (w world) content(tree, name string) string {
	return w.git.Try("cat-file", "blob", tree+":"+name).Stdout
}

var kinds = map[string][2]map[string]file{
	"lines": {{"a.txt": {text: numbered(60, nil)}},
		{"a.txt": {text: numbered(60, map[int]string{2: "two\n", 4: "", 30: "30\n30 a\n30 b\n", 33: "x\n", 60: ""})}}},
	"crlf":                  {{"a": {text: "a\r\nb\r\nc\r\n"}}, {"a": {text: "a\r\nB\r\nc\r\nd\r\n"}}},
	"no newline at the end": {{"a": {text: numbered(20, nil) + "end"}}, {"a": {text: "0\n" + numbered(20, nil) + "END"}}},
	"a newline that comes": {{"a": {text: "x\n" + numbered(20, nil) + "end"}},
		{"a": {text: numbered(20, nil) + "end\n"}}},
	"a newline that goes": {{"a": {text: "x\n" + numbered(20, nil) + "end\n"}},
		{"a": {text: numbered(20, nil) + "end\nmore"}}},
	"at both ends": {{"a": {text: numbered(30, nil)}}, {"a": {text: "first\n" + numbered(30, nil) + "last\n"}}},
	"all of it":    {{"a": {text: "a\nb\n"}}, {"a": {text: ""}}},
	"from nothing": {{"a": {text: ""}}, {"a": {text: "a\nb"}}},
	"a program":    {{"a": {text: "a\n"}}, {"a": {text: "a\n", program: true}}},
	"a program that changes": {{"a": {text: numbered(30, nil)}},
		{"a": {text: numbered(30, map[int]string{3: "", 20: "x\n"}), program: true}}},
	"new":     {{}, {"a b\"c": {text: "a\n"}, "empty": {}, "p": {text: "p", program: true}}},
	"deleted": {{"a": {text: "a\n"}, "b": {text: "\x00b"}}, {}},
	"binary": {{"a": {text: "a\x00" + numbered(300, nil)}},
		{"a": {text: "a\x00" + numbered(310, nil)}, "n": {text: "\x00\xff"}}},
	"a link":     {{"a": {text: "b", link: true}}, {"a": {text: "c", link: true}}},
	"not a link": {{"a": {text: "b", link: true}}, {"a": {text: "c\n"}}},
	"renamed":    {{"a": {text: numbered(50, nil)}}, {"b": {text: numbered(50, map[int]string{7: "x\n"})}}},
	"names":      {{"x y\tü": {text: "a\n"}}, {"x y\tü": {text: "b\n"}}},
	"looks like a patch": {{"a": {text: "diff --git a/a b/a\n-- a\n"}},
		{"a": {text: "diff --git a/a b/a\n@@ -1 +1 @@\n++ b\n\\ No newline at end of file\n"}}},
	"no text": {{"a": {text: "\xff\xfe\n" + numbered(9, nil)}}, {"a": {text: "\xff\xfd\n" + numbered(9, nil) + "\xfc"}}},
}

// TestChoice: every choice of every kind of change applies with plain git, and makes the content that git makes of it.
// All of it is the whole patch, to the byte, and none of it is no patch.
func TestChoice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, k := range kinds {
		for _, renames := range []string{"--no-renames", "--find-renames"} {
			t.Run(name+" "+renames, func(t *testing.T) {
				w := newWorld(t, k[0], k[1])
				whole := w.diff(renames)
				files, err := Split(whole)
				if err != nil || len(files) == 0 || strings.Join(files, "") != whole {
					t.Fatalf("%q, %v", files, err)
				}
				if got := w.applied(t, choose(t, files, all)); got != w.after {
					t.Errorf("all of it makes %s, want %s", got, w.after)
				}
				if name == "not a link" { // one file with two parts, which are chosen together
					return
				}
				for range 4 {
					for _, text := range files {
						f := parsed(t, text)
						chosen := make([]bool, f.Parts()+1)
						for i := range chosen {
							chosen[i] = random.IntN(2) == 0
						}
						check(t, w, f, func(i int) bool { return chosen[i] })
					}
				}
				for _, text := range files {
					check(t, w, parsed(t, text), all)
					check(t, w, parsed(t, text), none)
				}
			})
		}
	}
}

func parsed(t *testing.T, text string) File {
	t.Helper()
	f, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return f
}

func choose(t *testing.T, files []string, chosen func(int) bool) (patch string) {
	for _, text := range files {
		patch += parsed(t, text).Choose(chosen)
	}
	return patch
}

// check compares what a choice makes of a file with what git makes of its patch.
func check(t *testing.T, w world, f File, chosen func(int) bool) {
	t.Helper()
	patch := f.Choose(chosen)
	tree := w.applied(t, patch)
	if f.Parts() == 0 {
		return
	}
	name := w.git.Run("diff-tree", "-r", "--name-only", "-z", w.before, w.after)
	name, _, _ = strings.Cut(name, "\x00")
	got, err := f.Apply([]byte(w.content(w.before, name)), chosen)
	if want := w.content(tree, name); err != nil || string(got) != want {
		t.Errorf("%v: it makes\n%q\nand git\n%q\nof\n%s", err, got, want, patch)
	}
	before := w.content(w.before, name)
	if _, err := f.Apply([]byte("other\n"+before), all); err == nil && before != "" {
		t.Error("it applies to another content")
	}
}

// TestParts: runs of changed lines are numbered through the hunks, and a hunk is split into those of its own.
func TestParts(t *testing.T) {
	k := kinds["lines"]
	w := newWorld(t, k[0], k[1])
	f := parsed(t, w.diff("--no-renames"))
	var got []string
	for _, h := range f.Hunks {
		text := fmt.Sprintf("%d-%d", h.First(), h.Last())
		for _, one := range h.Split() {
			if one.First() != one.Last() {
				t.Errorf("a part has several changes: %s", one)
			}
			text += " " + strings.TrimSpace(one.Head)
		}
		got = append(got, text)
	}
	want := []string{"1-2 @@ -1,3 +1,3 @@ @@ -3,5 +3,4 @@",
		"3-4 @@ -28,5 +28,7 @@ @@ -31,6 +31,6 @@", "5-5 @@ -57,4 +57,3 @@"}
	for i := range got {
		if before, _, ok := strings.Cut(strings.Join(strings.Fields(got[i]), " "), " 25"); ok {
			got[i] = before
		}
	}
	if f.Parts() != 5 || !slices.Equal(got, want) {
		t.Errorf("%d parts: %q", f.Parts(), got)
	}
	for _, whole := range []string{"new", "deleted", "binary", "a link"} {
		k := kinds[whole]
		w := newWorld(t, k[0], k[1])
		files, _ := Split(w.diff("--no-renames"))
		if f := parsed(t, files[0]); whole != "a link" && f.Parts() != 0 {
			t.Errorf("%s has %d parts", whole, f.Parts())
		}
	}
}

func TestMalformed(t *testing.T) {
	const head = "diff --git a/a b/a\n--- a/a\n+++ b/a\n"
	for name, text := range map[string]string{
		"nothing": "", "no file": "@@ -1 +1 @@\n-a\n+b\n", "an early end": head + "@@ -1,3 +1,3 @@\n-a\n+b\n",
		"no sign": head + "@@ -1 +1 @@\nxa\n+b\n", "more than it says": head + "@@ -1 +1 @@\n-a\n+b\n+c\n",
		"no numbers": head + "@@ -a +1 @@\n-a\n+b\n", "a mark before any line": head + "@@ -1 +1 @@\n\\ x\n-a\n+b\n",
		"no end": head + "@@ -1 +1 @@\n-a\n+b",
	} {
		if f, err := Parse(text); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if all, err := Split("x\n" + head); err == nil {
		t.Errorf("%q", all)
	}
}

// FuzzPatch: whatever is parsed is written again as it was, and no choice breaks the parser.
func FuzzPatch(f *testing.F) {
	f.Add("diff --git a/a b/a\nold mode 100644\nnew mode 100755\nindex 1..2\n--- a/a\n+++ b/a\n"+
		"@@ -1,3 +1,3 @@ x\n a\n-b\n+c\n d\n\\ No newline at end of file\n", uint8(1))
	f.Add("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+c\n@@ -5,2 +6 @@\n-a\n b\n", uint8(2))
	f.Fuzz(func(t *testing.T, text string, bits uint8) {
		if files, err := Split(text); err == nil && strings.Join(files, "") != text {
			t.Fatalf("%q", files)
		}
		one, err := Parse(text)
		if err != nil {
			return
		}
		hunks := ""
		for _, h := range one.Hunks {
			hunks += h.String()
			h.Split()
		}
		if !strings.HasSuffix(text, hunks) {
			t.Errorf("%q is not written as it was: %q", text, hunks)
		}
		if got := one.Choose(all); got != text {
			t.Errorf("all of %q is %q", text, got)
		}
		chosen := func(i int) bool { return bits>>(i%8)&1 == 1 }
		if part := one.Choose(chosen); part != "" {
			if _, err := Parse(part); err != nil {
				t.Errorf("a choice cannot be read: %v\n%q", err, part)
			}
		}
		one.Apply([]byte(text), chosen)
	})
}
