// Package asuser has tests run as an ordinary user, with an account and subordinate ids that no other process sees.
package asuser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove/test/adversary"
	"github.com/cove-sandbox/cove/test/delegate"
	"github.com/cove-sandbox/cove/test/inner"
)

// User is an ordinary user, who runs tests of the test binary that makes it.
type User struct {
	ID  int
	Dir string // root's; everybody may read it, and it goes with the test
	bin string // in Dir
}

// New makes a directory with what a user's tests need: the test binary, a home, and the programs in a directory of the
// home, the guest at the path guest among them. They are the user's own, as people install them: what runs inside and
// may change them changes what the user runs outside.
func New(t *testing.T, id int, guest, programs string) User {
	t.Helper()
	dir, err := os.MkdirTemp("", "cu") // the paths of sockets are short, in the home too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	u := User{id, dir, filepath.Join("h", programs)}
	copied := func(from, to string) error {
		data, err := os.ReadFile(from)
		return errors.Join(err, os.WriteFile(u.In(to), data, 0o755))
	}
	probe, err := adversary.Probe(t)
	err = errors.Join(err, os.Chmod(dir, 0o755), os.Mkdir(u.In("h"), 0o700), os.MkdirAll(u.In(u.bin), 0o755),
		copied("/proc/self/exe", "inner.test"), copied(guest, filepath.Join(u.bin, "cove-guest")),
		os.WriteFile(u.In(filepath.Join(u.bin, "probe")), probe, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(u.In("h"), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, id, id))
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// In is the path of a file of the user's directory.
func (u User) In(name string) string { return filepath.Join(u.Dir, name) }

// Run runs the tests that match a pattern as the user, with subordinate ids in the form of subuid(5), after first, a
// shell command of root's. They are subtests of t.
func (u User) Run(t *testing.T, tests, ids, first string, env ...string) {
	t.Helper()
	args := slices.Concat(Enter(t, u.Dir, u.ID, u.In("h"), ids, first),
		[]string{u.In("inner.test"), "-test.timeout=20m", "-test.run=" + tests}, inner.Args)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+u.In("h"), "TMPDIR="+u.In("h"), "USER=cove-user",
		"COVE_TEST_BIN="+u.In(u.bin))
	cmd.Env = append(cmd.Env, env...)
	output, err := inner.NewOutput()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = output, output
	_ = cmd.Run() // the exit code says it, and what ran
	output.Report(t, cmd.ProcessState.ExitCode())
}

// Enter gives a user an account, "cove-user", with subordinate ids in the form of subuid(5), in a mount namespace of a
// command's own, and control groups. It returns the beginning of a command of the user's. Its files are in dir, where
// first, a shell command of root's, runs in that namespace beforehand.
func Enter(t *testing.T, dir string, user int, home, ids, first string) []string {
	t.Helper()
	groups := delegate.Groups(t, user)
	accounts, err := os.ReadFile("/etc/passwd")
	account := fmt.Sprintf("cove-user:x:%d:%[1]d::%s:/bin/sh\n", user, home)
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "ids"), []byte(ids), 0o644),
		os.WriteFile(filepath.Join(dir, "passwd"), append(accounts, account...), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-c",
		`cd "$0" && mount --bind ids /etc/subuid && mount --bind ids /etc/subgid && mount --bind passwd /etc/passwd &&
		` + first + ` && exec "$@"`, dir}, delegate.Enter(groups), delegate.As(user))
}
