//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/test/adversary"
	"github.com/cove-sandbox/cove/test/debian"
	"github.com/cove-sandbox/cove/test/delegate"
	"github.com/cove-sandbox/cove/test/inner"
)

// TestAdversaryWithoutRoot attacks sandboxes of an ordinary user, who has control groups: with subordinate ids, and
// without any, where the guest and the programs inside have the user's own id.
func TestAdversaryWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who becomes the user")
	}
	if os.Getenv("COVE_TEST_IN_VM") != "" {
		t.Skip("the machine has accounts for that")
	}
	const user = 61000
	for name, ids := range map[string]string{"one id": "", "subordinate ids": fmt.Sprintf("%d:1610612736:65536\n", user)} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "cu")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			in := func(name string) string { return filepath.Join(dir, name) }
			copied := func(from, to string) error {
				text, err := os.ReadFile(from)
				return errors.Join(err, os.WriteFile(to, text, 0o755))
			}
			probe, err := adversary.Probe(t)
			if err != nil {
				t.Fatal(err)
			}
			accounts, err := os.ReadFile("/etc/passwd")
			err = errors.Join(err, os.Chmod(dir, 0o755), os.Mkdir(in("bin"), 0o755), os.Mkdir(in("t"), 0o700),
				os.Chown(in("t"), user, user), copied("/proc/self/exe", in("native.test")),
				copied(enginetest.BuildGuest(t), in("bin/cove-guest")), os.WriteFile(in("bin/probe"), probe, 0o755),
				os.WriteFile(in("ids"), []byte(ids), 0o644), os.WriteFile(in("passwd"),
					append(accounts, fmt.Sprintf("cove-user:x:%d:%[1]d::/:/bin/sh\n", user)...), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			run := "^TestAdversary$"
			if ids != "" { // of the image, all that is the user's is root's inside
				run += "|^TestAdversaryOfRoot$|^TestUsers$|^TestUsersAlone$"
				must(t, "cp", "-a", debian.Root(t), in("image"))
				must(t, "chown", "-R", fmt.Sprintf("%d:%[1]d", user), in("image"))
			}
			args := slices.Concat([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-c",
				`cd "$0" && mount --bind ids /etc/subuid && mount --bind ids /etc/subgid && mount --bind passwd /etc/passwd &&
				exec "$@"`, dir}, delegate.Enter(delegate.Groups(t, user)), delegate.As(user),
				[]string{in("native.test"), "-test.run=" + run, "-test.timeout=20m"}, inner.Args)
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "HOME="+in("t"), "TMPDIR="+in("t"), "USER=cove-user",
				"COVE_TEST_BIN="+in("bin"), "COVE_ADVERSARY_USER=1", adversaryImage+"="+in("image"))
			output, err := inner.NewOutput()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout, cmd.Stderr = output, output
			_ = cmd.Run() // the exit code says it, and what ran
			output.Report(t, cmd.ProcessState.ExitCode())
		})
	}
}

// must runs a command.
func must(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", command, err, out)
	}
}
