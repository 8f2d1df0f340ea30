package sandboxes

import (
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestVolumes: volumes of sandboxes without an image, with one, of root inside and over a person's own directory are
// writable within the disk's size, last while the sandbox is stopped, and are nothing outside.
func TestVolumes(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	image := l.in("image")
	l.must("cp", "-a", made, image)
	l.must("mkdir", "-p", image+"/srv/data", l.in("src"))
	l.write("image/srv/data/word", "of the image\n")
	l.must("chmod", "-R", "a+rwX", image+"/srv/data")
	l.must("cove", "server", "start")
	for _, c := range []struct {
		name  string
		args  []string
		first string // what programs do, and print
		want  string
		again string // after a stop
		last  string
	}{
		{"host", []string{"--empty", "--disk", "64M", "--volume", "/data", "--volume", "/home/cove/.cache/x", "--volume",
			"/workspace/a/b", "--tmpfs", "/fast:2M", "--tmpfs", "/workspace/scratch/"},
			`for d in /data ~/.cache/x /workspace/a/b /fast /workspace/scratch; do echo kept > $d/f; done
			stat -c %U /data ~/.cache/x /workspace/a/b
			stat -fc %T /data /fast /workspace/scratch
			head -c 3M /dev/zero > /fast/big || echo full
			head -c 80M /dev/zero > /data/big || echo full; rm /data/big
			mkdir /other && echo other || true`,
			"cove\ncove\ncove\next2/ext3\ntmpfs\ntmpfs\nfull\nfull\n",
			"cat /data/f ~/.cache/x/f /workspace/a/b/f; ls /fast /workspace/scratch",
			"kept\nkept\nkept\n/fast:\n\n/workspace/scratch:\n"},
		{"user", []string{"--empty", "--image", "dir:" + image, "--user", "games", "--volume", "/srv/data",
			"--volume", "/new"},
			"cat /srv/data/word; echo mine > /srv/data/word; stat -c %U /new; echo kept > /new/f", "of the image\ngames\n",
			"cat /srv/data/word /new/f", "mine\nkept\n"},
		{"root", []string{"--empty", "--image", "dir:" + image, "--root", "--volume", "/srv/data", "--volume", "/var/lib/pg",
			"--volume", "/workspace/modules", "--tmpfs", "/srv/fast"},
			`chown games /var/lib/pg; setpriv --reuid games --clear-groups sh -c 'echo kept > /var/lib/pg/f'
			cat /srv/data/word; echo mine > /srv/data/word; touch /workspace/modules/f /srv/fast/f`, "of the image\n",
			"stat -c %U /var/lib/pg/f; cat /var/lib/pg/f /srv/data/word; ls /workspace/modules /srv/fast",
			"games\nkept\nmine\n/srv/fast:\n\n/workspace/modules:\nf\n"},
		{"bound", []string{"--bind", l.in("src"), "--volume", "/workspace/deep/modules"},
			"echo kept > deep/modules/f; echo seen > deep/f", "", "cat deep/modules/f", "kept\n"},
	} {
		l.must(append([]string{"cove", "new", "--no-attach", "--name", c.name}, c.args...)...)
		inside := func(script string) string { return l.must("cove", "exec", c.name, "--", "sh", "-c", script) }
		if got := inside(c.first); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		l.must("cove", "stop", c.name)
		l.must("cove", "start", c.name)
		if got := inside(c.again); got != c.last {
			t.Errorf("%s, started again: %q, want %q", c.name, got, c.last)
		}
	}
	if word, err := os.ReadFile(image + "/srv/data/word"); string(word) != "of the image\n" {
		t.Errorf("the image has %q, %v", word, err)
	}
	if all := l.must("ls", "-R", l.in("src/deep")); !strings.HasSuffix(all,
		"deep:\nf\nmodules\n\n"+l.in("src/deep/modules")+":\n") {
		t.Errorf("the directory has %q", all)
	}
	if got := l.must("cove", "info", "host"); !strings.Contains(got, "/fast (in memory, 2 MiB)") {
		t.Errorf("it shows %q", got)
	}
	for _, name := range []string{"host", "user", "root", "bound"} {
		l.must("cove", "destroy", name, "--yes")
	}
	if _, err := l.run("cove", "new", "--empty", "--volume", "/usr/data"); err == nil ||
		!strings.Contains(err.Error(), "/usr belongs to the sandbox") {
		t.Errorf("over the machine's own toolchain: %v", err)
	}
}
