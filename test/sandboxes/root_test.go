package sandboxes

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestRootInside has root inside do what a developer does to a machine: install packages, add a user, start a service.
// The image has nothing of it afterwards.
func TestRootInside(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	image := l.in("image") // where requests may name it
	l.must("cp", "-a", made, image)
	l.must("cove", "server", "start")
	args := []string{"cove", "run", "--root", "--image", "dir:" + image, "--memory", "1G", "--disk", "800M",
		"--timeout", "5m", "--pids", "200", "--network", "limited"}
	for _, host := range debian.Hosts(t, image) {
		args = append(args, "--allow", host)
	}
	const script = `set -e
		apt-get -q update
		apt-get -q install -y --no-install-recommends redis-server sudo gcc libc6-dev
		useradd --create-home ada
		echo 'ada ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ada
		su ada -c 'sudo id -un; id -un'
		su ada -c 'touch /etc/of-ada' && exit 1
		su -s /bin/sh redis -c 'redis-server --bind 127.0.0.1 --daemonize yes --dir /var/lib/redis' >&2
		until redis-cli ping; do sleep 0.1; done
		grep -l redis-server /proc/[0-9]*/comm >&2
		redis-cli shutdown nosave
		printf 'int main() { return 7; }' > seven.c && gcc -o /usr/local/bin/seven seven.c
		seven || echo $?
		dpkg --verify >&2
		chown ada /usr/local/bin/seven && stat -c %U /usr/local/bin/seven`
	out, err := l.run(append(args, "bash", "-c", script)...)
	if err != nil {
		t.Fatal(err)
	}
	if tail := out[strings.Index(out, "root\nada\n"):]; tail != "root\nada\nPONG\n7\nada\n" {
		t.Errorf("it ends with %q\n%s", tail, out)
	}
	const look = "ls /usr/local/bin; id -u; cat /etc/passwd"
	out = l.must("cove", "run", "--root", "--image", "dir:"+image, "bash", "-c", look)
	if strings.Contains(out, "seven") || strings.Contains(out, "ada") || !strings.Contains(out, "0\nroot:") {
		t.Errorf("the next one has %q", out)
	}
}

// TestRootNeedsAnImage: root inside cannot change the programs of this machine.
func TestRootNeedsAnImage(t *testing.T) {
	l := newLab(t)
	_, err := l.run("cove", "run", "--root", "bash", "-c", "id")
	if err == nil || !strings.Contains(err.Error(), "--image IMAGE") || !strings.Contains(err.Error(), "exit status 126") {
		t.Errorf("without an image: %v", err)
	}
}
