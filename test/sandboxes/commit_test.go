package sandboxes

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// entries returns the headers of the last layer of a saved image, by their names.
func entries(t *testing.T, archive, layer string) map[string]tar.Header {
	t.Helper()
	all := map[string]tar.Header{}
	r := tar.NewReader(strings.NewReader(string(inArchive(t, archive, layer))))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = *h
	}
}

// TestCommit: an image of a sandbox has what root inside has changed, as one layer, and nothing that Cove has put
// there; the sandbox runs on. The image runs, and Docker has the same of it.
func TestCommit(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("sh", "-c", "for p in setcap getcap; do cp $(command -v $p) $1/usr/sbin/; done; "+
		"cp $(ldd $(command -v setcap) | grep -o '/[^ ]*libcap[^ ]*') $1/usr/lib/", "sh", l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	l.must("mkdir", l.in("data"))
	l.must("cove", "new", "--empty", "--name", "box", "--root", "--image", "debian", "--no-attach", "--network", "open",
		"--mount", l.in("data")+":/srv/data:ro", "--env", "TOKEN=of-the-sandbox")
	inside := func(script string) string {
		t.Helper()
		return l.must("cove", "exec", "box", "--", "sh", "-c", script)
	}
	const change = `set -e
		useradd -m ada; mkdir -p /opt/tool; echo one >/opt/tool/one; ln /opt/tool/one /opt/tool/linked
		chown ada:ada /opt/tool/one; chmod 4755 /opt/tool/one; ln -s /nowhere /opt/link; mkfifo /opt/pipe
		cp /bin/true /opt/able; setcap cap_net_bind_service=ep /opt/able; getcap /opt/able
		rm -r /usr/share/bug; mkdir /usr/share/bug; echo anew >/usr/share/bug/anew; rm /etc/debian_version
		perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un("/opt/socket")) or die'
		echo kept >/root/of-home; echo kept >/tmp/temporary; echo "127.0.0.9 nine" >>/etc/hosts
		date >/opt/tool/ticking; (while sleep 0.05; do date >/opt/tool/ticking; done) >/dev/null 2>&1 &`
	inside(change)
	out := l.must("cove", "sandbox", "commit", "box", "mine:1", "--change", `CMD ["cat", "/opt/tool/one"]`, "--change",
		"ENV GREETING=hello")
	if !strings.HasPrefix(out, "mine:1 sha256:") {
		t.Errorf("it says %q", out)
	}
	before := inside("cat /opt/tool/ticking")
	l.eventually("the sandbox goes on", func() bool { return inside("cat /opt/tool/ticking") != before })
	if out := l.must("cove", "run", "--image", "mine:1"); out != "one\n" {
		t.Errorf("its program says %q", out)
	}
	const look = `stat -c '%n %U:%G %a' /opt/tool/one
		test /opt/tool/one -ef /opt/tool/linked || echo two; readlink /opt/link; stat -c %F /opt/pipe
		ls /usr/share/bug; getcap /opt/able; echo $GREETING $TOKEN; ls -d /etc/debian_version /opt/socket /root/of-home \
		/tmp/temporary /etc/cove /srv/data /workspace/x 2>/dev/null; grep -c nine /etc/hosts; true`
	const want = `/opt/tool/one ada:ada 4755
/nowhere
fifo
anew
/opt/able cap_net_bind_service=ep
hello
0
`
	if out := l.must("cove", "run", "--root", "--image", "mine:1", "sh", "-c", look); out != want {
		t.Errorf("the image has %q, want %q", out, want)
	}
	l.must("cove", "image", "save", "mine:1", "-o", l.in("mine.tar"))
	layers := layersOf(t, l.in("mine.tar"))
	if len(layers) != 2 {
		t.Fatalf("it has the layers %q", layers)
	}
	last := entries(t, l.in("mine.tar"), layers[1])
	for _, name := range []string{"etc/.wh.debian_version", "usr/share/bug/.wh..wh..opq", "opt/able"} {
		if _, ok := last[name]; !ok {
			t.Errorf("the layer has no %s", name)
		}
	}
	if caps := last["opt/able"].PAXRecords["SCHILY.xattr.security.capability"]; len(caps) != 20 {
		t.Errorf("the capabilities are %q", caps)
	}
	for name := range last {
		for _, own := range []string{"etc/cove", "etc/hosts", "etc/hostname", "etc/resolv.conf", "srv", "workspace", "work",
			"home/cove", "tmp", "run", "root", "proc", "dev", "opt/socket"} {
			if name == own || strings.HasPrefix(name, own+"/") {
				t.Errorf("the layer has %s", name)
			}
		}
	}
	l.must("cove", "stop", "box")
	l.must("cove", "sandbox", "commit", "box", "mine:2")
	if out := l.must("cove", "run", "--root", "--image", "mine:2", "sh", "-c", "cat /opt/tool/one"); out != "one\n" {
		t.Errorf("of the stopped sandbox: %q", out)
	}
	commitRefusals(t, l)
	commitEnded(t, l)
	t.Run("docker", func(t *testing.T) {
		if os.Getenv("DOCKER_HOST") == "" {
			t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
		}
		l.must("docker", "load", "-i", l.in("mine.tar"))
		defer l.run("docker", "rmi", "-f", "mine:1")
		if out := l.must("docker", "run", "--rm", "--network=none", "mine:1", "sh", "-c", look); out != want {
			t.Errorf("Docker has %q, want %q", out, want)
		}
	})
}

// TestCommitOnFullDisk: where the images' disk has no room for the changes of a sandbox, a commit says so and leaves
// nothing, and the sandbox goes on; with room it works.
func TestCommitOnFullDisk(t *testing.T) {
	l := newLab(t)
	images := l.in("home/images")
	l.must("mkdir", "-p", images)
	if err := syscall.Mount("images", images, "tmpfs", 0, "size=800m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the server's end
		if err := syscall.Unmount(images, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l.withDebian()
	l.must("cove", "new", "--empty", "--name", "box", "--root", "--image", "debian", "--no-attach")
	l.must("cove", "exec", "box", "--", "sh", "-c", "head -c 250M /dev/urandom >/opt/large; echo small >/opt/small")
	out, err := l.run("cove", "sandbox", "commit", "box", "mine:1")
	if err == nil || !strings.Contains(err.Error(), "less than 512 MiB left") {
		t.Errorf("%q, %v", out, err)
	}
	if left := l.unfinished(); len(left) > 0 {
		t.Errorf("there is %q", left)
	}
	if all := l.must("cove", "image", "list"); strings.Contains(all, "mine") {
		t.Errorf("there is an image:\n%s", all)
	}
	l.must("cove", "exec", "box", "--", "rm", "/opt/large")
	l.must("cove", "sandbox", "commit", "box", "mine:1")
	if out := l.must("cove", "run", "--image", "mine:1", "sh", "-c", "cat /opt/small"); out != "small\n" {
		t.Errorf("the image has %q", out)
	}
}

// layersOf lists the layers of a saved image.
func layersOf(t *testing.T, archive string) []string {
	t.Helper()
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(inArchive(t, archive, "manifest.json"), &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	return manifest[0].Layers
}

// commitRefusals: what cannot be an image is refused, and leaves none.
func commitRefusals(t *testing.T, l *lab) {
	l.must("cove", "new", "--empty", "--name", "plain", "--no-attach")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"plain", "bad"}, "keeps no changes of an image"},
		{[]string{"box", "tar:/x"}, "cannot be the name of an image"},
		{[]string{"box", "bad", "--change", "RUN true"}, "changes files"},
		{[]string{"box", "bad", "--change", "FROM debian"}, "FROM is no change"},
		{[]string{"box", "bad", "--change", "NONSENSE"}, "NONSENSE"},
		{[]string{"nobody", "bad"}, "nobody"},
	} {
		out, err := l.run(append([]string{"cove", "sandbox", "commit"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q\n%s", c.args, err, c.want, out)
		}
	}
	if out := l.must("cove", "image", "list"); strings.Contains(out, "bad") {
		t.Errorf("there is an image: %s", out)
	}
	if left := l.unfinished(); len(left) > 0 {
		t.Errorf("there is %q", left)
	}
	if out := l.must("cove", "audit", "--action", "sandbox-commit"); !strings.Contains(out, "box as mine:1") {
		t.Errorf("the audit log has %s", out)
	}
}

// unfinished lists what is being made of images.
func (l *lab) unfinished() []string {
	left, err := filepath.Glob(l.in("home/images/tmp/*"))
	if err != nil {
		l.t.Fatal(err)
	}
	return left
}

// commitEnded: a signal ends a commit under way, of which nothing stays, and lets the sandbox go on.
func commitEnded(t *testing.T, l *lab) {
	l.must("cove", "start", "box")
	l.must("cove", "exec", "box", "--", "truncate", "-s", "900M", "/opt/large")
	c := l.command("cove", "sandbox", "commit", "box", "ended")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	l.eventually("the commit copies", func() bool {
		copies, err := filepath.Glob(l.in("home/images/tmp/*/*/upper/opt/large"))
		return err == nil && len(copies) > 0
	})
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("the command has ended without an error")
	}
	l.eventually("nothing stays", func() bool { return len(l.unfinished()) == 0 })
	if out := l.must("cove", "exec", "box", "--", "echo", "on"); out != "on\n" {
		t.Errorf("the sandbox says %q", out)
	}
	if out := l.must("cove", "image", "list"); strings.Contains(out, "ended") {
		t.Errorf("there is an image: %s", out)
	}
}
