package sandboxes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/asuser"
	"github.com/cove-sandbox/cove/test/debian"
)

// ordinary is the id of an ordinary user, who has an account in the mount namespaces of asUser alone.
const ordinary = 61000

// asUser is a lab of an ordinary user's in the directory of this one, with control groups of the user's and the
// subordinate ids that ids says, in the form of subuid(5).
func (l *lab) asUser(ids string) *lab {
	l.t.Helper()
	u := &lab{t: l.t, dir: l.in("user")}
	l.must("mkdir", u.dir)
	l.must("chown", fmt.Sprintf("%d:%[1]d", ordinary), u.dir)
	u.enter = asuser.Enter(l.t, l.dir, ordinary, u.dir, ids, "cd user")
	u.env = append(slices.Clone(l.env), "HOME="+u.dir, "COVE_HOME="+u.in("home"), "COVE_RUN_DIR="+u.in("run"),
		"USER=cove-user", "LOGNAME=cove-user")
	l.t.Cleanup(func() { // while there is a directory
		for _, s := range u.list().Sandboxes {
			u.run("cove", "destroy", "--yes", s.ID)
		}
		u.run("cove", "server", "stop")
	})
	return u
}

// subordinate are ids for the ordinary user.
const subordinate = "cove-user:1610612736:65536\n"

// context gives the user a context with the files of another's.
func (l *lab) context(of *lab) {
	l.t.Helper()
	of.must("cp", "-a", of.in("ctx"), l.dir)
	of.must("chown", "-R", fmt.Sprintf("%d:%[1]d", ordinary), l.in("ctx"))
}

// same fails unless an image of two labs is one archive, byte for byte.
func same(t *testing.T, l, u *lab, name string) {
	t.Helper()
	ours, theirs := l.must("cove", "image", "save", name), u.must("cove", "image", "save", name)
	if ours == theirs {
		return
	}
	l.write("ours.tar", ours)
	l.write("theirs.tar", theirs)
	layers := layersOf(t, l.in("ours.tar"))
	for i, layer := range layersOf(t, l.in("theirs.tar")) {
		has := entries(t, l.in("ours.tar"), layers[min(i, len(layers)-1)])
		for name, h := range entries(t, l.in("theirs.tar"), layer) {
			if fmt.Sprintf("%+v", h) != fmt.Sprintf("%+v", has[name]) {
				t.Errorf("of root's layer %d: %+v\nof the user's:     %+v", i, has[name], h)
			}
		}
	}
	t.Errorf("the archives of %s are not the same", name)
}

// TestImageBuildWithoutRoot: an ordinary user with subordinate ids builds the same images as root, to the last byte of
// their archives: owners, modes, special ones, links and capabilities included. Programs see the owners, layers and
// caches are found again, and what a sandbox has installed becomes an image.
func TestImageBuildWithoutRoot(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.env = append(l.env, "SOURCE_DATE_EPOCH=1700000000")
	u := l.asUser(subordinate)
	l.must("cp", "-a", made, l.in("root"))
	l.must("sh", "-c", "for p in setcap getcap; do cp $(command -v $p) $1/usr/sbin/; done; "+
		"cp $(ldd $(command -v setcap) | grep -o '/[^ ]*libcap[^ ]*') $1/usr/lib/", "sh", l.in("root"))
	l.must("tar", "-C", l.in("root"), "-cf", l.in("root.tar"), ".")
	l.inContext("a.txt", "A\n")
	l.write("key", "of-the-build\n")
	l.inContext("Dockerfile", `FROM debian AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/var/cache/mine,uid=33,gid=33,mode=0750 set -e; \
    date +%N >> /var/cache/mine/log; chown 33:44 /var/cache/mine/log; stat -c '%u:%g %a' /var/cache/mine > out
RUN useradd -m -u 1001 ada && mkdir -m 700 /private && echo private > /private/file && chown -R ada:games /private

FROM debian
RUN useradd -m ada && useradd -r service && install -o service -g games -m 6755 /bin/true /usr/local/bin/odd && \
    ln /usr/local/bin/odd /usr/local/bin/too && cp /bin/true /opt/able && setcap cap_net_bind_service=ep /opt/able
RUN rm -r /usr/share/bug && mkdir /usr/share/bug && mkfifo -m 620 /opt/pipe && ln -s nowhere /opt/link && \
    chown -h ada: /opt/link /opt/pipe && rm /etc/debian_version
COPY --from=build --chown=ada:55 --chmod=604 /src/out /opt/res/
COPY --from=build /private /private
RUN --mount=from=build,source=/private/file,target=/mnt/p set -e; cat /mnt/p > /opt/copied; \
    stat -c '%u:%g %a' /mnt/p >> /opt/copied; getcap /opt/able >> /opt/copied
USER ada
WORKDIR /home/ada
RUN --mount=type=secret,id=key,uid=1000 id -un > mine && wc -c < /run/secrets/key >> mine && chmod 600 mine
CMD ["cat", "mine"]
`)
	u.context(l)
	build := func(of *lab) string {
		t.Helper()
		out, err := of.command("cove", "image", "build", "-t", "built", "--secret", "id=key,src="+l.in("key"),
			"ctx").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	for _, of := range []*lab{l, u} {
		of.must("cove", "image", "import", "tar:"+l.in("root.tar"), "--name", "debian")
		build(of)
	}
	same(t, l, u, "built")
	const look = `stat -c '%U:%G %a' /home/ada/mine /usr/local/bin/odd /private/file /opt/res/out /etc/shadow
		cat /opt/copied`
	const want = "ada:ada 600\nservice:games 6755\nUNKNOWN:games 644\nada:UNKNOWN 604\nroot:shadow 640\n" +
		"private\n1001:60 644\n/opt/able cap_net_bind_service=ep\n"
	if out := u.must("cove", "run", "--root", "--image", "built", "sh", "-c", look); out != want {
		t.Errorf("root inside sees %q, want %q", out, want)
	}
	if out := u.must("cove", "run", "--image", "built"); out != "ada\n13\n" {
		t.Errorf("its program says %q", out)
	}
	asBuilt(t, u)
	besideRoot(t, u)
	if out := build(u); strings.Count(out, "CACHED") != 10 {
		t.Errorf("built again it is\n%s", out)
	}
	commit(t, u)
	u.must("cove", "image", "build", "--target", "build", "-o", "out", "ctx")
	if out := l.must("stat", "-c", "%u %a", u.in("out/private"), u.in("out/private/file")); out !=
		"61000 700\n61000 644\n" {
		t.Errorf("the exported files are %q", out)
	}
	u.must("cove", "image", "remove", "built", "debian", "mine")
	u.must("cove", "image", "prune")
	for _, dir := range []string{"sha256", "tmp", "build", "caches"} {
		if left, err := os.ReadDir(u.in("home/images/" + dir)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", dir, left, err)
		}
	}
}

// asBuilt runs the image as its user: programs see the owners, and have no other right. Where a directory of the
// machine's is shown, its files and those of the image are the user's.
func asBuilt(t *testing.T, u *lab) {
	t.Helper()
	const look = `id -un; stat -c %U:%G /usr/local/bin/odd /home/ada/mine /etc/shadow /opt/able; echo new >> /home/ada/mine
		for place in /etc/shadow /usr/local/bin/odd /opt/able; do (: >> $place) && echo "$place changes"; done
		(: < /etc/shadow) && echo it is read`
	if out, _ := u.run("cove", "run", "--image", "built", "sh", "-c", look); out !=
		"ada\nservice:games\nada:ada\nroot:shadow\nroot:root\n" {
		t.Errorf("its user sees %q", out)
	}
	l := &lab{t: t, dir: u.dir, env: u.env}
	l.must("install", "-d", "-o", fmt.Sprint(ordinary), "-g", fmt.Sprint(ordinary), u.in("data"))
	if out := u.must("cove", "run", "--image", "built", "--mount", u.in("data")+":/data:rw", "sh", "-c",
		"echo written >/data/file; stat -c %U /data /data/file /etc/shadow; cat /home/ada/mine"); out !=
		"ada\nada\nada\nada\n13\n" {
		t.Errorf("with a directory its user sees %q", out)
	}
	if out := l.must("stat", "-c", "%u", u.in("data/file")); out != "61000\n" {
		t.Errorf("the file in the directory is %q", out)
	}
}

// besideRoot runs the image as its user beside root inside, for whom programs have the rights of their modes.
// Directories that are shared with an ordinary user cannot be both theirs.
func besideRoot(t *testing.T, u *lab) {
	t.Helper()
	const look = `id -un; chage -l ada | head -n 1 | cut -d: -f1 | tr -d "\t"; (: < /etc/shadow) && echo it is read
		echo own > /work/file && stat -c %U /work /work/file /usr/bin/chage /home/ada`
	args := []string{"--root", "--user", "ada", "--image", "built"}
	if out, _ := u.run(slices.Concat([]string{"cove", "run"}, args, []string{"sh", "-c", look})...); out !=
		"ada\nLast password change\nada\nada\nroot\nada\n" {
		t.Errorf("beside root inside its user sees %q", out)
	}
	shared := []string{"run", "--mount", u.in("data") + ":/data", "sh", "-c", "true"}
	for _, command := range [][]string{shared, {"new", "--empty"}} {
		out, err := u.run(slices.Concat([]string{"cove", command[0]}, args, command[1:])...)
		if err == nil || !strings.Contains(err.Error(), "not both") {
			t.Errorf("cove %v: %q, %v", command, out, err)
		}
	}
	if left := u.list().Sandboxes; len(left) > 0 {
		t.Errorf("a refused sandbox is there: %+v", left)
	}
}

// commit makes an image of a sandbox, and looks at its owners.
func commit(t *testing.T, u *lab) {
	t.Helper()
	u.must("cove", "new", "--empty", "--name", "box", "--root", "--image", "debian", "--no-attach")
	u.must("cove", "exec", "box", "--", "sh", "-c", `useradd -m bea && install -d -o bea -m 700 /opt/hers &&
		install -o bea -g games -m 640 /etc/hostname /opt/hers/file && cp /bin/true /opt/able &&
		setcap cap_net_bind_service=ep /opt/able`)
	u.must("cove", "sandbox", "commit", "box", "mine")
	u.must("cove", "destroy", "--yes", "box")
	const look = "stat -c '%U:%G %a' /opt/hers /opt/hers/*; getcap /opt/able"
	if out := u.must("cove", "run", "--root", "--image", "mine", "sh", "-c", look); out !=
		"bea:root 700\nbea:games 640\n/opt/able cap_net_bind_service=ep\n" {
		t.Errorf("the image of the sandbox has %q", out)
	}
}

// TestBuildsAlikeWithoutRoot builds many Dockerfiles as root and as an ordinary user: the images are the same.
func TestBuildsAlikeWithoutRoot(t *testing.T) {
	l := newLab(t)
	l.env = append(l.env, "SOURCE_DATE_EPOCH=1700000000")
	u := l.asUser(subordinate)
	compareContext(t, l)
	u.context(l)
	for _, of := range []*lab{l, u} {
		of.must("cove", "image", "import", "tar:"+l.in("base.tar"), "--name", "base")
	}
	for name, dockerfile := range compared(t) {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			l.inContext("Dockerfile", dockerfile)
			l.must("cp", l.in("ctx/Dockerfile"), u.in("ctx/Dockerfile"))
			for _, of := range []*lab{l, u} {
				out, err := of.command("cove", "image", "build", "-t", "built", "ctx").CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			same(t, l, u, "built")
		})
	}
}

// TestBuildEndsWithoutRoot: a build that is interrupted or killed leaves no process, and nothing in the store after the
// next command. Without subordinate ids none begins.
func TestBuildEndsWithoutRoot(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	u := l.asUser(subordinate)
	l.must("tar", "-C", made, "-cf", l.in("root.tar"), ".")
	u.must("cove", "image", "import", "tar:"+l.in("root.tar"), "--name", "debian")
	l.inContext("Dockerfile", `FROM debian
RUN useradd -m ada && install -d -o ada -m 700 /opt/hers && install -o ada /etc/passwd /opt/hers/file
RUN install -d -o 33 -m 700 /opt/others && touch /opt/others/file && echo begun && exec sleep 1000
`)
	u.context(l)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		c := u.command("cove", "image", "build", "--no-cache", "-t", "built", "ctx")
		file, err := os.Create(l.in("said"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		said := func() string {
			text, _ := os.ReadFile(file.Name()) // as far as it is written
			return string(text)
		}
		if c.Stderr = file; c.Start() != nil {
			t.Fatal("it does not start")
		}
		l.eventually("the command runs", func() bool { return strings.Contains(said(), " begun\n") })
		if len(apart(t)) == 0 {
			t.Error("no process works on the files of the image")
		}
		c.Process.Signal(signal)
		if err := c.Wait(); err == nil {
			t.Errorf("%v: the build has succeeded:\n%s", signal, said())
		}
		l.eventually("the process of the files ends", func() bool { return len(apart(t)) == 0 })
		u.must("cove", "image", "list")
		if left, err := os.ReadDir(u.in("home/images/tmp")); err != nil || len(left) > 0 {
			t.Errorf("%v: tmp has %v, %v", signal, left, err)
		}
	}
	if out, err := u.run("cove", "run", "--image", "built", "true"); err == nil {
		t.Errorf("there is an image: %s", out)
	}
	l.write("ids", "")
	out, err := u.command("cove", "image", "build", "-t", "built", "ctx").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "usermod --add-subuids") {
		t.Errorf("without subordinate ids: %v\n%s", err, out)
	}
}

// apart are the processes of these programs that work on the files of images.
func apart(t *testing.T) (all []string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		text, err := os.ReadFile(p)
		if err == nil && string(text) == filepath.Join(bin, "cove-server")+"\x00image-files\x00" {
			all = append(all, p)
		}
	}
	return all
}
