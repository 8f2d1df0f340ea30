package unpack

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is a tar entry; kind 0 is a file, or a directory when name ends in "/".
type entry struct {
	name, body, link string
	kind             byte
	mode             int64
	uid              int
	mtime            time.Time
	pax              map[string]string
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Uid: e.uid, Gid: e.uid,
			Size:    int64(len(e.body)),
			ModTime: e.mtime, PAXRecords: e.pax}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(e.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%q: %v", e.name, err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// room is a tree with canaries around it.
type room struct {
	t      testing.TB
	around string // contains "canary", "canary-dir/canary" and "tree"
	dir    string
	limits Limits
	stats  Stats
}

const canary = "must stay as it is"

func newRoom(t testing.TB) *room {
	t.Helper()
	around := t.TempDir()
	r := &room{t: t, around: around, dir: filepath.Join(around, "tree"), limits: DefaultLimits()}
	for _, dir := range []string{"tree", "canary-dir"} {
		if err := os.Mkdir(filepath.Join(around, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"canary", "canary-dir/canary"} {
		if err := os.WriteFile(filepath.Join(around, file), []byte(canary), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := RemoveAll(r.dir); err != nil { // the test's own clean-up fails on some modes
			t.Errorf("remove the tree: %v", err)
		}
	})
	return r
}

// apply applies archives in order and finishes the tree.
func (r *room) apply(kind Kind, archives ...[]byte) error {
	r.t.Helper()
	tree, err := New(r.dir, r.limits)
	if err != nil {
		r.t.Fatal(err)
	}
	defer tree.Close()
	for _, a := range archives {
		if _, err := tree.Apply(r.t.Context(), bytes.NewReader(a), kind); err != nil {
			return err
		}
	}
	r.stats, err = tree.Finish()
	return err
}

// untouched checks everything outside the tree: content, mode, times, owners, link counts, and no new entries.
func (r *room) untouched() {
	r.t.Helper()
	var names []string
	err := filepath.WalkDir(r.around, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == r.dir {
			return filepath.SkipDir
		}
		rel, _ := filepath.Rel(r.around, path)
		names = append(names, rel)
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if st := info.Sys().(*syscall.Stat_t); string(data) != canary || info.Mode() != 0o600 || st.Nlink != 1 ||
			int(st.Uid) != os.Geteuid() {
			r.t.Errorf("canary %s changed: %q, %v, %d links, uid %d", rel, data, info.Mode(), st.Nlink, st.Uid)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if want := []string{".", "canary", "canary-dir", "canary-dir/canary"}; !slices.Equal(names, want) {
		r.t.Errorf("outside the tree are %q, want %q", names, want)
	}
}

// list describes the tree: "path type mode content-or-target".
func (r *room) list() []string {
	r.t.Helper()
	var all []string
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == r.dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(r.dir, path)
		line := rel
		switch info.Mode().Type() {
		case fs.ModeDir:
			line += "/"
		case fs.ModeSymlink:
			to, _ := os.Readlink(path)
			line += " -> " + to
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " = " + string(data)
		default:
			line += " " + info.Mode().Type().String()
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *room) want(lines ...string) {
	r.t.Helper()
	if got := r.list(); !slices.Equal(got, lines) {
		r.t.Errorf("the tree is\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

func TestLayers(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers [][]entry
		want   []string
	}{
		{"plain", [][]entry{{{name: "./"}, {name: "a/"}, {name: "a/b", body: "x"}, {name: "./c", body: "y"}}},
			[]string{"a/", "a/b = x", "c = y"}},
		{"root as slash", [][]entry{{{name: "/"}, {name: "a", body: "x"}}}, []string{"a = x"}},
		{"parents left out", [][]entry{{{name: "a/b/c", body: "x"}}}, []string{"a/", "a/b/", "a/b/c = x"}},
		{"upper wins", [][]entry{{{name: "a", body: "1"}}, {{name: "a", body: "2"}}}, []string{"a = 2"}},
		{"last of a name wins", [][]entry{{{name: "a", body: "1"}, {name: "a", body: "22"}}}, []string{"a = 22"}},
		{"directories merge", [][]entry{{{name: "d/"}, {name: "d/1", body: "1"}}, {{name: "d/"}, {name: "d/2", body: "2"}}},
			[]string{"d/", "d/1 = 1", "d/2 = 2"}},
		{"file becomes directory", [][]entry{{{name: "a", body: "1"}}, {{name: "a/"}, {name: "a/b", body: "2"}}},
			[]string{"a/", "a/b = 2"}},
		{"directory becomes file", [][]entry{{{name: "a/"}, {name: "a/b/"}, {name: "a/b/c", body: "2"}},
			{{name: "a", body: "1"}}}, []string{"a = 1"}},
		{"directory becomes link", [][]entry{{{name: "a/b", body: "2"}}, {{name: "a", kind: tar.TypeSymlink, link: "b"}}},
			[]string{"a -> b"}},
		{"link becomes directory", [][]entry{{{name: "b/x", body: "1"}, {name: "a", kind: tar.TypeSymlink, link: "b"}},
			{{name: "a/"}, {name: "a/y", body: "2"}}},
			[]string{"a/", "a/y = 2", "b/", "b/x = 1"}},
		{"within one layer", [][]entry{{{name: "a", body: "1"}, {name: "a/"}, {name: "a/x", body: "x"},
			{name: "a", kind: tar.TypeSymlink, link: "."}}},
			[]string{"a -> ."}},
		{"device becomes nothing", [][]entry{{{name: "a", body: "1"}}, {{name: "a", kind: tar.TypeChar}}}, nil},

		{"whiteout", [][]entry{{{name: "a", body: "1"}, {name: "d/x", body: "x"}}, {{name: ".wh.a"}, {name: ".wh.d"}}}, nil},
		{"whiteout of nothing", [][]entry{{{name: "a", body: "1"}},
			{{name: ".wh.b"}, {name: "no/where/.wh.b"}, {name: "a/.wh.b"}}}, []string{"a = 1"}},
		{"whiteout spares its own layer", [][]entry{{{name: "d/low", body: "1"}, {name: "f", body: "low"}},
			{{name: "d/"}, {name: "d/high", body: "2"}, {name: "f", body: "high"}, {name: ".wh.d"}, {name: ".wh.f"}}},
			[]string{"d/", "d/high = 2", "f = high"}},
		{"whiteout before its own layer's", [][]entry{{{name: "d/low", body: "1"}},
			{{name: ".wh.d"}, {name: "d/high", body: "2"}}},
			[]string{"d/", "d/high = 2"}},
		{"whiteout of a link spares its target",
			[][]entry{{{name: "b", body: "1"}, {name: "a", kind: tar.TypeSymlink, link: "b"}}, {{name: ".wh.a"}}},
			[]string{"b = 1"}},
		{"whiteout through a link", [][]entry{{{name: "d/x", body: "1"}, {name: "l", kind: tar.TypeSymlink, link: "/d"}},
			{{name: "l/.wh.x"}}},
			[]string{"d/", "l -> /d"}},
		{"opaque first", [][]entry{{{name: "d/low/x", body: "1"}},
			{{name: "d/"}, {name: "d/.wh..wh..opq"}, {name: "d/high", body: "2"}}},
			[]string{"d/", "d/high = 2"}},
		{"opaque last", [][]entry{{{name: "d/low/x", body: "1"}, {name: "d/both/low", body: "1"}},
			{{name: "d/"}, {name: "d/both/"}, {name: "d/both/high", body: "2"}, {name: "d/.wh..wh..opq"}}},
			[]string{"d/", "d/both/", "d/both/high = 2"}},
		{"opaque root", [][]entry{{{name: "a", body: "1"}, {name: "d/x", body: "1"}},
			{{name: "b", body: "2"}, {name: ".wh..wh..opq"}}}, []string{"b = 2"}},
		{"opaque of nothing", [][]entry{{{name: "d/.wh..wh..opq"}}}, []string{"d/"}},
		{"old driver's book-keeping", [][]entry{{{name: ".wh..wh.plnk/"}, {name: ".wh..wh.plnk/12.34", body: "x"},
			{name: ".wh..wh.aufs", body: "x"}}}, nil},

		{"hard link", [][]entry{{{name: "a", body: "1"}, {name: "b", kind: tar.TypeLink, link: "a"}}},
			[]string{"a = 1", "b = 1"}},
		{"hard link to a lower layer", [][]entry{{{name: "a", body: "1"}}, {{name: "d/b", kind: tar.TypeLink, link: "./a"}}},
			[]string{"a = 1", "d/", "d/b = 1"}},
		{"hard link to itself", [][]entry{{{name: "a", body: "1"}, {name: "a", kind: tar.TypeLink, link: "a"}}},
			[]string{"a = 1"}},
		{"hard link replaces", [][]entry{{{name: "a", body: "1"}, {name: "b/c", body: "2"}},
			{{name: "b", kind: tar.TypeLink, link: "a"}}},
			[]string{"a = 1", "b = 1"}},
		{"a new file leaves the other name of the old one",
			[][]entry{{{name: "a", body: "1"}, {name: "b", kind: tar.TypeLink, link: "a"}}, {{name: "b", body: "2"}}},
			[]string{"a = 1", "b = 2"}},
		{"hard link to a link",
			[][]entry{{{name: "l", kind: tar.TypeSymlink, link: "/etc"}, {name: "m", kind: tar.TypeLink, link: "l"}}},
			[]string{"l -> /etc", "m -> /etc"}},
		{"fifo", [][]entry{{{name: "p", kind: tar.TypeFifo}}}, []string{"p p---------"}},
		{"case matters", [][]entry{{{name: "Readme", body: "1"}, {name: "README", body: "2"}, {name: "readme", body: "3"}}},
			[]string{"README = 2", "Readme = 1", "readme = 3"}},
		{"newline and escape codes are names",
			[][]entry{{{name: "a\nb", body: "1"}, {name: "\x1b[31mred", body: "2"}, {name: "\xff\xfe", body: "3"}}},
			[]string{"\x1b[31mred = 2", "a\nb = 1", "\xff\xfe = 3"}},
		{"trailing slashes and doubled ones",
			[][]entry{{{name: "a//b///", kind: tar.TypeDir}, {name: "a/./b//c", body: "1"}}},
			[]string{"a/", "a/b/", "a/b/c = 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(t)
			var layers [][]byte
			for _, l := range c.layers {
				layers = append(layers, pack(t, l...))
			}
			if err := r.apply(Layer, layers...); err != nil {
				t.Fatal(err)
			}
			r.want(c.want...)
			r.untouched()
		})
	}
}

// TestLinksStayInside follows symlinks of an image as a sandbox with the tree as its root would, and nowhere else.
func TestLinksStayInside(t *testing.T) {
	for _, c := range []struct {
		name    string
		target  string // of the link "l"; AROUND is the directory of the canaries
		inside  string // the place of l/canary
		refused bool
	}{
		{"relative", "real", "real/canary", false},
		{"absolute", "/real", "real/canary", false},
		{"up and out", "../canary-dir", "", true},
		{"up and out, target made inside", "../real", "real/canary", false},
		{"far up", strings.Repeat("../", 100) + "real", "real/canary", false},
		{"host's own path", "AROUND/canary-dir", "", true},
		{"root", "/", "canary", false},
		{"up", "..", "canary", false},
		{"proc", "/proc/self/root", "", true},
		{"proc cwd", "/proc/self/cwd", "", true},
		{"loop", "l", "", true},
		{"dangling", "nowhere", "", true},
		{"a file", "file", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(t)
			t.Chdir(filepath.Join(r.around, "canary-dir")) // the target of a wrong lookup
			link := entry{name: "l", kind: tar.TypeSymlink, link: strings.ReplaceAll(c.target, "AROUND", r.around)}
			err := r.apply(Layer, pack(t, entry{name: "real/"}, entry{name: "file", body: "f"}, link),
				pack(t, entry{name: "l/canary", body: "overwritten"}, entry{name: "l/dir/"},
					entry{name: "l/fifo", kind: tar.TypeFifo},
					entry{name: "l/sym", kind: tar.TypeSymlink, link: "x"},
					entry{name: "l/hard", kind: tar.TypeLink, link: "l/canary"},
					entry{name: "l/.wh.nothing"}))
			if (err != nil) != c.refused {
				t.Fatalf("err = %v, refused should be %v", err, c.refused)
			}
			if err != nil && cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("code %s: %v", cove.ErrorCode(err), err)
			}
			r.untouched()
			if c.inside != "" {
				if data, err := os.ReadFile(filepath.Join(r.dir, c.inside)); err != nil || string(data) != "overwritten" {
					t.Errorf("%s: %q, %v", c.inside, data, err)
				}
			}
		})
	}
}

// TestHostile applies archives that try to escape, each refused or contained, beside a harmless control.
func TestHostile(t *testing.T) {
	ok := entry{name: "control", body: "there"}
	for _, c := range []struct {
		name    string
		entries []entry
		code    cove.Code // empty: contained, not refused
		want    []string  // in addition to the control
	}{
		{"control alone", nil, "", nil},
		{"dot dot", []entry{{name: "../canary", body: "x"}}, cove.InvalidArgument, nil},
		{"dot dot inside", []entry{{name: "a/"}, {name: "a/../../canary", body: "x"}}, cove.InvalidArgument, nil},
		{"dot dot at the end", []entry{{name: "a/..", kind: tar.TypeDir}}, cove.InvalidArgument, nil},
		{"absolute", []entry{{name: "/canary", body: "x"}}, cove.InvalidArgument, nil},
		{"absolute, doubled", []entry{{name: "//canary", body: "x"}}, cove.InvalidArgument, nil},
		{"absolute directory", []entry{{name: "/tmp/cove-test-dir/"}}, cove.InvalidArgument, nil},
		{"root as a file", []entry{{name: "./", kind: tar.TypeSymlink, link: "/"}}, cove.InvalidArgument, nil},
		{"root as a link", []entry{{name: "/", kind: tar.TypeSymlink, link: "../canary-dir"}}, cove.InvalidArgument, nil},
		{"root as a hard link", []entry{{name: ".", kind: tar.TypeLink, link: "a"}}, cove.InvalidArgument, nil},
		{"link replaced by what goes through it", []entry{{name: "l", kind: tar.TypeSymlink, link: "../canary-dir"},
			{name: "l", body: "x"}}, "", []string{"l = x"}},
		{"directory over a link out", []entry{{name: "l", kind: tar.TypeSymlink, link: "../canary-dir"}, {name: "l/"},
			{name: "l/canary", body: "x"}}, "",
			[]string{"l/", "l/canary = x"}},
		{"chain of links", []entry{{name: "a", kind: tar.TypeSymlink, link: "b/.."},
			{name: "b", kind: tar.TypeSymlink, link: ".."},
			{name: "a/canary-dir/canary", body: "x"}}, "", []string{"a -> b/..", "b -> ..", "canary-dir/",
			"canary-dir/canary = x"}},
		{"hard link out", []entry{{name: "h", kind: tar.TypeLink, link: "../canary"}, {name: "h", body: "x"}},
			cove.InvalidArgument, nil},
		{"hard link out, absolute", []entry{{name: "h", kind: tar.TypeLink, link: "/etc/passwd"}}, cove.InvalidArgument, nil},
		{"hard link out through a link", []entry{{name: "l", kind: tar.TypeSymlink, link: "../canary-dir"},
			{name: "h", kind: tar.TypeLink, link: "l/canary"}},
			cove.InvalidArgument, nil},
		{"hard link to a directory", []entry{{name: "d/"}, {name: "h", kind: tar.TypeLink, link: "d"}},
			cove.InvalidArgument, nil},
		{"hard link to the root", []entry{{name: "h", kind: tar.TypeLink, link: "./"}}, cove.InvalidArgument, nil},
		{"hard link to a link out, written through", []entry{{name: "l", kind: tar.TypeSymlink, link: "../canary"},
			{name: "h", kind: tar.TypeLink, link: "l"},
			{name: "h", body: "x"}}, "", []string{"h = x", "l -> ../canary"}},
		{"hard link onto the directory of its target", []entry{{name: "d/f", body: "x"},
			{name: "d", kind: tar.TypeLink, link: "d/f"}}, cove.InvalidArgument, nil},
		{"character device", []entry{{name: "null", kind: tar.TypeChar}}, "", nil},
		{"block device", []entry{{name: "sda", kind: tar.TypeBlock}}, "", nil},
		{"unknown type", []entry{{name: "odd", kind: 'Z'}}, "", nil},
		{"whiteout of the parent", []entry{{name: "d/"}, {name: "d/.wh...", body: ""}}, cove.InvalidArgument, nil},
		{"whiteout of itself", []entry{{name: "d/"}, {name: "d/.wh..", body: ""}}, cove.InvalidArgument, nil},
		{"whiteout of nothing at all", []entry{{name: "d/.wh.", body: ""}}, cove.InvalidArgument, nil},
		{"whiteout as a directory", []entry{{name: ".wh.x/y", body: ""}}, cove.InvalidArgument, nil},
		{"whiteout through a link out", []entry{{name: "l", kind: tar.TypeSymlink, link: "../canary-dir"},
			{name: "l/.wh.canary"}}, "",
			[]string{"l -> ../canary-dir"}},
		{"opaque through a link out", []entry{{name: "l", kind: tar.TypeSymlink, link: "../canary-dir"},
			{name: "l/.wh..wh..opq"}}, cove.InvalidArgument, nil},
		{"component too long", []entry{{name: strings.Repeat("x", 256), body: "x"}}, cove.InvalidArgument, nil},
		{"path too long", []entry{{name: strings.Repeat("xxxxxxx/", 600), kind: tar.TypeDir}}, cove.TooLarge, nil},
		{"path too deep", []entry{{name: strings.Repeat("x/", 256), kind: tar.TypeDir}}, cove.TooLarge, nil},
		{"empty link", []entry{{name: "l", kind: tar.TypeSymlink}}, cove.InvalidArgument, nil},
		{"endless link", []entry{{name: "l", kind: tar.TypeSymlink, link: strings.Repeat("x", 5000)}},
			cove.InvalidArgument, nil},
		{"through a file", []entry{{name: "f", body: "x"}, {name: "f/g", body: "y"}}, cove.InvalidArgument, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(t)
			err := r.apply(Layer, pack(t, append([]entry{ok}, c.entries...)...))
			if cove.ErrorCode(err) != c.code {
				t.Errorf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
			if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
				t.Errorf("the message has control characters: %q", err)
			}
			r.untouched()
			if c.code == "" {
				want := append([]string{"control = there"}, c.want...)
				slices.Sort(want)
				got := r.list()
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("the tree is %q, want %q", got, want)
				}
			}
		})
	}
}

// TestLinksDoNotDeepen: each round descends through a symlink to the end of the last one, with short names.
func TestLinksDoNotDeepen(t *testing.T) {
	r := newRoom(t)
	deep := strings.TrimSuffix(strings.Repeat("d/", 200), "/")
	entries := []entry{{name: deep + "/"}, {name: "l", kind: tar.TypeSymlink, link: deep}}
	if err := r.apply(Layer, pack(t, append(entries, entry{name: "l/control", body: "x"})...)); err != nil {
		t.Fatalf("control: %v", err)
	}
	r = newRoom(t)
	if err := r.apply(Layer,
		pack(t, append(entries, entry{name: "l/" + deep + "/"})...)); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("a tree of 400 levels: %v", err)
	}
}

func TestModesOwnersAndTimes(t *testing.T) {
	r := newRoom(t)
	past, future := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), time.Now().Add(1000*time.Hour)
	err := r.apply(Layer, pack(t,
		entry{name: "./", mode: 0o755, mtime: past},
		entry{name: "closed/", mode: 0o555, mtime: past}, entry{name: "closed/inner", body: "x", mode: 0o400, mtime: past},
		entry{name: "nobody/", mode: 0o1, mtime: past}, entry{name: "nobody/inner", body: "x", mode: 0o1},
		entry{name: "sticky/", mode: 0o1777, mtime: past}, entry{name: "setgid-dir/", mode: 0o2755, mtime: past},
		entry{name: "suid", body: "x", mode: 0o6755, mtime: future},
		entry{name: "sticky-file", body: "x", mode: 0o1644, mtime: time.Unix(-5, 0)},
		entry{name: "link", kind: tar.TypeSymlink, link: "suid", mtime: past},
		entry{name: "pipe", kind: tar.TypeFifo, mode: 0o4622, mtime: past},
		entry{name: "owned", body: "x", uid: 1234, mtime: past},
		entry{name: "huge-id", body: "x", uid: 2_000_000, mtime: past},
		entry{name: "cap", body: "x", mtime: past,
			pax: map[string]string{CapabilityRecord: "\x01\x00\x00\x02\x00\x20\x00\x00", "SCHILY.xattr.user.note": "x"}},
	), pack(t, entry{name: "closed/second", body: "from the next layer", mtime: past}))
	if err != nil {
		t.Fatal(err)
	}
	mode := func(name string) uint32 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(r.dir, name), &st); err != nil {
			t.Fatal(err)
		}
		return st.Mode
	}
	for name, want := range map[string]uint32{
		"": unix.S_IFDIR | 0o755, "closed": unix.S_IFDIR | 0o555, "closed/inner": unix.S_IFREG | 0o400,
		"nobody": unix.S_IFDIR | 0o1,
		"sticky": unix.S_IFDIR | 0o1777, "setgid-dir": unix.S_IFDIR | 0o2755, "suid": unix.S_IFREG | 0o6755,
		"sticky-file": unix.S_IFREG | 0o644,
		"pipe":        unix.S_IFIFO | 0o622,
	} {
		if got := mode(name); got != want {
			t.Errorf("%q has mode %o, want %o", name, got, want)
		}
	}
	for name, want := range map[string]time.Time{"": past, "closed": past, "closed/inner": past, "link": past,
		"pipe": past, "sticky-file": time.Unix(0, 0)} {
		info, err := os.Lstat(filepath.Join(r.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !info.ModTime().Equal(want) {
			t.Errorf("%q is of %v, want %v", name, info.ModTime(), want)
		}
	}
	if info, err := os.Stat(filepath.Join(r.dir, "suid")); err != nil || info.ModTime().After(time.Now()) {
		t.Errorf("a time in the future was kept: %v, %v", info.ModTime(), err)
	}
	for name, want := range map[string]int{"owned": 1234, "huge-id": 65534} {
		if !mayChown() {
			want = os.Geteuid()
		}
		info, err := os.Lstat(filepath.Join(r.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := int(info.Sys().(*syscall.Stat_t).Uid); got != want {
			t.Errorf("%s belongs to %d, want %d", name, got, want)
		}
	}
	if n, err := unix.Llistxattr(filepath.Join(r.dir, "cap"), make([]byte, 1024)); err != nil && err != unix.ENOTSUP ||
		n > 0 {
		t.Errorf("extended attributes were kept: %d bytes, %v", n, err)
	}
	if r.stats.Files != 10 || r.stats.Dirs != 5 {
		t.Errorf("counted %+v", r.stats)
	}
}

// TestCapabilities: a program keeps the capabilities that root inside may have, and none of others.
func TestCapabilities(t *testing.T) {
	value := func(version, permitted, high uint32) string {
		var data []byte
		for _, word := range []uint32{version, permitted, 0, high, 0} {
			data = binary.LittleEndian.AppendUint32(data, word)
		}
		return string(data)
	}
	const effective, bind, raw, admin = 0x02000001, 1 << unix.CAP_NET_BIND_SERVICE, 1 << unix.CAP_NET_RAW,
		1 << unix.CAP_SYS_ADMIN
	r := newRoom(t)
	all := map[string]string{
		"bind": value(effective, bind, 0), "later": value(0x02000000, bind|1<<unix.CAP_CHOWN, 0),
		"raw": value(effective, raw, 0), "both": value(effective, bind|admin, 0), "high": value(effective, bind, 1),
		"namespaced": value(0x03000001, bind, 0) + "\x00\x00\x00\x00", "flags": value(0x02000003, bind, 0),
		"none": value(effective, 0, 0), "short": "\x01",
	}
	var entries []entry
	for name, value := range all {
		entries = append(entries, entry{name: name, body: "x", mode: 0o755, pax: map[string]string{CapabilityRecord: value}})
	}
	if err := r.apply(Layer, pack(t, entries...)); err != nil {
		t.Fatal(err)
	}
	for name, value := range all {
		got := make([]byte, 64)
		n, err := unix.Lgetxattr(filepath.Join(r.dir, name), Capability, got)
		if err == unix.ENOTSUP {
			t.Skip("the file system has no such attributes")
		}
		kept := mayChown() && (name == "bind" || name == "later")
		if kept != (err == nil) || kept && string(got[:n]) != value {
			t.Errorf("%s: %q, %v", name, got[:max(n, 0)], err)
		}
	}
}

func TestArchiveKindHasNoWhiteouts(t *testing.T) {
	r := newRoom(t)
	if err := r.apply(Archive, pack(t, entry{name: "a", body: "1"}, entry{name: ".wh.a", body: "2"},
		entry{name: ".wh.d/x", body: "3"})); err != nil {
		t.Fatal(err)
	}
	r.want(".wh.a = 2", ".wh.d/", ".wh.d/x = 3", "a = 1")
}

func TestRemoveAll(t *testing.T) {
	around := t.TempDir()
	keep := filepath.Join(around, "keep")
	dir := filepath.Join(around, "dir")
	for _, d := range []string{keep, filepath.Join(dir, "a", "b")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(keep, filepath.Join(dir, "a", "l")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a/b", "a"} {
		if err := os.Chmod(filepath.Join(dir, d), 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}
