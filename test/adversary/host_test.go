package adversary

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestHeldBy: what a process holds of a sandbox is left behind, unless its namespaces are younger than the sandbox,
// whose numbers the kernel has given to them.
func TestHeldBy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a namespace of pids")
	}
	before := sinceBoot() - 1e9 // the kernel counts the start in ticks
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer input.Close()
	process := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	tr := traces{}
	for _, kind := range []string{"pid", "uts"} {
		ns, err := os.Readlink(process + "/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		tr.namespaces = append(tr.namespaces, ns)
	}
	if first := firstOf(tr.namespaces[0]); first != process {
		t.Errorf("the first process is %q, want %q", first, process)
	}
	tr.taken = before
	if held := tr.heldBy(process); held != nil {
		t.Errorf("of younger namespaces: %q", held)
	}
	tr.taken = sinceBoot()
	if held := tr.heldBy(process); len(held) != 3 { // pid_for_children is the third
		t.Errorf("of its own namespaces: %q", held)
	}
}
