//go:build linux

package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/delegate"
)

// TestRemoveAll: a user without root removes a tree in which root inside has given a directory to another user, and
// gets back what is in one that stays.
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
	if err := ids.within(t.Context(), "sh", "-c", script, tree); err != nil {
		t.Fatal(err)
	}
	const mine = `ln -s /etc "$0/link" && echo x >"$0/group" && echo x >"$0/nobody" &&
		chown -h 5:5 "$0/link" && chown 0:5 "$0/group" &&
		chown 65534:65534 "$0/nobody" && chmod 0 "$0/nobody"`
	if err := ids.within(t.Context(), "sh", "-c", mine, tree); err != nil {
		t.Fatal(err)
	}
	if err := ids.GiveBack(t.Context(), tree); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"of another", "of another/deep", "link", "group", "nobody"} {
		info, err := os.Lstat(filepath.Join(tree, name))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
			t.Errorf("%s is not given back: %v, %v", name, info, err)
		}
	}
	if err := ids.within(t.Context(), "sh", "-c", script, tree); err != nil {
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
	if err := ids.within(t.Context(), "false"); err == nil {
		t.Error("a program that fails is no error")
	}
}
