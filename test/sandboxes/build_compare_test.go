package sandboxes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// compared returns Dockerfiles over the files of compareContext, by their names; "base" has a shell and some programs.
// Where Docker's own two builders differ there is nothing to compare: set-user-ID bits of the context and with --chown,
// and the directory of an archive that --chown gives away.
func compared(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("testdata/compared.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for part := range strings.SplitSeq("\n"+string(data), "\n-- ") {
		if name, text, ok := strings.Cut(part, " --\n"); ok {
			all[name] = text + "\n"
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d Dockerfiles were found", len(all))
	}
	return all
}

// compareContext makes a context, and the root file system of "base".
func compareContext(t *testing.T, l *lab) {
	t.Helper()
	script, err := os.ReadFile("testdata/compared.sh")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("bash", "-c", string(script))
	c.Dir = l.dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// mounted returns the files of an image as a sandbox has them: as an overlay, where they are in several directories.
func mounted(t *testing.T, of rootfs.Stack) string {
	t.Helper()
	if len(of) == 1 {
		return of[0]
	}
	place, dirs := t.TempDir(), slices.Clone(of)
	slices.Reverse(dirs)
	err := unix.Mount("overlay", place, "overlay", unix.MS_RDONLY, "userxattr,lowerdir="+strings.Join(dirs, ":"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(place, unix.MNT_DETACH) })
	return place
}

// listing describes the files of a root file system.
func listing(t *testing.T, root string) (all []string) {
	t.Helper()
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if slices.Contains([]string{"proc", "sys", "dev", "run", "etc/hosts", "etc/hostname", "etc/resolv.conf"}, rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d", rel, st.Mode, st.Uid, st.Gid)
		switch d.Type() {
		case fs.ModeSymlink:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			line = fmt.Sprintf("%s -> %s %d:%d", rel, to, st.Uid, st.Gid)
		case 0:
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(data))
			if first, ok := inodes[st.Ino]; ok {
				line += " is " + first
			} else {
				inodes[st.Ino] = rel
			}
		}
		n, _ := unix.Llistxattr(name, make([]byte, 4096))
		all = append(all, fmt.Sprintf("%s xattrs %d", line, n))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// comparable returns what of a configuration its author states.
func comparable(c v1.Config) string {
	c.Image, c.Hostname, c.ArgsEscaped = "", "", false
	slices.Sort(c.Env)
	if len(c.OnBuild) == 0 {
		c.OnBuild = nil
	}
	if len(c.Cmd) == 0 {
		c.Cmd = nil
	}
	data, _ := json.MarshalIndent(c, "", " ")
	return string(data)
}

// TestBuildsAsDocker builds the same Dockerfiles with Docker: files, modes, owners, links, attributes and configuration
// of the images are the same.
func TestBuildsAsDocker(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	l := newLab(t)
	compareContext(t, l)
	l.env = append(l.env, "DOCKER_BUILDKIT=0", "DOCKER_HOST="+os.Getenv("DOCKER_HOST"))
	l.must("cove", "image", "import", "tar:"+l.in("base.tar"), "--name", "base")
	l.must("docker", "import", l.in("base.tar"), "base")
	t.Cleanup(func() { l.run("docker", "rmi", "-f", "base", "compared") })
	store, err := image.Open(image.Options{Dir: l.in("home/images")})
	if err != nil {
		t.Fatal(err)
	}
	of := func(t *testing.T, name string) (files []string, config string) {
		t.Helper()
		root, err := store.Resolve(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(l.in("home/images/sha256"), strings.TrimPrefix(root.Digest, "sha256:"))
		return listing(t, mounted(t, root.Stack())), filepath.Join(dir, "config.json")
	}
	for name, dockerfile := range compared(t) {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			out, err := l.built(dockerfile, "-t", "ours")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			c := l.command("docker", "build", "--network=none", "-t", "compared", "ctx")
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("docker: %v\n%s", err, out)
			}
			if out, err := l.run("docker", "save", "-o", l.in("theirs.tar"), "compared"); err != nil {
				t.Fatal(out)
			}
			out, err = l.run("cove", "image", "import", "docker-archive:"+l.in("theirs.tar"), "--name", "theirs")
			if err != nil {
				t.Fatal(out)
			}
			ourFiles, config := of(t, "ours")
			if theirs, _ := of(t, "theirs"); !slices.Equal(ourFiles, theirs) {
				ours := ourFiles
				for _, line := range ours {
					if !slices.Contains(theirs, line) {
						t.Errorf("only ours:   %s", line)
					}
				}
				for _, line := range theirs {
					if !slices.Contains(ours, line) {
						t.Errorf("only theirs: %s", line)
					}
				}
			}
			var ours, said v1.ConfigFile
			text, err := os.ReadFile(config)
			if err == nil {
				err = json.Unmarshal(text, &ours)
			}
			if err != nil {
				t.Fatal(err)
			}
			var manifest []struct{ Config string }
			if err := json.Unmarshal(inArchive(t, l.in("theirs.tar"), "manifest.json"), &manifest); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(inArchive(t, l.in("theirs.tar"), manifest[0].Config), &said); err != nil {
				t.Fatal(err)
			}
			if ours, theirs := comparable(ours.Config), comparable(said.Config); ours != theirs {
				t.Errorf("ours: %s\ntheirs: %s", ours, theirs)
			}
		})
	}
}
