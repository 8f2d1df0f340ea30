//go:build linux

package egress

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/layer"
)

// TestBuildFetches: what ADD names by a URL comes through the gateway, as the policy of the build allows and with no
// other way, and is the file that its checksum says.
func TestBuildFetches(t *testing.T) {
	l := newLab(t)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "in/it", Typeflag: tar.TypeReg, Size: 2, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("it"))
	w.Close()
	const said = "the file\n"
	at := time.Unix(1_000_000_000, 0).UTC()
	l.Page("/f/a.tar", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Last-Modified", at.Format(http.TimeFormat))
		w.Write(archive.Bytes())
	})
	l.Page("/file", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(said)) })
	l.Page("/missing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	l.Page("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://bad.lab.test/file", http.StatusFound)
	})
	l.Page("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Write([]byte("cut"))
	})
	context := filepath.Join(l.dir, "context")
	if err := os.Mkdir(context, 0o755); err != nil {
		t.Fatal(err)
	}
	build := func(lines string, args ...string) result {
		t.Helper()
		if err := os.WriteFile(filepath.Join(context, "Dockerfile"), []byte("FROM scratch\n"+lines), 0o644); err != nil {
			t.Fatal(err)
		}
		return l.cove(t, append([]string{"image", "build", "-t", "fetched", context}, args...)...)
	}
	sum := sha256.Sum256([]byte(said))
	checksum := "--checksum=sha256:" + hex.EncodeToString(sum[:])
	lines := "ADD https://good.lab.test/f/a.tar /dir/\nADD --unpack=true https://good.lab.test/f/a.tar /un/\n" +
		"ADD --chmod=644 --chown=7:8 " + checksum + " http://good.lab.test/file /renamed\n"
	if got := build(lines, "--allow", "good.lab.test"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if want := []string{"GET good.lab.test/f/a.tar", "GET good.lab.test/f/a.tar", "GET good.lab.test/file"}; !slices.Equal(
		l.seen(), want) {
		t.Errorf("the origins were asked for %q, want %q", l.seen(), want)
	}
	store, err := image.Open(image.Options{Dir: filepath.Join(l.dir, "home/images")})
	if err != nil {
		t.Fatal(err)
	}
	root, err := store.Resolve(t.Context(), "fetched")
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string {
		found := layer.Find(root.Stack(), name)
		return filepath.Join(found.Dir, found.Name)
	}
	info, err := os.Stat(in("dir/a.tar"))
	if err != nil || info.Mode() != 0o600 || !info.ModTime().Equal(at) || info.Size() != int64(archive.Len()) {
		t.Errorf("%+v, %v", info, err)
	}
	info, err = os.Stat(in("renamed"))
	if err != nil || info.Mode() != 0o644 || !info.ModTime().Equal(time.Unix(0, 0)) {
		t.Errorf("%+v, %v", info, err)
	}
	if data, err := os.ReadFile(in("un/in/it")); err != nil || string(data) != "it" {
		t.Errorf("%q, %v", data, err)
	}
	before := len(l.seen())
	if got := build(lines, "--allow", "good.lab.test"); got.code != 0 || strings.Count(got.stderr, "CACHED") != 3 ||
		len(l.seen()) != before+2 {
		t.Errorf("built again: %+v, %q", got, l.seen())
	}
	wrong := "--checksum=sha256:" + strings.Repeat("0", 64)
	for _, test := range []struct {
		line, want string
		args       []string
	}{
		{"ADD https://good.lab.test/file /", "allow it: --allow good.lab.test", nil},
		{"ADD https://bad.lab.test/file /", "allow it: --allow bad.lab.test", []string{"--allow", "good.lab.test"}},
		{"ADD http://bad.lab.test/file /", "allow it: --allow bad.lab.test", []string{"--allow", "good.lab.test"}},
		{"ADD https://good.lab.test/away /", "allow it: --allow bad.lab.test", []string{"--allow", "good.lab.test"}},
		{"ADD http://169.254.169.254/x /", "status 403", []string{"--allow", "good.lab.test"}},
		{"ADD https://good.lab.test/missing /", "status 404", []string{"--allow", "good.lab.test"}},
		{"ADD https://good.lab.test/cut /", "cannot fetch", []string{"--allow", "good.lab.test"}},
		{"ADD https://good.lab.test/ /", "names no file", []string{"--allow", "good.lab.test"}},
		{"ADD https://good.lab.test/x.git /", "x.git\" is not supported", nil},
		{"ADD git@good.lab.test:x /", "ADD of \"git@good.lab.test:x\" is not supported", nil},
		{"ADD " + wrong + " https://good.lab.test/file /", "and not sha256:000", []string{"--allow", "good.lab.test"}},
		{"ADD --checksum=md5:0 https://good.lab.test/file /", "--checksum=md5:0 is not supported", nil},
		{"ADD https://good.lab.test/file Dockerfile /x", "write a slash", []string{"--allow", "good.lab.test"}},
	} {
		if got := build(test.line, test.args...); got.code == 0 || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: %d, want %q\n%s", test.line, got.code, test.want, got.stderr)
		}
	}
	if slices.ContainsFunc(l.seen(), func(r string) bool { return strings.Contains(r, "bad.lab.test") }) {
		t.Errorf("an origin that is not allowed was asked: %q", l.seen())
	}
}
