package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// tree makes a directory of files by their content: a name with a slash at its end is a directory, and content that
// begins with "-> " is a symbolic link.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		name, text := filepath.Join(dir, files[i]), files[i+1]
		var err error
		if strings.HasSuffix(files[i], "/") {
			err = os.MkdirAll(name, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			if to, ok := strings.CutPrefix(text, "-> "); ok {
				err = os.Symlink(to, name)
			} else {
				err = os.WriteFile(name, []byte(text), 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: files have owners")
	}
}

// shown lists the files of a directory with their content.
func shown(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		switch {
		case d.IsDir():
			all = append(all, rel+"/")
		case d.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(name)
			all = append(all, rel+"->"+to)
		default:
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			all = append(all, rel+"="+string(data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// TestCopy: where files come to lie, and what is refused.
func TestCopy(t *testing.T) {
	needRoot(t)
	outside := tree(t, "secret", "secret")
	files := []string{"a", "A", "b.txt", "B", "d/x", "X", "d/e/y", "Y", "d/skip", "S", "keep/skip", "S", "keep/in", "I",
		"link", "-> a", "out", "-> " + outside + "/secret", "up", "-> ../../../../../../etc/passwd",
		".dockerignore", "**/skip\nkeep\n!keep/in\n"}
	image := []string{"app/old", "old", "to", "-> /app", "evil", "-> " + outside, "loop", "-> loop", "file", "f"}
	for _, test := range []struct {
		name, dest string
		words      []string
		want       string // the layer
		err        cove.Code
	}{
		{name: "a file", words: []string{"a"}, dest: "/n", want: "n=A"},
		{name: "into a directory to be made", words: []string{"a"}, dest: "/n/m/", want: "n/ n/m/ n/m/a=A"},
		{name: "into one that is there", words: []string{"/a"}, dest: "/app", want: "app/ app/a=A"},
		{name: "through a link", words: []string{"a"}, dest: "/to/z", want: "app/ app/z=A"},
		{name: "through a link that leads out", words: []string{"a"}, dest: "/evil/z",
			want: strings.Join(parents(outside), " ") + " " + strings.TrimPrefix(outside, "/") + "/z=A"},
		{name: "what a directory holds", words: []string{"d"}, dest: "/d", want: "d/ d/e/ d/e/y=Y d/x=X"},
		{name: "some files of a directory that is left out", words: []string{"keep/in", "keep*"}, dest: "/k/", err: ""},
		{name: "patterns", words: []string{"*.txt"}, dest: "/n/", want: "n/ n/b.txt=B"},
		{name: "a link that is named", words: []string{"link"}, dest: "/n", want: "n=A"},
		{name: "a link that leads out", words: []string{"out"}, dest: "/n", err: cove.NotFound},
		{name: "a link that leads up", words: []string{"up"}, dest: "/n", err: cove.NotFound},
		{name: "a path that leads up", words: []string{"../../../../../../etc/passwd"}, dest: "/n", err: cove.NotFound},
		{name: "what is left out", words: []string{"d/skip"}, dest: "/n", err: cove.NotFound},
		{name: "nothing", words: []string{"nothing"}, dest: "/n", err: cove.NotFound},
		{name: "two files to one", words: []string{"a", "b.txt"}, dest: "/n", err: cove.InvalidArgument},
		{name: "a directory over a file", words: []string{"d"}, dest: "/file", err: cove.InvalidArgument},
		{name: "below a file", words: []string{"a"}, dest: "/file/a", err: cove.InvalidArgument},
		{name: "links without an end", words: []string{"a"}, dest: "/loop/a", err: cove.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, err := OpenContext(tree(t, files...), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			changes := t.TempDir()
			all := Copy{From: from, Words: test.words, Dest: test.dest, Whole: true}
			err = all.Into(t.Context(), changes, rootfs.Stack{tree(t, image...)})
			if cove.ErrorCode(err) != test.err {
				t.Fatalf("%v, want %q", err, test.err)
			}
			if got := shown(t, changes); test.want != "" && got != test.want {
				t.Errorf("the layer has %s\nwant %s", got, test.want)
			}
		})
	}
	if got := shown(t, outside); got != "secret=secret" {
		t.Errorf("outside there is %s", got)
	}
}

// parents are the directories of an absolute path, relative to the root, and itself.
func parents(name string) (all []string) {
	at := ""
	for _, part := range strings.Split(strings.TrimPrefix(name, "/"), "/") {
		at += part + "/"
		all = append(all, at)
	}
	return all
}

// TestCopiedLinks: what one source brings does not lead the next one out.
func TestCopiedLinks(t *testing.T) {
	needRoot(t)
	outside := t.TempDir()
	from, err := OpenContext(tree(t, "one/x", "-> "+outside, "two/x/file", "F"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	both := Copy{From: from, Words: []string{"one", "two"}, Dest: "/n/", Whole: true}
	err = both.Into(t.Context(), t.TempDir(), rootfs.Stack{t.TempDir()})
	if cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("%v", err)
	}
	if got := shown(t, outside); got != "" {
		t.Errorf("outside there is %s", got)
	}
}

// TestSpecialFiles: sockets, pipes and devices of a context are refused by their names.
func TestSpecialFiles(t *testing.T) {
	needRoot(t)
	for name, make := range map[string]func(string) error{
		"pipe":   func(name string) error { return unix.Mkfifo(name, 0o600) },
		"device": func(name string) error { return unix.Mknod(name, unix.S_IFCHR|0o600, 1<<8|3) },
	} {
		dir := tree(t, "d/a", "A")
		if err := make(filepath.Join(dir, "d", name)); err != nil {
			t.Fatal(err)
		}
		from, err := OpenContext(dir, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		all := Copy{From: from, Words: []string{"d"}, Dest: "/n", Whole: true}
		err = all.Into(t.Context(), t.TempDir(), rootfs.Stack{t.TempDir()})
		from.Close()
		if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnpacked: an archive that ADD names becomes its files, with their owners, their links and within the destination;
// one in a directory stays a file.
func TestUnpacked(t *testing.T) {
	needRoot(t)
	outside := t.TempDir()
	archive := func(all ...tar.Header) string {
		t.Helper()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range all {
			if h.Size = int64(len(h.Name)); h.Typeflag != tar.TypeReg {
				h.Size = 0
			}
			h.Mode, h.ModTime = 0o640, time.Unix(1_000_000_000, 0)
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				w.Write([]byte(h.Name))
			}
		}
		w.Close()
		return b.String()
	}
	good := archive(tar.Header{Name: "d/a", Typeflag: tar.TypeReg, Uid: 3, Gid: 4},
		tar.Header{Name: "d/same", Typeflag: tar.TypeLink, Linkname: "d/a"},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: outside})
	through := archive(tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: outside},
		tar.Header{Name: "x/file", Typeflag: tar.TypeReg})
	for _, test := range []struct {
		name, file, dest string
		whole            bool
		want             string
		err              cove.Code
	}{
		{name: "unpacked", file: good, dest: "/n/m", want: "n/ n/m/ n/m/d/ n/m/d/a=d/a n/m/d/same=d/a n/m/link->" + outside},
		{name: "at the top", file: good, dest: "/", want: "d/ d/a=d/a d/same=d/a link->" + outside},
		{name: "into a directory of the image", file: good, dest: "/to/", want: "app/ app/d/ app/d/a=d/a app/d/same=d/a " +
			"app/link->" + outside},
		{name: "whole", file: "hello", dest: "/n", want: "n=hello"},
		{name: "as it is", file: good, dest: "/n", whole: true},
		{name: "over a file", file: good, dest: "/file", err: cove.InvalidArgument},
		{name: "a name that leads up", file: archive(tar.Header{Name: "../x", Typeflag: tar.TypeReg}), dest: "/n",
			err: cove.InvalidArgument},
		{name: "through a link of its own", file: through, dest: "/n", err: cove.InvalidArgument},
		{name: "through a link of the image", file: archive(tar.Header{Name: "evil/x", Typeflag: tar.TypeReg}), dest: "/",
			err: cove.InvalidArgument},
		{name: "cut", file: good[:1400], dest: "/n", err: cove.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, err := OpenContext(tree(t, "x.tar", test.file, "d/x.tar", good), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			changes, room := t.TempDir(), t.TempDir()
			image := tree(t, "app/old", "old", "to", "-> /app", "file", "f", "evil", "-> "+outside)
			err = Copy{From: from, Words: []string{"x.tar"}, Dest: test.dest, Whole: test.whole,
				Owner: &Owner{7, 7}, Room: room}.Into(t.Context(), changes, rootfs.Stack{image})
			if cove.ErrorCode(err) != test.err {
				t.Fatalf("%v, want %q", err, test.err)
			}
			if got := shown(t, changes); test.want != "" && got != test.want {
				t.Errorf("the layer has %s\nwant %s", got, test.want)
			}
			var a, same unix.Stat_t
			if unix.Lstat(filepath.Join(changes, "d/a"), &a) == nil && (a.Uid != 3 || a.Gid != 4 || a.Mode&0o777 != 0o640 ||
				a.Mtim.Sec != 1_000_000_000 || unix.Lstat(filepath.Join(changes, "d/same"), &same) != nil || same.Ino != a.Ino) {
				t.Errorf("%+v, %+v", a, same)
			}
			if got := shown(t, room); got != "" {
				t.Errorf("left behind: %s", got)
			}
		})
	}
	from, err := OpenContext(tree(t, "d/x.tar", good), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	changes := t.TempDir()
	all := Copy{From: from, Words: []string{"d"}, Dest: "/n", Room: t.TempDir()}
	err = all.Into(t.Context(), changes, rootfs.Stack{t.TempDir()})
	if data, e := os.ReadFile(filepath.Join(changes, "n/x.tar")); err != nil || e != nil || string(data) != good {
		t.Errorf("an archive in a directory: %v, %v", err, e)
	}
	if got := shown(t, outside); got != "" {
		t.Errorf("outside there is %s", got)
	}
}

// TestOwners: owners by the names of the tree, modes, and what files of a tree keep.
func TestOwners(t *testing.T) {
	needRoot(t)
	image := tree(t, "etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:7:8::/home/ada:/bin/sh\n",
		"etc/group", "staff:x:50:\n")
	for word, want := range map[string]Owner{"ada": {7, 8}, "ada:staff": {7, 50}, "9": {9, 9}, "9:10": {9, 10},
		"7": {7, 7}, "7:staff": {7, 50}} {
		if got, err := OwnerOf(rootfs.Stack{image}, word); err != nil || *got != want {
			t.Errorf("%s is %v, %v", word, got, err)
		}
	}
	for _, word := range []string{"bob", "ada:bobs", "-1"} {
		if _, err := OwnerOf(rootfs.Stack{image}, word); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", word, err)
		}
	}
	stage := tree(t, "d/a", "A")
	if err := os.Chown(filepath.Join(stage, "d/a"), 11, 12); err != nil {
		t.Fatal(err)
	}
	from, err := OpenStack(rootfs.Stack{stage})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for _, test := range []struct {
		c    Copy
		want Owner
		mode fs.FileMode
	}{{Copy{}, Owner{11, 12}, 0o644},
		{Copy{Owner: &Owner{1, 2}, Mode: &Chmod{octal: true, mode: 0o700}}, Owner{1, 2}, 0o700}} {
		changes := t.TempDir()
		test.c.From, test.c.Words, test.c.Dest, test.c.Whole = from, []string{"d/a"}, "/n", true
		if err := test.c.Into(t.Context(), changes, rootfs.Stack{image}); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(changes, "n"), &st); err != nil {
			t.Fatal(err)
		}
		if got := (Owner{int(st.Uid), int(st.Gid)}); got != test.want || fs.FileMode(st.Mode&0o777) != test.mode {
			t.Errorf("%v %o", got, st.Mode)
		}
	}
}

// TestStack: what a stack shows by its files one by one, as a tree, and in an archive; the layers stay as they are.
func TestStack(t *testing.T) {
	needRoot(t)
	base := tree(t, "gone", "g", "gone-dir/x", "x", "changed", "old", "hidden/old", "o", "merged/old", "o", "to-dir", "f",
		"deep/a/b/file", "f", "to-file/x", "x", "back", "b")
	lower := tree(t, "changed", "new", "hidden/new", "n", "merged/new", "n", "to-dir/x", "x", "link", "-> /merged",
		"deep/a/more", "m", "to-file", "f")
	upper := tree(t, "back", "again", "hidden/late", "l", "gone-dir/y", "y")
	whiteout := func(name string) {
		t.Helper()
		if err := unix.Mknod(name, unix.S_IFCHR, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"gone", "gone-dir", "back", "deep/a/b"} {
		whiteout(filepath.Join(lower, name))
	}
	whiteout(filepath.Join(upper, "merged"))
	if err := unix.Setxattr(filepath.Join(lower, "hidden"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("the file system of temporary files has no attributes: %v", err)
	}
	var archive bytes.Buffer
	if err := Write(t.Context(), &archive, lower); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".wh.gone\x00", ".wh.gone-dir\x00", "hidden/.wh..wh..opq\x00"} {
		if !strings.Contains(archive.String(), name) {
			t.Errorf("the archive has no %q", name)
		}
	}
	before := shown(t, base)
	for _, test := range []struct {
		in   rootfs.Stack
		want string
	}{
		{rootfs.Stack{base}, before},
		{rootfs.Stack{base, lower}, "changed=new deep/ deep/a/ deep/a/more=m hidden/ hidden/new=n link->/merged merged/ " +
			"merged/new=n merged/old=o to-dir/ to-dir/x=x to-file=f"},
		{rootfs.Stack{base, lower, upper}, "back=again changed=new deep/ deep/a/ deep/a/more=m gone-dir/ gone-dir/y=y " +
			"hidden/ hidden/late=l hidden/new=n link->/merged to-dir/ to-dir/x=x to-file=f"},
	} {
		cloned, flat := filepath.Join(t.TempDir(), "clone"), filepath.Join(t.TempDir(), "flat")
		if err := errors.Join(Clone(test.in, cloned), Flatten(t.Context(), test.in, flat)); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, cloned); got != test.want {
			t.Errorf("the tree of %d has %s\nwant %s", len(test.in), got, test.want)
		}
		if got := shown(t, flat); got != test.want {
			t.Errorf("the flat tree of %d has %s\nwant %s", len(test.in), got, test.want)
		}
		for _, name := range []string{"gone", "gone-dir/x", "gone-dir/y", "changed", "hidden/old", "hidden/new", "merged/old",
			"to-dir/x", "to-file/x", "deep/a/b/file", "deep/a/more", "link/new", "back"} {
			found := Find(test.in, name)
			place, ok := filepath.Join(found.Dir, found.Name), found.Dir != ""
			want, err := os.ReadFile(filepath.Join(cloned, strings.Replace(name, "link", "merged", 1)))
			isDir := errors.Is(err, unix.EISDIR)
			if ok != (err == nil || isDir) {
				t.Errorf("of %d, %s is at %q, %v", len(test.in), name, place, err)
			}
			if got, _ := os.ReadFile(place); err == nil && string(got) != string(want) {
				t.Errorf("of %d, %s is %q, not %q", len(test.in), name, got, want)
			}
		}
	}
	for name, want := range map[string]bool{"deep": false, "deep/a/more": true, "hidden": true, "to-dir": true} {
		if found := Find(rootfs.Stack{base, lower}, name); found.Dir == "" || found.Whole != want {
			t.Errorf("%s: %+v", name, found)
		}
	}
	linked := filepath.Join(t.TempDir(), "layer")
	if err := Link(lower, linked); err != nil {
		t.Fatal(err)
	}
	one, err := DiffID(t.Context(), lower)
	two, e := DiffID(t.Context(), linked)
	if err != nil || e != nil || one != two {
		t.Errorf("the layer is %s, linked %s, %v, %v", one, two, err, e)
	}
	if got := shown(t, base); got != before {
		t.Errorf("the base has %s\nwant %s", got, before)
	}
}

// TestDigests: equal layers have equal digests, whose times matter where they are said to.
func TestDigests(t *testing.T) {
	one, two := tree(t, "a", "A", "d/b", "B"), tree(t, "d/b", "B", "a", "A")
	at := time.Unix(1_000_000, 0)
	digest := func(dir string) (string, string) {
		t.Helper()
		id, err := DiffID(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		content, err := Content(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return id, content
	}
	before, content := digest(one)
	for _, dir := range []string{one, two} {
		if err := Clamp(dir, at); err != nil {
			t.Fatal(err)
		}
	}
	idOne, contentOne := digest(one)
	idTwo, contentTwo := digest(two)
	if idOne != idTwo || idOne == before || contentOne != content || contentTwo != content {
		t.Errorf("%s %s %s, %s %s %s", before, idOne, idTwo, content, contentOne, contentTwo)
	}
	if err := os.WriteFile(filepath.Join(two, "a"), []byte("Z"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, changed := digest(two); changed == content {
		t.Error("a changed file has the digest of before")
	}
}
