package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove/internal/image/unpack"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

// item is an entry of an archive in a test.
type item struct {
	name string
	kind byte // tar type; 0 is a regular file, or a directory when name ends in "/"
	body string
	link string
	mode int64
	uid  int
}

func tarOf(t testing.TB, items ...item) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, it := range items {
		h := &tar.Header{Name: it.name, Typeflag: it.kind, Linkname: it.link, Mode: it.mode, Uid: it.uid, Gid: it.uid,
			Size: int64(len(it.body)), ModTime: time.Unix(1_700_000_000, 0)}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(it.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%q: %v", it.name, err)
		}
		if _, err := io.WriteString(w, it.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gz(t testing.TB, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// testLayer is a gzipped layer with its digests.
type testLayer struct {
	v1.Layer
	diff v1.Hash
}

func (l testLayer) DiffID() (v1.Hash, error) { return l.diff, nil }

func layerOf(t testing.TB, items ...item) v1.Layer {
	t.Helper()
	return layerFrom(t, tarOf(t, items...))
}

func layerFrom(t testing.TB, plain []byte) v1.Layer {
	t.Helper()
	sum := sha256.Sum256(plain)
	return testLayer{static.NewLayer(gz(t, plain), types.OCILayer),
		v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}}
}

// baseLayers returns a layer that looks like a root filesystem, and two more that change it in every way.
func baseLayers(t testing.TB) []v1.Layer {
	return []v1.Layer{
		layerOf(t, item{name: "./"}, item{name: "bin/"}, item{name: "bin/sh", body: "shell", mode: 0o755},
			item{name: "etc/"}, item{name: "etc/passwd", body: "root:x:0:0"},
			item{name: "etc/shadow", body: "secret", mode: 0o600},
			item{name: "old/"}, item{name: "old/a", body: "a"}, item{name: "old/sub/"}, item{name: "old/sub/b", body: "b"},
			item{name: "opaque/"}, item{name: "opaque/lower", body: "lower"},
			item{name: "becomes-dir", body: "file"}, item{name: "becomes-file/"}, item{name: "becomes-file/x", body: "x"},
			item{name: "linked", body: "one inode"}, item{name: "hard", kind: tar.TypeLink, link: "linked"},
			item{name: "lib", kind: tar.TypeSymlink, link: "/usr/lib"}, item{name: "usr/lib/"},
			item{name: "tmp/", mode: 0o1777}),
		layerOf(t, item{name: "old/.wh.a"}, item{name: ".wh.hard"}, item{name: "opaque/.wh..wh..opq"},
			item{name: "opaque/upper", body: "upper"},
			item{name: "becomes-dir/"}, item{name: "becomes-dir/inner", body: "inner"},
			item{name: "becomes-file", body: "now a file"},
			item{name: "lib/through", body: "through an absolute link"}, item{name: "setuid", body: "s", mode: 0o6755}),
	}
}

// wantTree is the result of baseLayers.
var wantTree = map[string]string{
	"bin/sh": "shell", "etc/passwd": "root:x:0:0", "etc/shadow": "secret", "old/sub/b": "b", "opaque/upper": "upper",
	"becomes-dir/inner": "inner", "becomes-file": "now a file", "linked": "one inode",
	"usr/lib/through": "through an absolute link", "setuid": "s",
}

func imageOf(t testing.TB, arch string, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch,
		Created: v1.Time{Time: time.Unix(1_600_000_000, 0)},
		RootFS:  v1.RootFS{Type: "layers"},
		Config:  v1.Config{Env: []string{"PATH=/bin", "LANG=C.UTF-8", "broken"}, WorkingDir: "/srv", Cmd: []string{"sh"}}})
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		t.Fatal(err)
	}
	return img
}

func hostImage(t testing.TB) v1.Image { return imageOf(t, runtime.GOARCH, baseLayers(t)...) }

// startRegistry serves an in-process registry on loopback, behind wrap unless it is nil, and returns its host and port.
func startRegistry(t testing.TB, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func push(t testing.TB, ref string, img v1.Image) string {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	if err := remote.Write(r, img, remote.WithTransport(tr)); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func newStore(t testing.TB) *Store {
	t.Helper()
	return storeAt(t, filepath.Join(t.TempDir(), "images"))
}

func storeAt(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unpack.RemoveAll(dir) }) // the test's own clean-up fails on directories of mode 0555
	s.keychain = authn.NewMultiKeychain()           // ignore the credentials of the account that runs the tests
	s.patience = patience{attempts: 3, pause: 5 * time.Millisecond, stall: 5 * time.Second}
	return s
}

// readTree returns the regular files below a directory.
func readTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		tree[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func wantSameTree(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	got := readTree(t, dir)
	for name, body := range want {
		if got[name] != body {
			t.Errorf("%s is %q, want %q", name, got[name], body)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}

// wantNoLitter checks that the store holds only complete images.
func wantNoLitter(t testing.TB, s *Store, images int) {
	t.Helper()
	for dir, want := range map[string]int{"tmp": 0, "sha256": images} {
		entries, err := os.ReadDir(filepath.Join(s.dir, dir))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if len(entries) != want {
			t.Errorf("%s has %d entries, want %d: %v", dir, len(entries), want, entries)
		}
	}
}

func writeFile(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
