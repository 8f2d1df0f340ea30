package image

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		kind kind
		want string // ref or path
	}{
		{"", fromHost, ""}, {"host", fromHost, ""},
		{"python", fromRef, "docker.io/library/python:latest"},
		{"python:3.13-slim", fromRef, "docker.io/library/python:3.13-slim"},
		{"docker.io/python", fromRef, "docker.io/library/python:latest"},
		{"index.docker.io/library/python", fromRef, "docker.io/library/python:latest"},
		{"team/app", fromRef, "docker.io/team/app:latest"}, {"ghcr.io/a/b_c/d-e:v1.2_3", fromRef, "ghcr.io/a/b_c/d-e:v1.2_3"},
		{"localhost:5000/x", fromRef, "localhost:5000/x:latest"}, {"localhost/x", fromRef, "localhost/x:latest"},
		{"[::1]:5000/x:1", fromRef, "[::1]:5000/x:1"}, {"10.0.0.1:80/x", fromRef, "10.0.0.1:80/x:latest"},
		{"x@sha256:" + zeros, fromRef, "docker.io/library/x@sha256:" + zeros},
		{"x:tag@sha256:" + zeros, fromRef, "docker.io/library/x@sha256:" + zeros},
		{"sha256:" + zeros, fromDigest, "sha256:" + zeros}, {"sha256:" + zeros[:12], fromDigest, "sha256:" + zeros[:12]},
		{"dir:/srv/root", fromDir, "/srv/root"}, {"dir:/srv/../srv//root/", fromDir, "/srv/root"},
		{"tar:/a b.tar", fromTar, "/a b.tar"},
		{"oci:/x:y:z", fromLayout, "/x:y:z"}, {"docker-archive:/x.tar:app:1", fromDocker, "/x.tar:app:1"},
		{"dirty:1", fromRef, "docker.io/library/dirty:1"}, {"docker.io/library/host:1", fromRef, "docker.io/library/host:1"},
		{"docker.io/dir", fromRef, "docker.io/library/dir:latest"}, {"localhost/dir", fromRef, "localhost/dir:latest"},
	} {
		got, err := parse(c.in)
		if err != nil || got.kind != c.kind || got.ref+got.path != c.want {
			t.Errorf("parse(%q) = %+v, %v; want %s %q", c.in, got, err, c.kind, c.want)
		}
	}
	for _, in := range []string{
		"--privileged", "-v", "a b", " python", "python ", "python\n", "python:la test", "python\x00", "\x1b[31mpython",
		"Python", "a//b", "/a", "a/", ".", "..", "../x",
		"a/../b", "a__b__/c", "_a", "a_", "a..b", "a:", ":a", "a:-x", "a:.x", "a@b", "a@sha256:12",
		"a@sha512:" + zeros + zeros, "a@sha256:" + strings.ToUpper("abcdef") + zeros[6:],
		"http://x/y", "https://x/y", "docker://x", "user@host/x", "user:pass@host/x", "host:99999/x", "host:0/x",
		"-host.com/x", "ho$t.com/x", "[::1%eth0]/x", "[zz]/x",
		"x.com/" + strings.Repeat("a/", 200) + "b", "a:" + strings.Repeat("t", 129), strings.Repeat("a", 600),
		"dir:", "dir:relative", "dir:./x", "tar:x.tar", "oci:", "docker-archive:", "dir:/x\n", "sha256:", "sha256:0123",
		"sha256:zzzzzzzzzzzz", "sha256:" + zeros + "0",
		"host:1", "dir", "tar", "sha256", "dir@sha256:" + zeros, "%2e%2e/x", "a%00", "$(id)", "`id`", ";id", "a;b", "a|b",
		"é", strings.Repeat("x", 5000),
	} {
		got, err := parse(in)
		if cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("parse(%.60q) = %+v, %v; want it refused", in, got, err)
		}
		if err != nil && strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
			t.Errorf("the message has control characters: %q", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "host", "python:3.13", "a.b:1/c@sha256:" + zeros, "dir:/x", "oci:/x:y",
		"sha256:" + zeros, "[::1]:5/x", "../x", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parse(s)
		if err != nil {
			if cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("parse(%q): %v", s, err)
			}
			return
		}
		switch got.kind {
		case fromHost:
			return
		case fromRef:
			// A stored form parses to itself, and is unambiguous.
			if strings.ContainsAny(got.ref, " \t\n\x00$`;|&<>\\\"'") || strings.HasPrefix(got.ref, "-") ||
				strings.Contains("/"+got.ref+"/", "/../") {
				t.Errorf("parse(%q) let %q pass", s, got.ref)
			}
			if _, err := name.ParseReference(got.name.Name()); err != nil {
				t.Errorf("parse(%q) gives %q, which is no reference: %v", s, got.name, err)
			}
		case fromDigest:
			if filepath.Base(strings.TrimPrefix(got.ref, "sha256:")) != strings.TrimPrefix(got.ref, "sha256:") {
				t.Errorf("parse(%q) gives the digest %q", s, got.ref)
			}
		default:
			if !filepath.IsAbs(got.path) || filepath.Clean(got.path) != got.path {
				t.Errorf("parse(%q) gives the path %q", s, got.path)
			}
		}
		again, err := parse(got.String())
		if err != nil || again.kind != got.kind || again.ref != got.ref || again.path != got.path {
			t.Errorf("parse(%q) = %+v, but parse(%q) = %+v, %v", s, got, got.String(), again, err)
		}
	})
}

// FuzzImport imports arbitrary bytes as every kind of archive.
func FuzzImport(f *testing.F) {
	f.Add([]byte{})
	f.Add(tarOf(f, item{name: "manifest.json", body: `[{"Config":"c","Layers":["l"]}]`},
		item{name: "c", body: `{"rootfs":{"diff_ids":[]}}`}))
	f.Add(
		tarOf(f,
			item{
				name: "index.json",
				body: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":2,"digest":"sha256:` +
					zeros + `"}]}`,
			}))
	f.Add(gz(f, tarOf(f, rootItems...)))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		s := storeAt(t, filepath.Join(dir, "images"))
		s.limits.Bytes, s.limits.Entries = 1<<20, 100
		path := filepath.Join(dir, "archive")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, scheme := range []string{"", "tar:", "oci:", "docker-archive:"} {
			_, err := s.Import(t.Context(), scheme+path, "x", ImportOptions{})
			if code := cove.ErrorCode(err); code == cove.Internal {
				t.Errorf("%s: %v", scheme, err)
			}
		}
		if entries, _ := os.ReadDir(filepath.Join(s.dir, "tmp")); len(entries) != 0 {
			t.Errorf("left in tmp: %v", entries)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 2 {
			t.Errorf("outside of the store: %v", entries)
		}
	})
}

func TestResolveHost(t *testing.T) {
	s := newStore(t)
	for _, ref := range []string{"", "host"} {
		r, err := s.Resolve(t.Context(), ref)
		if err != nil || r.Kind != engine.RootfsHost || r.Dir != "" {
			t.Errorf("%q: %+v, %v", ref, r, err)
		}
	}
}

// TestMessages: errors about missing images have a hint.
func TestMessages(t *testing.T) {
	s := newStore(t)
	for ref, want := range map[string]string{"python:3.13": "cove image pull python:3.13",
		"ghcr.io/a/b":       "cove image pull ghcr.io/a/b:latest",
		"a@sha256:" + zeros: "cove image pull a@sha256:" + zeros, "sha256:" + zeros: "cove image list"} {
		_, err := s.Resolve(t.Context(), ref)
		if cove.ErrorCode(err) != cove.ImageMissing || !strings.Contains(cove.ErrorHint(err), want) {
			t.Errorf("%s: %v; want the hint %q", ref, err, want)
		}
	}
}

func TestVerify(t *testing.T) {
	data := []byte("what is verified")
	digest := "sha256:" + sum(data)
	for _, c := range []struct {
		name, data string
		size       int64
		code       cove.Code
	}{
		{"right", string(data), 16, ""}, {"changed", "What is verified", 16, cove.Corrupt},
		{"longer", string(data) + "!", 16, cove.Corrupt},
		{"shorter", string(data[:15]), 16, cove.Internal}, {"size too small", string(data), 15, cove.Corrupt},
		{"empty", "", 16, cove.Internal},
	} {
		var out bytes.Buffer
		_, err := out.ReadFrom(verify(strings.NewReader(c.data), "thing", digest, c.size))
		if cove.ErrorCode(err) != c.code {
			t.Errorf("%s: code %q, want %q: %v", c.name, cove.ErrorCode(err), c.code, err)
		}
	}
}
