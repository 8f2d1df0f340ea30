package sandboxes

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/internal/linux/disk"
)

// withTiny imports an image with a shell, a few programs and their libraries.
func (l *lab) withTiny(from *lab) {
	l.t.Helper()
	from.must("sh", "-c", `set -e; mkdir -p $1/bin $1/tmp
		for p in sh cat seq xargs touch fallocate dd sleep; do
			p=$(readlink -f $(command -v $p)); cp $p $1/bin/
			for f in $(ldd $p | grep -o '/[^ ]*'); do mkdir -p $1$(dirname $f); cp -L $f $1$f; done
		done; test -e $1/bin/sh || ln -s dash $1/bin/sh`, "sh", from.in("tiny"))
	l.must("cove", "image", "import", "dir:"+from.in("tiny"), "--name", "tiny")
}

// onSmallDisk puts the home of a lab on a disk of its own, which belongs to owner, and has 25,000 inodes.
func (l *lab) onSmallDisk(owner int) disk.Image {
	l.t.Helper()
	small := disk.Image{File: l.in("small.img"), Dir: l.in("home")}
	err := errors.Join(os.Mkdir(small.Dir, 0o700), os.Chown(small.Dir, owner, owner),
		small.Make(l.t.Context(), disk.Size{Bytes: 1400 << 20, Inodes: 25_000}), small.Mount(l.t.Context()),
		os.Chown(small.Dir, owner, owner))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		l.run("cove", "server", "stop")
		if err := small.Unmount(); err != nil {
			l.t.Error(err)
		}
	})
	return small
}

// manyFiles writes an archive of more empty files than a small disk has inodes.
func (l *lab) manyFiles(name string) {
	l.t.Helper()
	f, err := os.Create(l.in(name))
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for n := range 30_000 {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint("x/", n), Mode: 0o644}); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// hogs are builds that fill a disk, whether their commands fail or not, and what the error says: as root, where the
// kernel bounds commands, and as an ordinary user, if it is tried.
var hogs = []struct{ name, does, root, user string }{
	{"inodes", "RUN seq 30000 | xargs touch || true", "(limit ", "hardly an inode"},
	{"bytes", "RUN dd if=/dev/zero of=/big bs=1M count=1400", "(limit ", ""},
	{"bytes at once", "RUN fallocate -l 1400000000 /big", `the limit "file_size"`, `the limit "file_size"`},
	{"bytes in several files", "RUN for n in 1 2 3 4; do fallocate -l 600000000 /$n; done; true", "(limit ",
		"less than 512 MiB left"},
	{"an archive", "ADD many.tar /", "more than ", "more than "},
	{"a cache", "RUN --mount=type=cache,target=/c for n in 1 2 3 4; do fallocate -l 400000000 /c/$n; done",
		"less than 512 MiB left", ""},
}

// TestBuildFillsNoDisk: a build whose commands or files fill the disk of the images, in bytes or inodes, fails, says
// why, and leaves the disk as it was, so that builds and sandboxes go on. A build that is killed leaves nothing either.
func TestBuildFillsNoDisk(t *testing.T) {
	for _, as := range []string{"root", "user"} {
		t.Run(as, func(t *testing.T) {
			l := diskLab(t)
			u, owner := l, 0
			if as == "user" {
				u, owner = l.asUser(subordinate), ordinary
			}
			small := u.onSmallDisk(owner)
			u.withTiny(l)
			l.inContext("Dockerfile", "")
			l.manyFiles("ctx/many.tar")
			build := func(text string, flags ...string) (string, error) {
				l.inContext("Dockerfile", "FROM tiny\n"+text+"\n")
				if u != l {
					u.must("cp", "-r", l.in("ctx"), u.dir)
				}
				return u.run(append(append([]string{"cove", "image", "build"}, flags...), "ctx")...)
			}
			if out, err := build("RUN touch /warm"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, hog := range hogs {
				want := map[string]string{"root": hog.root, "user": hog.user}[as]
				if want == "" {
					continue
				}
				before := settledUse(t, small)
				if _, err := build(hog.does); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", hog.name, err, want)
				}
				after := settledUse(t, small)
				if after.Bytes > before.Bytes+2<<20 || after.Inodes > before.Inodes+20 {
					t.Errorf("%s: of the disk %d MiB and %d inodes were used, and now %d and %d", hog.name,
						before.Bytes>>20, before.Inodes, after.Bytes>>20, after.Inodes)
				}
				if _, err := build("RUN dd if=/dev/zero of=/some bs=1M count=20", "--no-cache"); err != nil {
					t.Errorf("the build after %s: %v", hog.name, err)
				}
			}
			if out, err := u.run("cove", "run", "--image", "tiny", "sh", "-c", "echo on"); out != "on\n" {
				t.Errorf("a sandbox says %q, %v", out, err)
			}
			l.killedBuild(t, u)
		})
	}
}

// settledUse returns the use of a disk when what was removed is free.
func settledUse(t *testing.T, of disk.Image) disk.Use {
	t.Helper()
	syscall.Sync()
	used, err := of.Used()
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// killedBuild kills a build while its command runs.
func (l *lab) killedBuild(t *testing.T, u *lab) {
	l.inContext("Dockerfile", "FROM tiny\nRUN touch /begun; sleep 1000\n")
	if u != l {
		u.must("cp", "-r", l.in("ctx"), u.dir)
	}
	c := u.command("cove", "image", "build", "ctx")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	l.eventually("the command runs", func() bool {
		for _, at := range []string{"*/*/*/*/upper/begun", "*/*/*/upper/begun"} {
			if found, _ := filepath.Glob(u.in("home/images/tmp/" + at)); len(found) > 0 {
				return true
			}
		}
		return false
	})
	if u == l && len(l.attached()) != 2 { // and that of the home
		t.Errorf("attached are %q", l.attached())
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	u.must("cove", "image", "prune")
	if left := u.unfinished(); len(left) > 0 {
		t.Errorf("there is %q", left)
	}
	l.eventually("its disk is gone", func() bool { return len(l.attached()) == 1 })
}
