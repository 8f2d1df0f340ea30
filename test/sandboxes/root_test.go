package sandboxes

import (
	"strings"
	"syscall"
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

// TestRootInsideLasts: root inside of a long-lived sandbox goes on when its server is killed, and has its home and all
// that it has changed again after a stop, also when its engine has ended without one. The image stays as it was.
func TestRootInsideLasts(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	image := l.in("image")
	l.must("cp", "-a", made, image)
	l.must("cove", "new", "--empty", "--name", "box", "--root", "--image", "dir:"+image, "--no-attach")
	inside := func(script string) string {
		t.Helper()
		return l.must("cove", "exec", "box", "--", "sh", "-c", script)
	}
	if out := inside("useradd ada && su ada -c 'id -un' && id -un && echo kept > ~/file"); out != "ada\nroot\n" {
		t.Errorf("it says %q", out)
	}
	if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out := inside("su ada -c 'id -un'; chown ada /etc/hosts && stat -c %U /etc/hosts"); out != "ada\nada\n" {
		t.Errorf("with the next server it says %q", out)
	}
	l.must("cove", "stop", "box")
	l.must("cove", "start", "box")
	const look = "cat ~/file; id -un; grep -c ada /etc/passwd || true"
	if out := inside(look + "; rm /etc/debian_version; mkdir /opt/new"); out != "kept\nroot\n1\n" {
		t.Errorf("started again it says %q", out)
	}
	if out := inside(look + "; ls /etc/debian_version /opt 2>&1 || true"); !strings.HasSuffix(out, "\nnew\n") {
		t.Errorf("later it says %q", out)
	}
	if out := l.must("cove", "run", "--root", "--image", "dir:"+image, "sh", "-c",
		"cat /etc/debian_version; ls /opt; grep -c ada /etc/passwd || true"); !strings.HasSuffix(out, "\n0\n") {
		t.Errorf("the next one has %q", out)
	}
	l.must("cove", "destroy", "box", "--yes")
}

// TestUserBesideRoot: with --root and --user, programs are the user, own the workspace, and become root inside by sudo,
// in every sandbox; after the server was killed, and after a stop.
func TestUserBesideRoot(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	image := l.in("image")
	l.must("cp", "-a", made, image)
	l.must("cove", "image", "import", image, "--name", "debian")
	args := []string{"cove", "new", "--empty", "--name", "base", "--root", "--image", "debian", "--no-attach",
		"--memory", "1G", "--network", "limited"}
	for _, host := range debian.Hosts(t, image) {
		args = append(args, "--allow", host)
	}
	l.must(args...)
	l.must("cove", "exec", "base", "--", "sh", "-c", `apt-get -q update &&
		apt-get -q install -y --no-install-recommends sudo &&
		useradd --create-home ada && echo 'ada ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ada`)
	l.must("cove", "stop", "base")
	l.must("cove", "sandbox", "commit", "base", "with-sudo")

	const who = "id -un; sudo id -un; echo own > file && stat -c %U file . /workspace ~; sudo stat -c %U file; " +
		"grep -E '^(CapInh|CapPrm|CapEff|CapAmb):' /proc/self/status | sort -u -k 2"
	const none = "CapInh:\t0000000000000000\n"
	if out := l.must("cove", "run", "--root", "--user", "ada", "--image", "with-sudo", "sh", "-c",
		strings.ReplaceAll(who, " /workspace", "")); out != "ada\nroot\nada\nada\nada\nada\n"+none {
		t.Errorf("an execution says %q", out)
	}
	l.must("cove", "new", "--empty", "--name", "box", "--root", "--user", "ada", "--image", "with-sudo", "--no-attach")
	inside := func(script string) string {
		t.Helper()
		return l.must("cove", "exec", "box", "--", "sh", "-c", script)
	}
	const users = "ada\nroot\nada\nada\nada\nada\nada\n" + none
	if out := inside(who + "; sudo touch /opt/new && sudo useradd bob"); out != users {
		t.Errorf("it says %q", out)
	}
	if out := inside("touch /opt/more 2>&1 || true; cat /etc/shadow 2>&1 || true; kill -9 1 2>&1; sudo kill -9 1; " +
		"sudo id -un"); strings.Count(out, "Permission denied") != 2 || !strings.Contains(out, "not permitted") ||
		!strings.HasSuffix(out, "\nroot\n") {
		t.Errorf("without sudo it says %q", out)
	}
	if out := inside("sudo sh -c 'echo changed > file; touch new' 2>&1; cat file"); !strings.
		Contains(out, "new': Value too large") || !strings.HasSuffix(out, "changed\n") {
		t.Errorf("root inside in the workspace says %q", out)
	}
	if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out := inside(who); out != users {
		t.Errorf("with the next server it says %q", out)
	}
	l.must("cove", "stop", "box")
	l.must("cove", "start", "box")
	if out := inside(who + "; ls /opt; id -un bob"); out != users+"new\nbob\n" {
		t.Errorf("started again it says %q", out)
	}
	l.must("cove", "destroy", "box", "--yes")
}

// TestRootOfAnImage: setuid and setgid programs of a stored image work for root inside and no other user, and what root
// inside has changed stays on the image it was made on, which stays as long.
func TestRootOfAnImage(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	image := l.in("image")
	l.must("cp", "-a", made, image)
	l.must("cove", "image", "import", image, "--name", "debian")
	l.must("cove", "new", "--empty", "--name", "box", "--root", "--image", "debian", "--no-attach")
	const asUser = "useradd ada; su ada -c 'chage -l ada' | head -n 1 | cut -d: -f1" // reads /etc/shadow
	if out := l.must("cove", "exec", "box", "--", "sh", "-c", asUser); strings.TrimSpace(out) != "Last password change" {
		t.Errorf("a setgid program says %q", out)
	}
	if out := l.must("cove", "run", "--image", "debian", "sh", "-c",
		"stat -c %A /usr/bin/chage; head -c 1 /etc/shadow || id -u"); !strings.HasPrefix(out, "-rwxr-sr-x\n") ||
		strings.HasSuffix(out, "\n0\n") {
		t.Errorf("without root it says %q", out)
	}
	if out, err := l.run("cove", "image", "remove", "debian"); err == nil {
		t.Errorf("the image is removed: %s", out)
	}
	l.must("cove", "stop", "box")
	if out, err := l.run("cove", "image", "remove", "debian"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the image of a stopped sandbox: %s, %v", out, err)
	}
	l.must("rm", image+"/etc/debian_version")
	l.must("cove", "image", "import", image, "--name", "debian")
	if out := l.must("cove", "run", "--image", "debian", "sh", "-c", "ls /etc/debian_version 2>&1 || true"); !strings.
		Contains(out, "No such file") {
		t.Errorf("the name's new image has %q", out)
	}
	l.must("cove", "start", "box")
	const look = "ls /etc/debian_version; grep -c ada /etc/passwd"
	if out := l.must("cove", "exec", "box", "--", "sh", "-c", look); out != "/etc/debian_version\n1\n" {
		t.Errorf("started again it has %q", out)
	}
	l.must("cove", "destroy", "box", "--yes")
	if out := l.must("cove", "image", "prune"); out == "" {
		t.Error("nothing is pruned")
	}
}

// TestCapabilitiesOfAnImage: programs of an imported archive have the capabilities that root inside may have, for other
// users of its sandbox; those with others run without, and so do all where there is no root inside.
func TestCapabilitiesOfAnImage(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	root := l.in("root")
	l.must("cp", "-a", made, root)
	for name, able := range map[string]string{"bind": "cap_net_bind_service=ep", "raw": "cap_net_raw=ep"} {
		l.must("cp", root+"/usr/bin/grep", root+"/opt/"+name)
		l.must("setcap", able, root+"/opt/"+name)
	}
	l.must("tar", "--format=posix", "--xattrs", "--xattrs-include=security.capability", "-C", root, "-cf",
		l.in("root.tar"), ".")
	l.must("cove", "image", "import", l.in("root.tar"), "--name", "archive")
	l.must("cove", "image", "import", root, "--name", "directory")
	const look = `for p in bind raw; do $0 /opt/$p CapEff /proc/self/status; done`
	const games = "setpriv --reuid games --regid games --clear-groups --"
	const none = "CapEff:\t0000000000000000\n"
	for _, name := range []string{"archive", "directory"} {
		for _, c := range []struct{ args, script, want string }{
			{"--root", strings.ReplaceAll(look, "$0", games), "CapEff:\t0000000000000400\n" + none},
			{"--user=games", strings.ReplaceAll(look, "$0", ""), none + none},
		} {
			if got := l.must("cove", "run", c.args, "--image", name, "sh", "-c", c.script); got != c.want {
				t.Errorf("%s, %s: %q, want %q", name, c.args, got, c.want)
			}
		}
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
