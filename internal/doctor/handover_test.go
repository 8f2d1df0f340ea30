package doctor

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestHandover executes the commands that hand groups of version 1 to a user.
func TestHandover(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, in the place of sudo")
	}
	if _, err := os.Stat("/sys/fs/cgroup/freezer/cgroup.procs"); err != nil {
		t.Skip("control groups are not of version 1 here")
	}
	const user = "nobody"
	controllers := []string{"memory", "cpu", "cpuacct", "pids", "freezer"}
	t.Cleanup(func() {
		for _, c := range controllers {
			os.Remove("/sys/fs/cgroup/" + c + "/" + user)
		}
	})
	cmd := exec.Command("sh", "-ec", "sudo() { \"$@\"; }\n"+handover+`
cat /proc/$$/cgroup
for c in memory cpu cpuacct pids freezer; do stat -c "%U $c" /sys/fs/cgroup/$c/$USER/cgroup.procs; done`)
	cmd.Env = append(os.Environ(), "USER="+user)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range controllers {
		if !strings.Contains(string(out), user+" "+c+"\n") {
			t.Errorf("%s is not the user's", c)
		}
		entered := false
		for line := range strings.Lines(string(out)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			entered = entered || len(parts) == 3 && strings.Contains(","+parts[1]+",", ","+c+",") && parts[2] == "/"+user
		}
		if !entered {
			t.Errorf("the shell is not in the group of %s", c)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
