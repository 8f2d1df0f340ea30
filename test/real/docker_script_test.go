package real

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDockerDaemonsOfOneName: two daemons of scripts/start-docker.sh whose directories have the same last name have
// control groups of their own, and stopping one leaves the other as it is.
func TestDockerDaemonsOfOneName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts Docker's daemon")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("needs Docker's daemon, which scripts/test.sh installs")
	}
	script, err := filepath.Abs("../../scripts/start-docker.sh")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), script, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	dir, groups := t.TempDir(), map[string]string{}
	for _, name := range []string{"one", "other"} {
		place := filepath.Join(dir, name, "daemon")
		if err := os.Mkdir(filepath.Dir(place), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { exec.Command(script, "--stop", place).Run() })
		run(place)
		pid, err := os.ReadFile(filepath.Join(place, "dockerd.pid"))
		if err != nil {
			t.Fatal(err)
		}
		command, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "cmdline"))
		_, after, ok := strings.Cut(string(command), "--cgroup-parent=/")
		group, _, _ := strings.Cut(after, "\x00")
		if err != nil || !ok || groups[group] != "" {
			t.Fatalf("%s: %v: the control group %q is that of %s", place, err, group, groups[group])
		}
		groups[group] = place
	}
	run("--stop", filepath.Join(dir, "one", "daemon"))
	// The same directory by another path is the same daemon.
	if got := run(filepath.Join(dir, "one", "..", "other", "daemon") + "/"); got !=
		"unix://"+filepath.Join(dir, "other", "daemon", "docker.sock")+"\n" {
		t.Errorf("the other is at %q", got)
	}
}
