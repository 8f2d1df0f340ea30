package httpapi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestHostPathsOfStrangers is invariant H5 at the edge: only what lies under
// the roots, after links, and not a word about anything else.
func TestHostPathsOfStrangers(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, d := range []string{root + "/a", outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"inside": root + "/a", "out": outside, "shadow": "/etc/shadow",
		"dangling": "/nonexistent", "up": ".."} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	h := start(t, func(o *Options) { o.WorkDirRoots = []string{root} })
	closed := start(t, nil)
	request := func(field, path string) string {
		b, _ := json.Marshal(path)
		switch field {
		case "mounts":
			return `{"language":"python","code":"x","mounts":[{"source":` + string(b) + `,"target":"/data"}]}`
		case "image":
			b, _ = json.Marshal("dir:" + path)
		}
		return `{"language":"python","code":"x","` + field + `":` + string(b) + `}`
	}
	for _, field := range []string{"work_dir", "mounts", "image"} {
		for _, path := range []string{root, root + "/a", root + "/inside", root + "/a/../a"} {
			if r := h.post("/execute", request(field, path)); r.StatusCode != 200 {
				t.Errorf("%s %s: status %d: %s", field, path, r.StatusCode, r.body)
			}
			if r := closed.post("/execute", request(field, path)); r.StatusCode != 403 {
				t.Errorf("%s %s without roots: status %d", field, path, r.StatusCode)
			}
		}
		var seen []string
		for _, path := range []string{outside, root + "/out", root + "/shadow", root + "/dangling", root + "/up",
			root + "/../outside", "/etc/shadow", "/etc/nonexistent", "/", "/root", "/var/run/docker.sock",
			root + "x", "relative", "../outside", "~", root + "\x00/a", "/proc/self/cwd", "/dev/fd/0"} {
			if field == "image" && strings.Contains(path, "\x00") {
				continue // is no name at all, which is said before any path is looked at
			}
			r := h.post("/execute", request(field, path))
			if r.StatusCode != 403 {
				t.Errorf("%s %q: status %d: %s", field, path, r.StatusCode, r.body)
				continue
			}
			quoted, _ := json.Marshal(fmt.Sprintf("%q", path))
			seen = append(seen, strings.Replace(strings.Replace(r.body, strings.Trim(string(quoted), `"`), "PATH", 1),
				r.Header.Get("X-Request-Id"), "ID", 1))
		}
		for _, body := range seen {
			if body != seen[0] {
				t.Errorf("%s: answers differ, which tells what exists:\n%s%s", field, seen[0], body)
			}
		}
	}
	if h.fake.request().Bind != "" && h.fake.request().Bind != root+"/a" {
		t.Errorf("work_dir %q", h.fake.request().Bind)
	}
	// The resolved path is what is used, so that a link changed later does not matter.
	h.post("/execute", request("work_dir", root+"/inside"))
	if got := h.fake.request().Bind; got != root+"/a" {
		t.Errorf("work_dir is %q", got)
	}
	// Other spellings of host paths as images.
	for _, image := range []string{"tar:/etc/passwd", "oci:/etc", "oci:" + outside + ":tag",
		"docker-archive:/etc/passwd:x", "/etc", "./x", "../x", "file:/etc", "file:///etc", "http://169.254.169.254/x"} {
		if r := h.post("/execute", fmt.Sprintf(`{"language":"python","code":"x","image":%q}`, image)); r.StatusCode != 403 {
			t.Errorf("image %s: status %d", image, r.StatusCode)
		}
		if r := h.get("/runtimes?image=" + image); r.StatusCode != 403 {
			t.Errorf("runtimes of image %s: status %d", image, r.StatusCode)
		}
	}
	for _, image := range []string{"", "host", "debian", "debian:stable-slim", "localhost:5000/x:y",
		"example.com/a/b@sha256:" + strings.Repeat("0", 64), "oci:" + root + "/a:tag"} {
		if r := h.post("/execute", fmt.Sprintf(`{"language":"python","code":"x","image":%q}`, image)); r.StatusCode != 200 {
			t.Errorf("image %s: status %d: %s", image, r.StatusCode, r.body)
		}
	}
	if got := h.fake.request().Image; got != "oci:"+root+"/a:tag" {
		t.Errorf("image %q", got)
	}
	// Root inside has the rights of all owners of an image's files, and a user who is named those of one, which strangers
	// are not.
	for _, who := range []string{`"root":true`, `"user":"1000"`} {
		as := func(image string) string {
			return fmt.Sprintf(`{"language":"python","code":"x",%s,"image":%q}`, who, image)
		}
		for image, status := range map[string]int{"dir:" + root + "/a": 403, "debian": 200, "oci:" + root + "/a:tag": 200} {
			if r := h.post("/execute", as(image)); r.StatusCode != status {
				t.Errorf("%s over %s: status %d: %s", who, image, r.StatusCode, r.body)
			}
		}
		if r := h.do(h.owner, "POST", "/execute", as("dir:"+root+"/a")); r.StatusCode != 200 {
			t.Errorf("the owner's %s: status %d: %s", who, r.StatusCode, r.body)
		}
	}
	// The owner may attach what is not always refused.
	if r := closed.do(closed.owner, "POST", "/execute", request("work_dir", outside)); r.StatusCode != 200 ||
		closed.fake.who != cove.MachineOwner() {
		t.Errorf("owner: status %d, client %q: %s", r.StatusCode, closed.fake.who, r.body)
	}
	if r := closed.do(closed.owner, "POST", "/execute", request("work_dir", "/etc")); r.StatusCode != 403 {
		t.Errorf("owner with /etc: status %d", r.StatusCode)
	}
}
