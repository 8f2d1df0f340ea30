//go:build linux

package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove/test/delegate"
)

// TestRemoveAll: a user without root removes a tree in which root inside has given a directory to another user.
func TestRemoveAll(t *testing.T) {
	const user, inner = 61001, "COVE_TEST_REMOVE"
	if dir := os.Getenv(inner); dir != "" {
		removeAsUser(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, who becomes the user")
	}
	dir, err := os.MkdirTemp("", "cr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ids, own, passwd := filepath.Join(dir, "ids"), filepath.Join(dir, "own"), filepath.Join(dir, "passwd")
	program := filepath.Join(dir, "local.test")
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := os.ReadFile("/etc/passwd")
	for _, err := range []error{err, os.Chmod(dir, 0o755), os.WriteFile(program, text, 0o755), os.Mkdir(own, 0o700),
		os.Chown(own, user, user), os.WriteFile(ids, fmt.Appendf(nil, "%d:1610678272:65536\n", user), 0o644),
		os.WriteFile(passwd, fmt.Appendf(accounts, "cove-remove:x:%d:%[1]d::/:/bin/sh\n", user), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"--mount", "--propagation", "slave", "sh", "-c", `cd "$0" && mount --bind ids /etc/subuid &&
		mount --bind ids /etc/subgid && mount --bind passwd /etc/passwd && exec "$@"`, dir}, delegate.As(user)...)
	cmd := exec.Command("unshare", append(args, program, "-test.run=^TestRemoveAll$", "-test.v")...)
	cmd.Env = append(os.Environ(), inner+"="+own, "USER=cove-remove", "HOME="+own)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func removeAsUser(t *testing.T, dir string) {
	ids := FindIDs()
	if !ids.Separate() {
		t.Fatal("the user has no subordinate ids")
	}
	tree := filepath.Join(dir, "tree")
	const script = `mkdir -p "$0/of another/deep" && chmod 700 "$0/of another" && chown -R 33:33 "$0/of another"`
	if err := ids.within("sh", "-c", script, tree); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(tree); err == nil {
		t.Error("the directory of another user was not in the way")
	}
	if err := ids.RemoveAll(tree); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(tree); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if err := ids.within("false"); err == nil {
		t.Error("a program that fails is no error")
	}
}
