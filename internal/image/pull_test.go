package image

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

func TestPull(t *testing.T) {
	var blobs atomic.Int64
	host := startRegistry(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				blobs.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	})
	ref := host + "/team/app:1"
	manifest := push(t, ref, hostImage(t))
	s := newStore(t)
	ctx := t.Context()

	_, err := s.Resolve(ctx, ref)
	if cove.ErrorCode(err) != cove.ImageMissing || !strings.Contains(cove.ErrorHint(err), "cove image pull "+ref) {
		t.Fatalf("before the pull: %v", err)
	}
	last := map[string]Event{}
	img, err := s.Pull(ctx, ref, PullOptions{Progress: func(e Event) { last[string(e.Stage)+e.Digest] = e }})
	if err != nil {
		t.Fatal(err)
	}
	if img.Platform != "linux/"+runtime.GOARCH || img.Config.WorkingDir != "/srv" || len(img.Names) != 1 ||
		img.Names[0] != ref || img.Size == 0 ||
		img.Created.Unix() != 1_600_000_000 {
		t.Errorf("the record is %+v", img)
	}
	for _, ref := range []string{ref, host + "/team/app@" + manifest, host + "/team/app:other@" + manifest, img.Digest,
		img.Digest[:20]} {
		r, err := s.Resolve(ctx, ref)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if r.Kind != engine.RootfsDir || r.Digest != img.Digest || fmt.Sprint(r.Env) != "[PATH=/bin LANG=C.UTF-8]" {
			t.Errorf("%s: %+v", ref, r)
		}
		wantSameTree(t, r.Dir, wantTree)
	}
	if len(last) != 4 {
		t.Errorf("progress of 2 layers in 2 stages: %v", last)
	}
	for _, e := range last {
		if e.Done != e.Total || e.Total <= 0 || e.Layers != 2 {
			t.Errorf("last report %+v", e)
		}
	}
	wantNoLitter(t, s, 1)

	before := blobs.Load()
	if _, err := s.Pull(ctx, ref, PullOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := blobs.Load() - before; n != 1 { // the configuration, which identifies the image
		t.Errorf("pulling again fetched %d blobs", n)
	}
}

func TestPullMovesAName(t *testing.T) {
	host := startRegistry(t, nil)
	ref := host + "/app:latest"
	first := push(t, ref, hostImage(t))
	s := newStore(t)
	ctx := t.Context()
	old, err := s.Pull(ctx, host+"/app", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	push(t, ref, imageOf(t, runtime.GOARCH, layerOf(t, item{name: "bin/new", body: "new"})))
	img, err := s.Pull(ctx, ref, PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(ctx, host+"/app")
	if err != nil || r.Digest != img.Digest || r.Digest == old.Digest {
		t.Errorf("the name stands for %s, %v", r.Digest, err)
	}
	if r, err := s.Resolve(ctx, host+"/app@"+first); err != nil || r.Digest != old.Digest {
		t.Errorf("the digest stands for %s, %v", r.Digest, err)
	}
	removed, err := s.Prune(ctx, nil)
	if err != nil || len(removed.Images) != 1 || removed.Images[0].Digest != old.Digest || removed.Freed != old.Size {
		t.Errorf("pruned %+v, %v", removed, err)
	}
	if _, err := s.Resolve(ctx, host+"/app@"+first); cove.ErrorCode(err) != cove.ImageMissing {
		t.Errorf("after the prune: %v", err)
	}
	wantNoLitter(t, s, 1)
}

func TestPullChoosesThePlatform(t *testing.T) {
	host := startRegistry(t, nil)
	other := "riscv64"
	idx := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, other, layerOf(t, item{name: "arch", body: other})),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: other}}},
		mutate.IndexAddendum{Add: imageOf(t, runtime.GOARCH, layerOf(t, item{name: "arch", body: "host"})),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH, Variant: "v8"}}},
		mutate.IndexAddendum{Add: imageOf(t, "unknown"),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}})
	r, err := name.ParseReference(host + "/multi:1")
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	if err := remote.WriteIndex(r, idx, remote.WithTransport(tr)); err != nil {
		t.Fatal(err)
	}
	top, err := idx.Digest()
	if err != nil {
		t.Fatal(err)
	}
	push(t, host+"/single:1", imageOf(t, other, layerOf(t, item{name: "arch", body: other})))
	s := newStore(t)
	for _, c := range []struct {
		ref, platform, want string
		code                cove.Code
	}{
		{"/multi:1", "", "host", ""},
		{"/multi@" + top.String(), "", "host", ""},
		{"/multi:1", "linux/" + other, other, ""},
		{"/multi:1", "linux/s390x", "", cove.Unsupported},
		{"/multi:1", "windows/amd64", "", cove.InvalidArgument},
		{"/multi:1", "linux", "", cove.InvalidArgument},
		{"/single:1", "", "", cove.Unsupported},
		{"/single:1", "linux/" + other, other, ""},
	} {
		img, err := s.Pull(t.Context(), host+c.ref, PullOptions{Platform: c.platform})
		if cove.ErrorCode(err) != c.code {
			t.Errorf("%s for %q: code %q, want %q: %v", c.ref, c.platform, cove.ErrorCode(err), c.code, err)
		}
		if err != nil {
			continue
		}
		if got := readTree(t, filepath.Join(s.imageDir(img.Digest), "rootfs"))["arch"]; got != c.want {
			t.Errorf("%s for %q is for %q", c.ref, c.platform, got)
		}
	}
}

// tamper changes the answers to requests whose path contains a string.
func tamper(part string, change func(w http.ResponseWriter, r *http.Request,
	h http.Handler)) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, part) {
				change(w, r, h)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// record serves a request into memory.
func record(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func flipLast(w http.ResponseWriter, r *http.Request, h http.Handler) {
	rec := record(h, r)
	body := rec.Body.Bytes()
	if len(body) > 10 {
		body[len(body)-10] ^= 1
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	w.Write(body)
}

func TestPullRefusesWhatIsNotItsDigest(t *testing.T) {
	img := hostImage(t)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers[1].Digest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	longer := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		w.Write(append(record(h, r).Body.Bytes(), "more"...))
	}
	for _, c := range []struct {
		name string
		wrap func(http.Handler) http.Handler
		ref  string
		code cove.Code
	}{
		{"control", nil, ":1", ""},
		{"layer", tamper(layer.String(), flipLast), ":1", cove.Corrupt},
		{"layer, longer", tamper(layer.String(), longer), ":1", cove.Corrupt},
		{"configuration", tamper(config.String(), flipLast), ":1", cove.Corrupt},
		{"manifest by digest", tamper("/manifests/", flipLast), "@" + manifest.String(), cove.Corrupt},
		{"control by digest", nil, "@" + manifest.String(), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := startRegistry(t, c.wrap)
			push(t, host+"/app:1", img)
			s := newStore(t)
			_, err := s.Pull(t.Context(), host+"/app"+c.ref, PullOptions{})
			if cove.ErrorCode(err) != c.code {
				t.Fatalf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
			if c.code != "" {
				wantNoLitter(t, s, 0)
			}
		})
	}
}

// TestPullRefusesLyingImages: every digest is right, but the configuration, the layers and the manifest contradict each
// other.
func TestPullRefusesLyingImages(t *testing.T) {
	host := startRegistry(t, nil)
	good := layerOf(t, item{name: "bin/sh", body: "x"})
	for _, c := range []struct {
		name string
		img  v1.Image
		code cove.Code
	}{
		{"honest", imageOf(t, runtime.GOARCH, good), ""},
		{"other diff id", imageOf(t, runtime.GOARCH,
			testLayer{good, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}), cove.Corrupt},
		{"fewer diff ids", withConfig(t, imageOf(t, runtime.GOARCH, good), func(c *v1.ConfigFile) {
			c.RootFS.DiffIDs = nil
		}), cove.InvalidArgument},
		{"escapes", imageOf(t, runtime.GOARCH, layerOf(t, item{name: "../x", body: "x"})), cove.InvalidArgument},
		{"no layers", imageOf(t, runtime.GOARCH), ""},
		{"the same layer twice", imageOf(t, runtime.GOARCH, good, layerOf(t, item{name: "b", body: "y"}), good), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			ref := host + "/lying:" + strings.ReplaceAll(c.name, " ", "-")
			push(t, ref, c.img)
			_, err := s.Pull(t.Context(), ref, PullOptions{})
			if cove.ErrorCode(err) != c.code {
				t.Fatalf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
			if err != nil {
				wantNoLitter(t, s, 0)
			}
		})
	}
}

func withConfig(t *testing.T, img v1.Image, change func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	change(c)
	img, err = mutate.ConfigFile(img, c)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestPullSurvivesABrokenConnection(t *testing.T) {
	img := hostImage(t)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		failures int64
		code     cove.Code
	}{{0, ""}, {2, ""}, {3, cove.Unavailable}} {
		t.Run(fmt.Sprint(c.failures, " failures"), func(t *testing.T) {
			var asked atomic.Int64
			host := startRegistry(t, tamper(digest.String(), func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				if asked.Add(1) > c.failures {
					h.ServeHTTP(w, r)
					return
				}
				body := record(h, r).Body.Bytes()
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				w.Write(body[:len(body)/2])
				w.(http.Flusher).Flush() // otherwise no byte was sent, which is a different failure
				panic(http.ErrAbortHandler)
			}))
			push(t, host+"/app:1", img)
			s := newStore(t)
			_, err := s.Pull(t.Context(), host+"/app:1", PullOptions{})
			if cove.ErrorCode(err) != c.code {
				t.Fatalf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
			if n := asked.Load(); n != min(c.failures+1, 3) {
				t.Errorf("asked %d times", n)
			}
			if err != nil {
				wantNoLitter(t, s, 0)
			}
		})
	}
}

func TestPullEnds(t *testing.T) {
	img := hostImage(t)
	block := func(entered chan<- struct{}) func(http.Handler) http.Handler {
		layers, _ := img.Layers()
		digest, _ := layers[0].Digest()
		return tamper(digest.String(), func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			w.Header().Set("Content-Length", "1000000")
			w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			entered <- struct{}{}
			<-r.Context().Done()
		})
	}
	t.Run("when canceled", func(t *testing.T) {
		entered := make(chan struct{}, 10)
		host := startRegistry(t, block(entered))
		push(t, host+"/app:1", img)
		s := newStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-entered; cancel() }()
		if _, err := s.Pull(ctx, host+"/app:1", PullOptions{}); cove.ErrorCode(err) != cove.Canceled {
			t.Errorf("code %q: %v", cove.ErrorCode(err), err)
		}
		wantNoLitter(t, s, 0)
	})
	t.Run("when nothing comes", func(t *testing.T) {
		host := startRegistry(t, block(make(chan struct{}, 10)))
		push(t, host+"/app:1", img)
		s := newStore(t)
		s.patience.stall = 50 * time.Millisecond
		_, err := s.Pull(t.Context(), host+"/app:1", PullOptions{})
		if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "sent nothing") {
			t.Errorf("code %q: %v", cove.ErrorCode(err), err)
		}
		wantNoLitter(t, s, 0)
	})
}

func TestPullExplainsAnswers(t *testing.T) {
	for status, code := range map[int]cove.Code{401: cove.Unauthenticated, 403: cove.Unauthenticated,
		404: cove.ImageMissing, 429: cove.Overloaded,
		500: cove.Unavailable, 418: cove.Unavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			host := startRegistry(t, tamper("/manifests/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.WriteHeader(status)
			}))
			_, err := newStore(t).Pull(t.Context(), host+"/app:1", PullOptions{})
			if cove.ErrorCode(err) != code {
				t.Errorf("code %q, want %q: %v", cove.ErrorCode(err), code, err)
			}
			if !strings.Contains(err.Error(), host) {
				t.Errorf("the message does not name the registry: %v", err)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		host := l.Addr().String()
		l.Close()
		if _, err := newStore(t).Pull(t.Context(), host+"/app:1", PullOptions{}); cove.ErrorCode(err) != cove.Unavailable {
			t.Errorf("code %q: %v", cove.ErrorCode(err), err)
		}
	})
	for _, ref := range []string{"host", "dir:/x", "tar:/x", "sha256:0123456789ab", "--privileged", "a b", "http://x/y"} {
		if _, err := newStore(t).Pull(t.Context(), ref, PullOptions{}); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("pull %q: %v", ref, err)
		}
	}
}

func TestPullIntoAFileAsStore(t *testing.T) {
	host := startRegistry(t, nil)
	push(t, host+"/app:1", hostImage(t))
	path := filepath.Join(t.TempDir(), "images")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := storeAt(t, path)
	if _, err := s.Pull(t.Context(), host+"/app:1", PullOptions{}); err == nil {
		t.Error("pulled into a file")
	}
	if r, err := s.Resolve(t.Context(), ""); err != nil || r.Kind != engine.RootfsHost {
		t.Errorf("the host's own tools need no store: %v", err)
	}
}
