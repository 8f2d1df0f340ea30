//go:build linux

package sandboxes

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestPulls: a build pulls what the store lacks with --pull, and a dev container its image once the user has agreed to
// it; neither asks the registry again.
func TestPulls(t *testing.T) {
	l := newLab(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	program, err := os.ReadFile(filepath.Join(bin, "cove"))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"base", "files", "dev"} {
		ref, err := name.ParseReference(host + "/" + of + ":1")
		if err != nil {
			t.Fatal(err)
		}
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for file, data := range map[string][]byte{"is": []byte(of + "\n"), "tool": program} {
			if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(data))}); err != nil {
				t.Fatal(err)
			}
			w.Write(data)
		}
		w.Close()
		img, err := mutate.AppendLayers(empty.Image, static.NewLayer(archive.Bytes(), types.OCIUncompressedLayer))
		if err == nil {
			err = remote.Write(ref, img)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	dockerfile := "FROM " + host + "/base:1\nCOPY --from=" + host + "/files:1 /is /also\n"
	out, err := l.built(dockerfile, "-t", "built")
	if err == nil || !strings.Contains(out, "is not in the store") || !strings.Contains(out, "--pull") {
		t.Errorf("without --pull: %v\n%s", err, out)
	}
	out, err = l.built(dockerfile, "-t", "built", "--pull")
	if err != nil || strings.Count(out, "pulling "+host) != 2 {
		t.Errorf("with --pull: %v\n%s", err, out)
	}
	if out, err = l.built(dockerfile, "--pull"); err != nil || strings.Contains(out, "pulling") {
		t.Errorf("again: %v\n%s", err, out)
	}
	if out, err = l.built("FROM "+host+"/none:1", "--pull"); err == nil || !strings.Contains(out, "/none:1") {
		t.Errorf("of an image that the registry lacks: %v\n%s", err, out)
	}

	l.must("mkdir", "-p", l.in("src/.devcontainer"))
	l.write("src/.devcontainer/devcontainer.json", `{"image": "`+host+`/dev:1",
		"postCreateCommand": ["/tool", "version"]}`)
	if said, code := l.makes("not"); code != 0 || strings.Contains(l.must("cove", "image", "list"), host+"/dev") {
		t.Errorf("before the user has agreed: %d, %s", code, said)
	}
	if out := l.must("cove", "devcontainer", "build", "--workspace-folder", "src"); out != host+"/dev:1\n" {
		t.Errorf("build: %s", out)
	}
	l.must("cove", "image", "remove", host+"/dev:1")
	said := l.creates(t, "box", "--devcontainer")
	if out := l.must("cove", "exec", "box", "--", "/tool", "version"); !strings.Contains(out, "cove") {
		t.Errorf("it has %q\n%s", out, said)
	}
	server.Close() // what the store has is not asked for again
	l.creates(t, "again", "--devcontainer")
}
