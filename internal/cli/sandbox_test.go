package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// cgroupParent holds the sandboxes of these tests, apart from all others.
const cgroupParent = "cove-cli-test"

// TestSandboxTranscripts runs testdata/sandbox/*.txt: sessions with real
// sandboxes and real servers, each with a state of its own.
func TestSandboxTranscripts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real sandboxes for seconds; make test runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make (the test VM runs sandboxes as other users)")
	}
	guest := buildGuest(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/sandbox",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			dir, err := os.MkdirTemp("", "cove-cli-") // short: a unix socket's path has 107 bytes
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(env.WorkDir, "big.py"), make([]byte, 2<<20), 0o644); err != nil {
				return err
			}
			env.Setenv("COVE_HOME", filepath.Join(dir, "home"))
			env.Setenv("COVE_RUN_DIR", filepath.Join(dir, "run"))
			env.Setenv("COVE_GUEST", guest)
			env.Setenv("COVE_LISTEN", "")
			env.Setenv("COVE_SANDBOX_CGROUP_PARENT", cgroupParent)
			env.Setenv("NO_COLOR", "1")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"waitfor": waitFor},
	})
}

// buildGuest builds cove-guest where sandboxes, whose ids are their own, can reach it.
func buildGuest(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	guest := filepath.Join(dir, "cove-guest")
	build := exec.Command("go", "build", "-o", guest, "../../cmd/cove-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build cove-guest: %v\n%s", err, out)
	}
	return guest
}
