// Package delegate hands control groups of version 1 over to a user, as systemd does with those of version 2.
package delegate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"
)

// Groups makes control groups that are a user's, one in each hierarchy, for as long as a test runs; a program comes
// into them by Enter. The test is skipped where control groups are of version 2.
func Groups(t *testing.T, user int) (groups []string) {
	t.Helper()
	for _, controller := range []string{"memory", "cpu", "cpuacct", "pids", "freezer"} {
		parent := filepath.Join("/sys/fs/cgroup", controller)
		if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil {
			t.Skip("control groups are of version 2 here, where systemd hands them over: test/vmtest has users")
		}
		dir, err := os.MkdirTemp(parent, "cove-user-")
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, dir)
		t.Cleanup(func() { remove(t, dir) })
		for _, name := range []string{".", "cgroup.procs", "tasks"} {
			if err := os.Chown(filepath.Join(dir, name), user, user); err != nil {
				t.Fatal(err)
			}
		}
	}
	return groups
}

// remove removes a control group and those below it, once they have no process.
func remove(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			remove(t, filepath.Join(dir, e.Name()))
		}
	}
	if err == nil {
		await.That(t, "the control group "+dir+" is left", func() bool {
			err = syscall.Rmdir(dir)
			return !errors.Is(err, syscall.EBUSY) // a process is just ending
		})
	}
	if err != nil {
		t.Errorf("the control group %s stays: %v", dir, err)
	}
}

// Enter is the beginning of a command that runs in control groups.
func Enter(groups []string) []string {
	enter := `n=$1; shift; while [ $n -gt 0 ]; do echo $$ >$1/cgroup.procs; shift; n=$((n-1)); done; exec "$@"`
	return slices.Concat([]string{"sh", "-c", enter, "sh", fmt.Sprint(len(groups))}, groups)
}

// As is the beginning of a command that runs as a user, in no group but the user's own.
func As(user int) []string {
	id := fmt.Sprint(user)
	return []string{"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups", "--"}
}
