package sandboxes

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestReadyImages builds the first of the images of images/ from packages of Debian, which its command fetches through
// the gateway, and runs what it installs. The others are built on it in the same way; packages of theirs are large.
func TestReadyImages(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian:12")
	dir, err := filepath.Abs("../../images/base")
	if err != nil {
		t.Fatal(err)
	}
	build := []string{"cove", "image", "build", "-t", "base", dir}
	if out, err := l.run(build...); err == nil {
		t.Errorf("without a network: %s", out)
	}
	for _, host := range debian.Hosts(t, made) {
		build = append(build, "--allow", host)
	}
	l.must(build...)
	const look = `git init -q work && cd work && echo '{"a": [1, 2]}' >a.json && jq -c .a a.json && rg -c a a.json
		ls /var/lib/apt/lists`
	if out := l.must("cove", "run", "--image", "base", "bash", "-c", look); !strings.HasPrefix(out, "[1,2]\n1\n") ||
		strings.Contains(out, "Packages") {
		t.Errorf("it has %q", out)
	}
}
