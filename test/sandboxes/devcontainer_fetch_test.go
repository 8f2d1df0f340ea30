//go:build linux

package sandboxes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// features is a registry of features.
type features struct {
	mu    sync.Mutex
	blobs map[string][]byte // manifests by PATH:TAG and PATH:DIGEST, layers by their digests
}

func blobDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// push has the registry serve files as the feature NAME:1, and returns the digest of its manifest.
func (r *features) push(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for file, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: "./" + file, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(text))
	}
	w.Close()
	layer := archive.Bytes()
	manifest := fmt.Sprintf(`{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": {"mediaType": "application/vnd.devcontainers", "digest": %q, "size": 2},
		"layers": [{"mediaType": "application/vnd.devcontainers.layer.v1+tar", "digest": %q, "size": %d}]}`,
		blobDigest([]byte("{}")), blobDigest(layer), len(layer))
	r.mu.Lock()
	defer r.mu.Unlock()
	digest := blobDigest([]byte(manifest))
	r.blobs[name+":1"], r.blobs[name+":"+digest], r.blobs[blobDigest(layer)] = []byte(manifest), []byte(manifest), layer
	return digest
}

func (r *features) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	name, tag, isManifest := strings.Cut(path, "/manifests/")
	_, digest, _ := strings.Cut(path, "/blobs/")
	key := digest
	if isManifest {
		key = name + ":" + tag
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	}
	data, is := r.blobs[key]
	if path != "" && !is {
		http.NotFound(w, q)
		return
	}
	w.Write(data)
}

// TestDevContainerFetches: features of a registry, with one on which another depends, are fetched when the user has
// agreed, and kept as they were then.
func TestDevContainerFetches(t *testing.T) {
	l := newLab(t)
	l.withDebian()
	r := &features{blobs: map[string][]byte{}}
	server := httptest.NewServer(r)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	r.push(t, "f/base", map[string]string{"devcontainer-feature.json": `{"id": "base"}`,
		"install.sh": "#!/bin/sh\necho base >>/made\n"})
	tool := map[string]string{
		"devcontainer-feature.json": `{"id": "tool", "options": {"word": {"type": "string", "default": "none"}},
			"dependsOn": {"` + host + `/f/base:1": {}}}`,
		"install.sh": "#!/bin/sh\ncat lib/made >>/made; echo $WORD >>/made\n", "lib/made": "tool\n"}
	first := r.push(t, "f/tool", tool)
	l.must("mkdir", "-p", l.in("src/.devcontainer"))
	l.write("src/.devcontainer/Dockerfile", "FROM debian\n")
	write := func(feature string) {
		l.write("src/.devcontainer/devcontainer.json", `{"build": {"dockerfile": "Dockerfile"},
			"postCreateCommand": "cat /made >~/log", "features": {"`+host+feature+`": {"word": "given"}}}`)
	}
	write("/f/tool:1")
	if said, code := l.makes("not"); code != 0 || !strings.Contains(said, "has not been fetched") {
		t.Errorf("before the user has agreed: %d, %s", code, said)
	}
	l.must("cove", "destroy", "--yes", "not")
	said := l.creates(t, "box", "--devcontainer")
	for _, name := range []string{"tool", "base"} {
		if want := "fetching the feature " + host + "/f/" + name + ":1 from " + host; strings.Count(said, want) != 1 {
			t.Errorf("it does not say %q once:\n%s", want, said)
		}
	}
	if log := l.home("box", "log"); log != "base\ntool\ngiven\n" {
		t.Errorf("they left %q\n%s", log, said)
	}

	// What the registry has later is nothing that the user has agreed to.
	tool["lib/made"] = "other\n"
	r.push(t, "f/tool", tool)
	if said = l.creates(t, "again"); strings.Contains(said, "fetching the feature") || strings.Contains(said, "#") {
		t.Errorf("again: %s", said)
	}

	// A lock file has the artifact of its digest fetched, and no other.
	lock := func(digest string) {
		l.write("src/.devcontainer/devcontainer-lock.json", `{"features": {"`+host+`/f/tool:1": {"resolved": "`+host+
			`/f/tool@`+digest+`", "integrity": "`+digest+`"}}}`)
	}
	l.must("rm", "-r", l.in("home/devcontainers/features"))
	lock(first)
	said = l.creates(t, "locked", "--devcontainer")
	if log := l.home("locked", "log"); log != "base\ntool\ngiven\n" ||
		!strings.Contains(said, "fetching the feature "+host+"/f/tool@"+first) {
		t.Errorf("what is locked left %q\n%s", log, said)
	}
	wrong := blobDigest([]byte("wrong"))
	r.mu.Lock()
	r.blobs["f/tool:"+wrong] = r.blobs["f/tool:1"]
	r.mu.Unlock()
	lock(wrong)
	if said, code := l.makes("wrong", "--devcontainer"); code == 0 || !strings.Contains(said, "digest") {
		t.Errorf("an artifact of another digest: %d, %s", code, said)
	}
	l.must("rm", l.in("src/.devcontainer/devcontainer-lock.json"))

	// A registry with another blob than its manifest says, with an archive that leads elsewhere, or without it.
	r.push(t, "f/lies", map[string]string{"devcontainer-feature.json": `{"id": "lies"}`})
	r.mu.Lock()
	for digest, data := range r.blobs {
		if strings.HasPrefix(digest, "sha256:") && bytes.Contains(data, []byte(`"lies"`)) {
			r.blobs[digest] = append(bytes.Clone(data[:len(data)-1]), 'x')
		}
	}
	r.mu.Unlock()
	r.push(t, "f/out", map[string]string{"../out": "x"})
	kept, err := os.ReadDir(l.in("home/devcontainers/features"))
	if err != nil {
		t.Fatal(err)
	}
	for feature, want := range map[string]string{"/f/lies:1": "digest", "/f/out:1": "no file below it",
		"/f/none:1": "has no such"} {
		write(feature)
		if said, code := l.makes("wrong", "--devcontainer"); code == 0 || !strings.Contains(said, want) {
			t.Errorf("%s: %d, %s", feature, code, said)
		}
	}
	if left, err := os.ReadDir(l.in("home/devcontainers/features")); err != nil || len(left) != len(kept) {
		t.Errorf("kept are %d, then %d, %v", len(kept), len(left), err)
	}
}
