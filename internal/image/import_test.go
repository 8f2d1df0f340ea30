package image

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image/source"
)

// rootItems is a small root filesystem as an archive.
var rootItems = []item{{name: "./"}, {name: "bin/"}, {name: "bin/sh", body: "shell", mode: 0o755},
	{name: "etc/passwd", body: "root"},
	{name: ".wh.name", body: "just a name"}, {name: "bin/link", kind: tar.TypeLink, link: "bin/sh"}}

var rootTree = map[string]string{"bin/sh": "shell", "bin/link": "shell", "etc/passwd": "root",
	".wh.name": "just a name"}

func writeLayout(t testing.TB, dir string, images map[string]v1.Image) string {
	t.Helper()
	idx, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for tag, img := range images {
		if err := idx.AppendImage(img, layout.WithAnnotations(map[string]string{refAnnotation: tag})); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeDockerArchive(t testing.TB, path string, images map[string]v1.Image) string {
	t.Helper()
	byTag := map[name.Tag]v1.Image{}
	for s, img := range images {
		tag, err := name.NewTag(s)
		if err != nil {
			t.Fatal(err)
		}
		byTag[tag] = img
	}
	if err := tarball.MultiWriteToFile(path, byTag); err != nil {
		t.Fatal(err)
	}
	return path
}

// tarDir archives a directory as a user would.
func tarDir(t testing.TB, dir string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zst(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

// TestSources: one image has one digest, from every source, by an explicit scheme and by detection.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	img := hostImage(t)
	id, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	other := imageOf(t, runtime.GOARCH, layerOf(t, item{name: "bin/other", body: "other"}))
	one := writeLayout(t, filepath.Join(dir, "one"), map[string]v1.Image{"1": img})
	two := writeLayout(t, filepath.Join(dir, "two"), map[string]v1.Image{"1": img, "2": other})
	oneTar := writeFile(t, filepath.Join(dir, "one.tar"), tarDir(t, one))
	docker := writeDockerArchive(t, filepath.Join(dir, "docker.tar"), map[string]v1.Image{"app:1": img})
	data, err := os.ReadFile(docker)
	if err != nil {
		t.Fatal(err)
	}
	dockerGz := writeFile(t, filepath.Join(dir, "docker.tar.gz"), gz(t, data))
	docker2 := writeDockerArchive(t, filepath.Join(dir, "docker2.tar"),
		map[string]v1.Image{"app:1": img, "other.example/app:2": other})
	colon := writeDockerArchive(t, filepath.Join(dir, "a:b.tar"), map[string]v1.Image{"app:1": img})
	for _, c := range []struct {
		source string
		code   cove.Code
	}{
		{"oci:" + one, ""}, {"oci:" + one + ":1", ""}, {one, ""}, {"oci:" + two + ":1", ""}, {"oci:" + oneTar, ""},
		{oneTar, ""}, {"oci:" + oneTar + ":1", ""},
		{"docker-archive:" + docker, ""}, {"docker-archive:" + docker + ":app:1", ""}, {docker, ""},
		{"docker-archive:" + dockerGz, ""}, {dockerGz, ""},
		{"docker-archive:" + docker2 + ":app:1", ""}, {"docker-archive:" + docker2 + ":docker.io/library/app:1", ""},
		{"docker-archive:" + colon, ""}, {"docker-archive:" + colon + ":app:1", ""},
		{"oci:" + two, cove.InvalidArgument}, {"oci:" + one + ":nope", cove.NotFound},
		{"docker-archive:" + docker2, cove.InvalidArgument},
		{"docker-archive:" + docker + ":nope", cove.NotFound},
		{"docker-archive:" + docker + ":BAD TAG", cove.InvalidArgument},
		{"oci:" + dir, cove.InvalidArgument}, {"docker-archive:" + dir, cove.InvalidArgument},
		{"docker-archive:" + oneTar, cove.InvalidArgument},
		{"oci:" + docker, cove.InvalidArgument}, {"tar:" + docker, cove.InvalidArgument},
		{"tar:" + oneTar, cove.InvalidArgument},
		{"oci:" + dir + "/missing", cove.NotFound}, {"tar:" + dir, cove.InvalidArgument},
		{"oci:relative", cove.InvalidArgument},
		{dir + "/missing", cove.NotFound}, {"app:1", cove.InvalidArgument}, {"host", cove.InvalidArgument},
		{"", cove.InvalidArgument},
	} {
		t.Run(strings.ReplaceAll(c.source, dir, ""), func(t *testing.T) {
			s := newStore(t)
			got, err := s.Import(t.Context(), c.source, "mine:1", ImportOptions{})
			if cove.ErrorCode(err) != c.code {
				t.Fatalf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
			if err != nil {
				wantNoLitter(t, s, 0)
				return
			}
			if got.Digest != id.String() {
				t.Errorf("digest %s, want the configuration's %s", got.Digest, id)
			}
			r, err := s.Resolve(t.Context(), "mine:1")
			if err != nil {
				t.Fatal(err)
			}
			wantSameTree(t, r.Dir, wantTree)
			if _, err := s.Resolve(t.Context(), "app:1"); cove.ErrorCode(err) != cove.ImageMissing {
				t.Errorf("a name was taken from the archive: %v", err)
			}
			wantNoLitter(t, s, 1)
			if strings.Contains(c.source, ":/") { // Resolve accepts the schemes too
				s := newStore(t)
				if r, err := s.Resolve(t.Context(), c.source); err != nil || r.Digest != id.String() {
					t.Errorf("resolve: %s, %v", r.Digest, err)
				}
			}
		})
	}
}

func TestTar(t *testing.T) {
	dir := t.TempDir()
	plain := tarOf(t, rootItems...)
	for name, data := range map[string][]byte{"root.tar": plain, "root.tar.gz": gz(t, plain),
		"root.tar.zst": zst(t, plain)} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			path := writeFile(t, filepath.Join(dir, name), data)
			for range 2 {
				r, err := s.Resolve(t.Context(), "tar:"+path)
				if err != nil {
					t.Fatal(err)
				}
				if r.Kind != engine.RootfsDir || r.Digest == "" {
					t.Errorf("%+v", r)
				}
				wantSameTree(t, r.Dir, rootTree)
			}
			wantNoLitter(t, s, 1)
		})
	}
	t.Run("no root filesystem", func(t *testing.T) {
		s := newStore(t)
		path := writeFile(t, filepath.Join(dir, "other.tar"), tarOf(t, item{name: "rootfs/bin/sh", body: "x"}))
		if _, err := s.Resolve(t.Context(), "tar:"+path); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("code %q: %v", cove.ErrorCode(err), err)
		}
		wantNoLitter(t, s, 0)
	})
}

// TestTarIsReadAgainWhenItChanges: a change is noticed even if size and modification time stay the same.
func TestTarIsReadAgainWhenItChanges(t *testing.T) {
	s := newStore(t)
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "root.tar")
	old := time.Now().Add(-time.Hour)
	write := func(body string) {
		writeFile(t, path, tarOf(t, item{name: "bin/sh", body: body}))
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	resolve := func() string {
		t.Helper()
		r, err := s.Resolve(ctx, "tar:"+path)
		if err != nil {
			t.Fatal(err)
		}
		return readTree(t, r.Dir)["bin/sh"]
	}
	write("one")
	if got := resolve(); got != "one" {
		t.Fatalf("read %q", got)
	}
	write("two")
	if got := resolve(); got != "two" {
		t.Errorf("after a change just now: %q", got)
	}
	if idx, err := s.index(); err != nil || idx.Files["tar:"+path].Stamp.Size != -1 {
		t.Errorf("a file that changed a moment ago is trusted: %+v, %v", idx.Files, err)
	}
	// A file whose last change is some time ago is not read again …
	setCTimeKnown(t, s, path)
	idx, err := s.index()
	if err != nil {
		t.Fatal(err)
	}
	if f := idx.Files["tar:"+path]; f.Stamp.Size < 0 {
		t.Fatalf("not remembered: %+v", f)
	}
	if got := resolve(); got != "two" {
		t.Errorf("remembered as %q", got)
	}
	// … until it changes.
	write("six")
	if got := resolve(); got != "six" {
		t.Errorf("after a later change: %q", got)
	}
	// Its former image has no name now.
	removed, err := s.Prune(ctx, nil)
	if err != nil || len(removed.Images) < 2 {
		t.Errorf("pruned %+v, %v", removed, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(ctx, "tar:"+path); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("a file that is gone: %v", err)
	}
	if _, err := s.Prune(ctx, nil); err != nil {
		t.Error(err)
	}
	wantNoLitter(t, s, 0)
}

// setCTimeKnown resolves the file again after its change has settled, two seconds later.
func setCTimeKnown(t *testing.T, s *Store, path string) {
	t.Helper()
	time.Sleep(2100 * time.Millisecond) // sleep: the change time cannot be set
	if _, err := s.Resolve(t.Context(), "tar:"+path); err != nil {
		t.Fatal(err)
	}
}

func TestDirectory(t *testing.T) {
	ctx := t.Context()
	src := filepath.Join(t.TempDir(), "root")
	writeFile(t, filepath.Join(src, "bin/sh"), []byte("shell"))
	writeFile(t, filepath.Join(src, "etc/passwd"), []byte("root"))
	for _, err := range []error{
		os.Link(filepath.Join(src, "bin/sh"), filepath.Join(src, "bin/link")),
		os.Symlink("/etc/shadow", filepath.Join(src, "out")),
		os.Symlink(filepath.Join(t.TempDir()), filepath.Join(src, "dir-out")),
		syscall.Mkfifo(filepath.Join(src, "pipe"), 0o600),
		os.Chmod(filepath.Join(src, "bin/sh"), 0o755|os.ModeSetuid),
		os.Mkdir(filepath.Join(src, "closed"), 0o500),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"bin/sh": "shell", "bin/link": "shell", "etc/passwd": "root"}

	t.Run("where it is", func(t *testing.T) {
		s := newStore(t)
		r, err := s.Resolve(ctx, "dir:"+src)
		if err != nil || r.Kind != engine.RootfsDir || r.Dir != src || r.Digest != "" {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("the store was made for nothing: %v", err)
		}
	})
	t.Run("copied", func(t *testing.T) {
		s := newStore(t)
		if _, err := s.Import(ctx, "dir:"+src, "", ImportOptions{}); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("without a name: %v", err)
		}
		img, err := s.Import(ctx, src, "copy", ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Import(ctx, "dir:"+src, "copy:again", ImportOptions{})
		if err != nil || again.Digest != img.Digest || len(again.Names) != 2 {
			t.Errorf("the same tree again is %+v, %v", again, err)
		}
		r, err := s.Resolve(ctx, "copy")
		if err != nil {
			t.Fatal(err)
		}
		wantSameTree(t, r.Dir, want)
		if to, err := os.Readlink(filepath.Join(r.Dir, "out")); err != nil || to != "/etc/shadow" {
			t.Errorf("link is %q, %v", to, err)
		}
		info, err := os.Stat(filepath.Join(r.Dir, "bin/sh"))
		if err != nil || info.Mode() != 0o755|os.ModeSetuid || info.Sys().(*syscall.Stat_t).Nlink != 2 {
			t.Errorf("bin/sh is %v, %v", info.Mode(), err)
		}
		wantNoLitter(t, s, 1)
		writeFile(t, filepath.Join(src, "etc/new"), []byte("new"))
		if img2, err := s.Import(ctx, "dir:"+src, "copy", ImportOptions{}); err != nil || img2.Digest == img.Digest {
			t.Errorf("a changed tree has the same digest, %v", err)
		}
	})
	t.Run("no root filesystem", func(t *testing.T) {
		s := newStore(t)
		for _, f := range []func() error{
			func() error { _, err := s.Resolve(ctx, "dir:"+s.dir+"/.."); return err },
			func() error {
				_, err := s.Import(ctx, "dir:"+filepath.Join(src, "etc"), "x", ImportOptions{})
				return err
			},
			func() error { _, err := s.Resolve(ctx, "dir:"+filepath.Join(src, "etc/passwd")); return err },
		} {
			if err := f(); cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("code %q: %v", cove.ErrorCode(err), err)
			}
		}
		if _, err := s.Resolve(ctx, "dir:/"); cove.ErrorCode(err) != cove.Forbidden {
			t.Errorf("dir:/ : %v", err)
		}
		if _, err := s.Resolve(ctx, "dir:/does/not/exist"); cove.ErrorCode(err) != cove.NotFound {
			t.Errorf("missing: %v", err)
		}
	})
}

// TestCheckPath: every path of a user passes the check, and the check's result is used.
func TestCheckPath(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	writeFile(t, filepath.Join(root, "bin/sh"), []byte("x"))
	tarFile := writeFile(t, filepath.Join(dir, "root.tar"), tarOf(t, rootItems...))
	var asked []string
	refuse := false
	s, err := Open(Options{Dir: filepath.Join(dir, "images"), CheckPath: func(p string) (string, error) {
		asked = append(asked, p)
		if refuse {
			return "", cove.Errorf(cove.Forbidden, "no")
		}
		return filepath.EvalSymlinks(p)
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, refuse = range []bool{false, true} {
		want := cove.Code("")
		if refuse {
			want = cove.Forbidden
		}
		for ref, path := range map[string]string{"dir:" + root: root, "tar:" + tarFile: tarFile} {
			asked = nil
			_, err := s.Resolve(t.Context(), ref)
			if cove.ErrorCode(err) != want || len(asked) != 1 || asked[0] != path {
				t.Errorf("%s: %v, asked %q", ref, err, asked)
			}
			_, err = s.Import(t.Context(), ref, "x", ImportOptions{})
			if cove.ErrorCode(err) != want {
				t.Errorf("import %s: %v", ref, err)
			}
		}
	}
}

// TestHostileArchives: hostile statements of a layout or saved archive.
func TestHostileArchives(t *testing.T) {
	dir := t.TempDir()
	secret := writeFile(t, filepath.Join(dir, "secret"), []byte(`{"os":"linux"}`))
	layer := string(tarOf(t, item{name: "bin/sh", body: "x"}))
	long := strings.Repeat("x", 200)
	manifest := func(config, layer string) string {
		return mustJSON(t, []saved{{Config: config, Layers: []string{layer}}})
	}
	config := `{"os":"linux","architecture":"` + runtime.GOARCH + `","rootfs":{"type":"layers","diff_ids":["sha256:` +
		strings.Repeat("0", 64) + `"]}}`
	for _, c := range []struct {
		name  string
		items []item
	}{
		{"config outside", []item{{name: "manifest.json", body: manifest("../secret", "layer.tar")},
			{name: "layer.tar", body: layer}}},
		{"config absolute", []item{{name: "manifest.json", body: manifest(secret, "layer.tar")},
			{name: "layer.tar", body: layer}}},
		{"config a link out", []item{{name: "manifest.json", body: manifest("c", "layer.tar")},
			{name: "c", kind: tar.TypeSymlink, link: secret}}},
		{"config a link loop", []item{{name: "manifest.json", body: manifest("c", "layer.tar")},
			{name: "c", kind: tar.TypeSymlink, link: "c"}}},
		{"layer a link out", []item{{name: "manifest.json", body: manifest("c", "l")}, {name: "c", body: config},
			{name: "l", kind: tar.TypeLink, link: "../secret"}}},
		{"wrong diff id", []item{{name: "manifest.json", body: manifest("c", "l")}, {name: "c", body: config},
			{name: "l", body: layer}}},
		{"manifest a directory", []item{{name: "manifest.json/"}}},
		{"manifest no JSON", []item{{name: "manifest.json", body: "]["}}},
		{"manifest null", []item{{name: "manifest.json", body: "null"}}},
		{"config no JSON", []item{{name: "manifest.json", body: manifest("c", "l")}, {name: "c", body: "{"},
			{name: "l", body: layer}}},
		{"config null", []item{{name: "manifest.json", body: manifest("c", "l")}, {name: "c", body: "null"},
			{name: "l", body: layer}}},
		{"config huge", []item{{name: "manifest.json", body: manifest("c", "l")},
			{name: "c", body: strings.Repeat(" ", maxConfig+1)}, {name: "l", body: layer}}},
		{"odd digest", []item{{name: "oci-layout", body: "{}"},
			{name: "index.json",
				body: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,` +
					`"digest":"sha256:../../secret"}]}`}}},
		{"other algorithm",
			[]item{{name: "index.json",
				body: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha512:` +
					strings.Repeat("0", 128) + `"}]}`}}},
		{"negative size",
			[]item{{name: "index.json",
				body: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":-1,"digest":"sha256:` +
					strings.Repeat("0", 64) + `"}]}`}}},
		{"no manifests", []item{{name: "index.json", body: `{"manifests":[]}`}}},
		{"names of escape codes",
			[]item{{name: "index.json", body: `{"manifests":[{"annotations":{"` + refAnnotation + `":"\u001b[31m` + long +
				`"}},{"annotations":{"` + refAnnotation + `":"b"}}]}`}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, scheme := range []string{"docker-archive:", "oci:"} {
				s := newStore(t)
				path := writeFile(t, filepath.Join(t.TempDir(), "hostile.tar"), tarOf(t, c.items...))
				_, err := s.Import(t.Context(), scheme+path, "x", ImportOptions{})
				switch cove.ErrorCode(err) {
				case cove.InvalidArgument, cove.Corrupt, cove.TooLarge, cove.Unsupported:
				default:
					t.Errorf("%s code %q: %v", scheme, cove.ErrorCode(err), err)
				}
				if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
					t.Errorf("the message has control characters: %q", err)
				}
				wantNoLitter(t, s, 0)
			}
		})
	}
	t.Run("layout whose blobs lead out", func(t *testing.T) {
		l := writeLayout(t, filepath.Join(dir, "layout"), map[string]v1.Image{"1": hostImage(t)})
		s := newStore(t)
		if _, err := s.Import(t.Context(), "oci:"+l, "control", ImportOptions{}); err != nil {
			t.Fatalf("control: %v", err)
		}
		if err := os.Rename(filepath.Join(l, "blobs"), filepath.Join(dir, "moved")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, "moved"), filepath.Join(l, "blobs")); err != nil {
			t.Fatal(err)
		}
		if _, err := newStore(t).Import(t.Context(), "oci:"+l, "x", ImportOptions{}); err == nil {
			t.Error("blobs outside of the layout were read")
		}
	})
	t.Run("layout whose blobs changed", func(t *testing.T) {
		img := hostImage(t)
		manifest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		layer, err := layers[0].Digest()
		if err != nil {
			t.Fatal(err)
		}
		for what, digest := range map[string]v1.Hash{"manifest": manifest, "configuration": config, "layer": layer} {
			l := writeLayout(t, filepath.Join(t.TempDir(), "layout"), map[string]v1.Image{"1": img})
			blob := filepath.Join(l, "blobs", "sha256", digest.Hex)
			data, err := os.ReadFile(blob)
			if err != nil {
				t.Fatal(err)
			}
			// An added space preserves the JSON value; only the digest differs.
			if err := os.WriteFile(blob, append(data[:len(data)-1], ' ', data[len(data)-1]), 0o644); err != nil {
				t.Fatal(err)
			}
			s := newStore(t)
			if _, err := s.Import(t.Context(), "oci:"+l, "x", ImportOptions{}); cove.ErrorCode(err) != cove.Corrupt {
				t.Errorf("%s: code %q: %v", what, cove.ErrorCode(err), err)
			}
			wantNoLitter(t, s, 0)
		}
	})
	t.Run("a pipe as archive", func(t *testing.T) {
		path := filepath.Join(dir, "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"tar:" + path, "docker-archive:" + path, "oci:" + path} {
			if _, err := newStore(t).Resolve(t.Context(), ref); cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("%s: %v", ref, err)
			}
		}
	})
}

// TestPathsDoNotMove: an attacker replaces a directory by a symlink between the check and the opening.
func TestPathsDoNotMove(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	writeFile(t, filepath.Join(secret, "root.tar"), tarOf(t, rootItems...))
	writeFile(t, filepath.Join(secret, "tree", "bin", "sh"), []byte("secret"))
	writeLayout(t, filepath.Join(secret, "layout"), map[string]v1.Image{"1": hostImage(t)})
	for _, ref := range []string{"tar:root.tar", "dir:tree", "oci:layout", "docker-archive:root.tar"} {
		s, err := Open(Options{Dir: filepath.Join(dir, "images"), CheckPath: func(p string) (string, error) {
			return p, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		public := filepath.Join(dir, "public")
		if err := os.Symlink(secret, public); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(t.Context(), source.Absolute(ref, public)); cove.ErrorCode(err) != cove.Forbidden {
			t.Errorf("%s: code %q: %v", ref, cove.ErrorCode(err), err)
		}
		if err := os.Remove(public); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(secret, public); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(t.Context(), source.Absolute(ref, public)); cove.ErrorCode(err) == cove.Forbidden {
			t.Errorf("control %s: %v", ref, err)
		}
		if err := os.Rename(public, secret); err != nil {
			t.Fatal(err)
		}
	}
}
