package inspect

import (
	"slices"
	"strings"
	"testing"
)

// TestSpecialFiles: git checks the contents of .gitattributes and .gitmodules. A
// push that leaves them as they are does not bring them, and is in order; one that
// has them read from a file of another name is judged by that file's contents.
func TestSpecialFiles(t *testing.T) {
	const hostile = "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch /tmp/owned\n"
	for name, tt := range map[string]struct {
		before []string           // files on the server
		change func(s *scene)     // what the client commits
		gives  func(q Query) bool // whether the server answers
		want   string             // a defect; empty is none
	}{
		"attributes at the top": {before: []string{".gitattributes", "*.txt text\n"},
			change: func(s *scene) { s.client.Commit("work", "README", "more\n") }},
		"attributes below": {before: []string{"docs/.gitattributes", "*.md diff=markdown\n", "docs/a.md", "a\n"},
			change: func(s *scene) { s.client.Commit("work", "docs/a.md", "b\n") }},
		"attributes of LFS": {before: []string{".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n"},
			change: func(s *scene) { s.client.Commit("work", "a.bin", "version https://git-lfs.github.com/spec/v1\n") }},
		"modules at the top": {before: []string{".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = https://git.example/lib.git\n"},
			change: func(s *scene) { s.client.Commit("work", "README", "more\n") }},
		"both, and both changed": {before: []string{".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = https://git.example/lib.git\n",
			".gitattributes", "*.txt text\n"},
			change: func(s *scene) {
				s.client.Commit("work", ".gitattributes", "*.txt text eol=lf\n")
				s.client.Commit("more", ".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = https://git.example/other.git\n")
			}},
		"a directory with attributes is renamed": {before: []string{"docs/.gitattributes", "*.md text\n", "docs/a.md", "a\n"},
			change: func(s *scene) { s.client.Run("mv", "docs", "manual"); s.client.Run("commit", "-q", "-m", "rename") }},
		"modules from a benign file": {before: []string{"modules.txt", "[submodule \"lib\"]\n\tpath = lib\n\turl = https://git.example/lib.git\n"},
			change: func(s *scene) {
				s.client.Run("mv", "modules.txt", ".gitmodules")
				s.client.Run("commit", "-q", "-m", "rename")
			}},
		"hostile modules": {before: []string{"README", "again\n"},
			change: func(s *scene) { s.client.Commit("work", ".gitmodules", hostile) }, want: "malformed or dangerous"},
		"hostile modules from a file that the server has": {before: []string{"notes.txt", hostile},
			change: func(s *scene) {
				s.client.Run("mv", "notes.txt", ".gitmodules")
				s.client.Run("commit", "-q", "-m", "rename")
			},
			want: "malformed or dangerous"},
		"hostile attributes from a file that the server has": {before: []string{"notes.txt", "*.txt " + strings.Repeat("a", 4096) + "\n"},
			change: func(s *scene) {
				s.client.Run("mv", "notes.txt", "docs.gitattributes")
				s.client.Run("mv", "docs.gitattributes", ".gitattributes")
				s.client.Run("commit", "-q", "-m", "rename")
			},
			want: "malformed or dangerous"},
		"a server that does not give them": {before: []string{".gitattributes", "*.txt text\n"},
			change: func(s *scene) { s.client.Commit("work", "README", "more\n") },
			gives:  func(q Query) bool { return !q.Objects }, want: "as a .gitattributes or .gitmodules, which the server does not give"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.main = s.upload(s.client.Commit("before", tt.before...), "main")
			tt.change(s)
			s.server.gives = tt.gives
			f := s.look(s.client.Run("rev-parse", "HEAD"), "")
			defects := strings.Join(f.Defects, "; ")
			if (defects == "") != (tt.want == "") || !strings.Contains(defects, tt.want) {
				t.Errorf("defects %q, want %q", defects, tt.want)
			}
		})
	}
}

// TestHiddenSpecialFile: a .gitattributes that only a branch has which the sandbox
// does not see is not had by naming it.
func TestHiddenSpecialFile(t *testing.T) {
	s := newScene(t)
	c := s.client
	c.Run("checkout", "-q", "-b", "secret", s.main)
	s.upload(c.Commit("secret", ".gitattributes", "*.secret text\n"), "secret")
	id := c.Run("rev-parse", "HEAD:.gitattributes")
	c.Run("checkout", "-q", "-b", "own", s.main)
	c.Run("update-index", "--add", "--cacheinfo", "100644,"+id+",.gitattributes")
	c.Run("commit", "-q", "-m", "guess")
	own := c.Run("rev-parse", "HEAD")
	pack := c.Pack(own + "\n" + c.Run("rev-parse", "HEAD^{tree}") + "\n")
	f := s.lookInto(pack, own, "")
	if len(f.Defects) != 1 || !strings.Contains(f.Defects[0], "lacks objects") {
		t.Errorf("%+v", f)
	}
	if slices.ContainsFunc(s.server.asked, func(q Query) bool { return q.Objects }) {
		t.Errorf("the server was asked for it: %+v", s.server.asked)
	}
}

// TestUnreadAttributes: only complaints of missing attributes let a push go on.
func TestUnreadAttributes(t *testing.T) {
	const (
		id   = "0123456789abcdef0123456789abcdef01234567"
		line = "error: object " + id + ": gitattributesMissing: unable to read .gitattributes blob\n"
		end  = "fatal: fsck error in pack objects\n"
	)
	for text, want := range map[string]bool{
		line + end:        true,
		line + line + end: true,
		line:              false,
		end:               false,
		"":                false,
		line + "error: object " + id + ": gitmodulesUrl: disallowed submodule url\n" + end: false,
		line + end + "more\n": false,
		end + line:            false,
		"error: object x: gitattributesMissing: y\n" + end: false,
	} {
		if lacks, ok := unreadAttributes(text); ok != want || ok && lacks[0] != id {
			t.Errorf("%q: %q, %v", text, lacks, ok)
		}
	}
}

// FuzzUnreadAttributes: what git complains of may be anything.
func FuzzUnreadAttributes(f *testing.F) {
	f.Add("error: object 0123456789abcdef0123456789abcdef01234567: gitattributesMissing: x\nfatal: fsck error in pack objects\n")
	f.Add("fatal: fsck error in pack objects")
	f.Fuzz(func(t *testing.T, text string) {
		if lacks, ok := unreadAttributes(text); ok && len(lacks) == 0 {
			t.Errorf("%q names nothing", text)
		}
	})
}
