//go:build linux

package mounts

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

const someMounts = `22 27 0:21 / /proc rw,relatime - proc proc rw
41 27 8:1 / /usr/local rw,relatime shared:1 - ext4 /dev/sda1 rw
43 41 8:3 / /usr/local/big\040disk rw - ext4 /dev/sda3 rw
44 27 8:4 / /usrlocal rw - ext4 /dev/sda4 rw
45 41 8:3 / /usr/local/big\040disk rw - ext4 /dev/sda3 rw
`

func TestBelow(t *testing.T) {
	if got, want := Below(someMounts, "/usr"), []string{"/usr/local", "/usr/local/big disk"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Below(someMounts, "/bin"); len(got) != 0 {
		t.Errorf("below /bin: %q", got)
	}
}

func FuzzBelow(f *testing.F) {
	f.Add(someMounts, "/usr")
	f.Fuzz(func(t *testing.T, mountinfo, dir string) {
		for _, p := range Below(mountinfo, dir) {
			if p == "" || strings.HasPrefix(dir, "/") && !strings.ContainsAny(dir, `\ `) && !strings.HasPrefix(p, dir+"/") {
				t.Errorf("%q is not below %q", p, dir)
			}
		}
	})
}

func TestOutermost(t *testing.T) {
	got := outermost([]string{"/a", "/a-b", "/a/c", "/a/c/d", "/b/c", "/b/cd"})
	if want := []string{"/a", "/a-b", "/b/c", "/b/cd"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAttach: a process has a directory mounted, with a submount. Attach changes the directory's owner there and keeps
// the submount.
func TestAttach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to enter a mount namespace")
	}
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(source, "below it"), 0o755))
	must(os.WriteFile(filepath.Join(source, "file"), []byte("given"), 0o644))
	must(os.Chown(filepath.Join(source, "file"), 1234, 1234))
	must(os.Chown(source, 1234, 1234))
	must(os.Mkdir(target, 0o755))
	other := exec.Command("sh", "-ec",
		`mount --bind "$0" "$1"; mount -t tmpfs none "$1/below it"; echo kept > "$1/below it/text"; echo; cat`,
		source, target)
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Unshareflags: unix.CLONE_NEWNS}
	other.Stderr = os.Stderr
	in, err := other.StdinPipe()
	must(err)
	out, err := other.StdoutPipe()
	must(err)
	must(other.Start())
	defer other.Wait()
	defer in.Close()
	_, err = bufio.NewReader(out).ReadString('\n')
	must(err)

	cat, err := os.Open("/bin/cat")
	must(err)
	defer cat.Close()
	userns, err := Ownership(cat, []string{"cat"}, nil, Owner{1234, 1234}, Owner{4321, 4322})
	must(err)
	defer userns.Close()
	attach := func(from string) error {
		t.Helper()
		tree, err := Clone(unix.AT_FDCWD, from)
		must(err)
		defer tree.Close()
		must(Map(tree, userns))
		must(Restrict(tree, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_RDONLY))
		return Attach(other.Process.Pid, []Attachment{{Tree: tree, Target: target}})
	}
	if err := attach(dir); cove.ErrorCode(err) != cove.Forbidden {
		t.Errorf("attaching something else: %v", err)
	}
	must(attach(source))

	seen := filepath.Join("/proc", strconv.Itoa(other.Process.Pid), "root", target)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(seen, "file"), &st); err != nil || st.Uid != 4321 || st.Gid != 4322 {
		t.Errorf("the file is %d:%d's, %v", st.Uid, st.Gid, err)
	}
	if text, err := os.ReadFile(filepath.Join(seen, "below it/text")); err != nil || string(text) != "kept\n" {
		t.Errorf("below it is %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(seen, "file"), nil, 0); err != unix.EROFS &&
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("writing: %v", err)
	}
	// The other process's mounts are the only ones below dir; tests beside this one mount elsewhere.
	if after, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(after), dir) {
		t.Errorf("this process sees mounts of the other, %v:\n%s", err, after)
	}
}
