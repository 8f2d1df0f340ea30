package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSpecialFiles: git checks the contents of .gitattributes and .gitmodules. A
// push that leaves them as they are does not bring them, and is in order; one that
// has them read from a file of another name is judged by that file's contents.
func TestSpecialFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	const modules = "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n"
	const hostile = "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch /tmp/owned\n"
	tooLong := "*.txt " + strings.Repeat("a", 4096) + "\n" // gitattributesLineLength of git's fsck
	for name, tt := range map[string]struct {
		before []string           // files on the server
		change func(s *scene)     // what the client commits
		gives  func(q Query) bool // whether the server answers
		other  bool               // it answers with something else
		want   string             // a defect; empty is none
	}{
		"attributes at the top": {before: []string{".gitattributes", "*.txt text\n"},
			change: func(s *scene) { s.client.Commit("work", "README", "more\n") }},
		"attributes below": {before: []string{"docs/.gitattributes", "*.md diff=markdown\n", "docs/a.md", "a\n"},
			change: func(s *scene) { s.client.Commit("work", "docs/a.md", "b\n") }},
		"attributes of LFS": {before: []string{".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n"},
			change: func(s *scene) { s.client.Commit("work", "a.bin", "version https://git-lfs.github.com/spec/v1\n") }},
		"modules at the top": {before: []string{".gitmodules", modules},
			change: func(s *scene) { s.client.Commit("work", "README", "more\n") }},
		"both, and both changed": {before: []string{".gitmodules", modules, ".gitattributes", "*.txt text\n"},
			change: func(s *scene) {
				s.client.Commit("work", ".gitattributes", "*.txt text eol=lf\n")
				s.client.Commit("more", ".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = https://git.example/other.git\n")
			}},
		"a directory with attributes is renamed": {
			before: []string{"docs/.gitattributes", "*.md text\n", "docs/a.md", "a\n"},
			change: func(s *scene) { s.client.Run("mv", "docs", "manual"); s.client.Commit("rename") }},
		"a directory with attributes is renamed and changed": {
			before: []string{"docs/.gitattributes", "*.md text\n", "docs/a.md", "a\n"},
			change: func(s *scene) {
				s.client.Run("mv", "docs", "manual")
				s.client.Commit("rename", "manual/a.md", "b\n")
				s.client.Commit("more", "manual/a.md", "c\n")
			}},
		"modules from a benign file": {before: []string{"modules.txt", modules},
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
		"hostile attributes from a file that the server has": {before: []string{"notes.txt", tooLong},
			change: func(s *scene) { s.client.Run("mv", "notes.txt", ".gitattributes"); s.client.Commit("rename") },
			want:   "malformed or dangerous: git fsck reports gitattributesLineLength"},
		"hostile modules that are moved to where git reads them": {before: []string{"test/data/.gitmodules", hostile},
			change: func(s *scene) { s.client.Run("mv", "test/data/.gitmodules", ".gitmodules"); s.client.Commit("move") },
			want:   "malformed or dangerous: git fsck reports gitmodulesUrl"},
		"hostile modules that are copied to where git reads them": {before: []string{"test/data/.gitmodules", hostile},
			change: func(s *scene) { s.client.Commit("copy", ".gitmodules", hostile) },
			want:   "malformed or dangerous: git fsck reports gitmodulesUrl"},
		"hostile modules in a merge that neither side has": {before: []string{"notes.txt", hostile},
			change: func(s *scene) {
				s.client.Run("checkout", "-q", "-b", "aside")
				s.client.Commit("aside", "aside", "1\n")
				s.client.Run("checkout", "-q", "-")
				s.client.Commit("work", "work", "1\n")
				s.client.Run("merge", "-q", "--no-commit", "aside")
				s.client.Commit("merge", ".gitmodules", hostile)
			},
			want: "malformed or dangerous: git fsck reports gitmodulesUrl"},
		"old attributes that git would refuse today": {
			before: []string{".gitattributes", tooLong, "test/.gitmodules", hostile},
			change: func(s *scene) { s.client.Commit("work", "README", "more\n", "test/a", "a\n") }},
		"old attributes that git would refuse today, taken over in a merge": {before: []string{"README", "again\n"},
			change: func(s *scene) {
				start := s.main
				s.client.Run("checkout", "-q", "-b", "next")
				s.main = s.upload(s.client.Commit("next", ".gitattributes", tooLong, "next", "1\n"), "main")
				s.client.Run("checkout", "-q", "-b", "work", start)
				s.client.Commit("work", "work", "1\n")
				s.client.Run("merge", "-q", "-m", "merge", "next")
				s.client.Commit("more", "work", "2\n")
			}},
		"beside what git remarks on, and takes": {before: []string{".gitattributes", "*.txt text\n"},
			change: func(s *scene) {
				if err := os.Symlink("README", filepath.Join(s.client.Dir, ".gitignore")); err != nil {
					s.t.Fatal(err)
				}
				s.client.Commit("work", "README", "more\n")
			}},
		"a submodule": {before: []string{".gitmodules", modules, ".gitattributes", "*.txt text\n"},
			change: func(s *scene) {
				s.client.Run("update-index", "--add", "--cacheinfo", "160000,"+s.main+",lib")
				s.client.Run("commit", "-q", "-m", "lib")
				s.client.Run("update-index", "--cacheinfo", "160000,"+strings.Repeat("2b", 20)+",lib")
				s.client.Run("commit", "-q", "-m", "a newer lib")
			}},
		"many attributes": {before: attributesIn(maxSpecial + 4),
			change: func(s *scene) {
				for i := range maxSpecial + 4 {
					s.client.Write(fmt.Sprintf("%d/file", i), "more\n")
				}
				s.client.Commit("everywhere")
			}},
		"a server that does not give them": {before: []string{"attributes", "*.txt text\n"},
			change: func(s *scene) { s.client.Run("mv", "attributes", ".gitattributes"); s.client.Commit("rename") },
			gives:  func(q Query) bool { return !q.Objects }, want: "whose contents the server does not give"},
		"a server that gives something else": {before: []string{"modules", modules},
			change: func(s *scene) { s.client.Run("mv", "modules", ".gitmodules"); s.client.Commit("rename") },
			other:  true, want: "whose contents the server does not give"},
		"a file too large to be attributes": {
			before: []string{"large", strings.Repeat("# as many bytes as these are no attributes\n", maxSpecialSize/40)},
			change: func(s *scene) {
				s.client.Run("mv", "large", ".gitattributes")
				s.client.Run("config", "core.compression", "0")
				s.server.Run("config", "core.compression", "0")
				s.server.Run("repack", "-q", "-a", "-d", "-F")
				s.client.Commit("rename")
			},
			want: "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.main = s.upload(s.client.Commit("before", tt.before...), "main")
			tt.change(s)
			s.server.gives = tt.gives
			if tt.other {
				s.server.other = s.main
			}
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

// attributesIn returns that many directories with a .gitattributes, each another one.
func attributesIn(directories int) (files []string) {
	for i := range directories {
		files = append(files, fmt.Sprintf("%d/.gitattributes", i), fmt.Sprintf("*.%d text\n", i))
	}
	return files
}

// TestUnreachableSpecialFile: a tree beside what is pushed does not have the server asked for a file that the sandbox
// does not see: the answer would tell whether it is there.
func TestUnreachableSpecialFile(t *testing.T) {
	s := newScene(t)
	c := s.client
	c.Run("checkout", "-q", "-b", "secret", s.main)
	s.upload(c.Commit("secret", "secret", "a guess\n"), "secret")
	id := c.Run("rev-parse", "HEAD:secret")
	c.Run("checkout", "-q", "-b", "own", s.main)
	own := c.Commit("work", "work", "1\n")
	for _, name := range []string{".gitattributes", ".gitmodules"} {
		probe := c.RunWith("100644 blob "+id+"\t"+name+"\n", "mktree")
		pack := c.Pack(c.Run("rev-parse", own, own+"^{tree}", own+":work", probe) + "\n")
		f := s.lookInto(pack, own, "")
		if slices.ContainsFunc(s.server.asked, func(q Query) bool { return q.Objects }) {
			t.Errorf("%s: the server was asked for it: %+v; found %+v", name, s.server.asked, f)
		}
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
		"warning: object " + id + ": badFilemode: contains bad file modes\n" + line + end: true,
		"warning: object " + id + ": badFilemode: contains bad file modes\n" + end:        false,
		"error: object x: gitattributesMissing: y\n" + end:                                false,
	} {
		if lacks, ok := unreadAttributes(text); ok != want || ok && lacks[0] != id {
			t.Errorf("%q: %q, %v", text, lacks, ok)
		}
	}
}

// FuzzUnreadAttributes: what git complains of may be anything.
func FuzzUnreadAttributes(f *testing.F) {
	f.Add("error: object 0123456789abcdef0123456789abcdef01234567: gitattributesMissing: x\nfatal: fsck error in pack " +
		"objects\n")
	f.Add("fatal: fsck error in pack objects")
	f.Fuzz(func(t *testing.T, text string) {
		if lacks, ok := unreadAttributes(text); ok && len(lacks) == 0 {
			t.Errorf("%q names nothing", text)
		}
	})
}
