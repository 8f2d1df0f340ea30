package repos

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestApplyWorkingForms: files that git writes in another form than it stores them are applied in that form, are known
// in it, and are merged in it.
func TestApplyWorkingForms(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q", "-b", "main", "mine")
	mine := git.In("mine")
	mine.Commit("first", ".gitattributes", "*.bat text eol=crlf\n*.id ident\n*.u16 text working-tree-encoding=UTF-16LE\n",
		"a.bat", "a\r\nb\r\nc\r\nd\r\ne\r\n", "v.id", "$Id$\n", "x.u16", "x\x00\n\x00", "gone.bat", "a\r\n", "plain", "a\n")
	mine.Run("rm", "-q", "-r", "--cached", ".")
	mine.Run("reset", "-q", "--hard") // as git writes them
	s := newStore(t, nil)
	w := create(t, s, ownSpec("x", workspace.Repository{Source: mine.Dir}))
	box := gittest.NewGit(t, w.Directory)
	box.Run("rm", "-q", "gone.bat")
	box.Commit("work", "a.bat", "a\r\nb\r\nc\r\nd\r\nmine\r\n", "v.id", "$Id$\nmore\n", "x.u16", "x\x00\n\x00y\x00\n\x00",
		"new.bat", "new\r\n", "plain", "b\n")
	if _, err := s.Import(t.Context(), w.ID, 0, inside(t, w)); err != nil {
		t.Fatal(err)
	}
	apply := func(style ApplyStyle) Applied {
		t.Helper()
		done, err := s.Apply(t.Context(), w.ID, Work{}, mine.Dir, style)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	for range 2 { // again, nothing is left to do
		apply(ApplyStyle{})
		for _, name := range []string{"a.bat", "new.bat", "x.u16", "plain"} {
			if got, want := read(t, mine.Dir, name), read(t, box.Dir, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
	mine.Run("add", "-A")
	if got, want := mine.Run("write-tree"), box.Run("rev-parse", "HEAD^{tree}"); got != want {
		t.Errorf("the checkout is another: %s", mine.Run("diff", "--cached", want))
	}
	mine.Run("reset", "-q", "--hard")
	mine.Write("a.bat", "here\r\na\r\nb\r\nc\r\nd\r\ne\r\n")
	if done := apply(ApplyStyle{Merge: true}); !slices.Equal(done.Merged, []string{"a.bat"}) ||
		read(t, mine.Dir, "a.bat") != "here\r\na\r\nb\r\nc\r\nd\r\nmine\r\n" {
		t.Errorf("merged is %q: %+v", read(t, mine.Dir, "a.bat"), done)
	}
}

func TestConverting(t *testing.T) {
	got := converting(strings.Join([]string{"a", "eol", "crlf", "a", "text", "set", "a", "diff", "cpp", "b", "eol", "lf",
		"c", "ident", "set", "c", "text", "unset", "d", "ident", "unset", "e", "working-tree-encoding", "UTF-16", "e",
		"text", "auto", "f", "working-tree-encoding", "unset", ""}, "\x00"))
	want := map[string]string{"a": "eol=crlf text", "c": "ident -text", "e": "working-tree-encoding=UTF-16 text=auto"}
	if !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
