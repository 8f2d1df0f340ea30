package layer

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// TestCopyFlags: --parents keeps the directories of a source, and --exclude leaves out what it names.
func TestCopyFlags(t *testing.T) {
	needRoot(t)
	files := []string{"a/b/x.txt", "X", "a/b/y.md", "Y", "a/c/z.txt", "Z", "top.txt", "T", "out", "-> /etc"}
	for _, test := range []struct {
		name string
		c    Copy
		want string
		err  cove.Code
	}{
		{name: "parents", c: Copy{Words: []string{"a/b/x.txt", "top.txt"}, Dest: "/n", Parents: true},
			want: "n/ n/a/ n/a/b/ n/a/b/x.txt=X n/top.txt=T"},
		{name: "parents of a directory", c: Copy{Words: []string{"./a/c"}, Dest: "/n/", Parents: true},
			want: "n/ n/a/ n/a/c/ n/a/c/z.txt=Z"},
		{name: "parents of a pattern", c: Copy{Words: []string{"a/*/*.txt"}, Dest: "/", Parents: true},
			want: "a/ a/b/ a/b/x.txt=X a/c/ a/c/z.txt=Z"},
		{name: "parents from a place on", c: Copy{Words: []string{"./a/./b/x.txt", "a/c/./z.txt"}, Dest: "/n/",
			Parents: true}, want: "n/ n/b/ n/b/x.txt=X n/z.txt=Z"},
		{name: "parents at any depth", c: Copy{Words: []string{"**/*.txt"}, Dest: "/n/", Parents: true},
			err: cove.Unsupported},
		{name: "parents that lead up", c: Copy{Words: []string{"../a/../../top.txt"}, Dest: "/n/", Parents: true},
			want: "n/ n/top.txt=T"},
		{name: "parents through a link that leads out", c: Copy{Words: []string{"out/passwd"}, Dest: "/n/", Parents: true},
			err: cove.NotFound},
		{name: "exclude", c: Copy{Words: []string{"a"}, Dest: "/n", Exclude: []string{"b/*.md", "c"}},
			want: "n/ n/b/ n/b/x.txt=X"},
		{name: "exclude at any depth", c: Copy{Words: []string{"."}, Dest: "/n", Exclude: []string{"**/*.txt", "out"}},
			want: "n/ n/a/ n/a/b/ n/a/b/y.md=Y n/a/c/"},
		{name: "exclude a file that is named", c: Copy{Words: []string{"top.txt", "a/b/y.md"}, Dest: "/n/",
			Exclude: []string{"*.txt"}}, want: "n/ n/y.md=Y"},
		{name: "exclude by no pattern", c: Copy{Words: []string{"a"}, Dest: "/n", Exclude: []string{"[a-"}},
			err: cove.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, err := OpenContext(tree(t, files...), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			changes := t.TempDir()
			test.c.From, test.c.Whole = from, true
			err = test.c.Into(t.Context(), changes, rootfs.Stack{t.TempDir()})
			if cove.ErrorCode(err) != test.err {
				t.Fatalf("%v, want %q", err, test.err)
			}
			if got := shown(t, changes); test.want != "" && got != test.want {
				t.Errorf("the layer has %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestParentsKeepModes: directories that --parents makes are as in the source.
func TestParentsKeepModes(t *testing.T) {
	needRoot(t)
	dir := tree(t, "a/b/x", "X")
	if err := os.Chmod(filepath.Join(dir, "a"), 0o711); err != nil {
		t.Fatal(err)
	}
	from, err := OpenContext(dir, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	changes := t.TempDir()
	all := Copy{From: from, Words: []string{"a/b/x"}, Dest: "/", Parents: true}
	err = all.Into(t.Context(), changes, rootfs.Stack{t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(changes, "a")); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestParseChmod(t *testing.T) {
	const file, program, dir = fs.FileMode(0o640), fs.FileMode(0o750), fs.ModeDir | 0o700
	for _, test := range []struct {
		text     string
		of, want fs.FileMode
	}{
		{"755", file, 0o755}, {"4711", file, fs.ModeSetuid | 0o711}, {"0", dir, fs.ModeDir},
		{"u=rwX,go=rX", file, 0o644}, {"u=rwX,go=rX", program, 0o755}, {"u=rwX,go=rX", dir, fs.ModeDir | 0o755},
		{"+x", file, 0o751}, {"a-w", file, 0o440}, {"g+w,o+r", file, 0o664}, {"o=", fs.FileMode(0o777), 0o770},
		{"u+s", program, fs.ModeSetuid | 0o750}, {"+t", dir, fs.ModeDir | fs.ModeSticky | 0o700},
		{"ug+rw-x", fs.FileMode(0o111), 0o661},
	} {
		c, err := ParseChmod(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got := c.of(test.of); got != test.want {
			t.Errorf("%s makes %v of %v, want %v", test.text, got, test.of, test.want)
		}
	}
	for _, text := range []string{"", "9", "77777", "rwx", "q+x", "u+q", "u=r,", "u", "-1"} {
		if c, err := ParseChmod(text); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

// TestCopiedDirectory: of a directory what is in it is copied, and not its owner and mode, unless it is said to.
func TestCopiedDirectory(t *testing.T) {
	needRoot(t)
	dir := tree(t, "d/e/x", "X")
	for name, mode := range map[string]fs.FileMode{"d": 0o700, "d/e": 0o710} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for itself, want := range map[bool]fs.FileMode{false: 0o755, true: 0o700} {
		from, err := OpenStack(rootfs.Stack{dir})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		changes := t.TempDir()
		all := Copy{From: from, Words: []string{"d"}, Dest: "/n", Itself: itself}
		err = all.Into(t.Context(), changes, rootfs.Stack{t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		for name, mode := range map[string]fs.FileMode{"n": want, "n/e": 0o710} {
			if info, err := os.Stat(filepath.Join(changes, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s is %v, %v, want %v", name, info, err, mode)
			}
		}
	}
}
