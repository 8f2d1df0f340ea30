package engine

import (
	"testing"

	"github.com/cove-sandbox/cove"
)

// everything is an engine that can do it all.
func everything() Capabilities {
	return Capabilities{Isolations: []cove.Isolation{cove.IsolationContainer}, Networks: []cove.NetworkMode{cove.NetworkNone}, OwnImages: true,
		LateMount: true, Listeners: true, MemoryLimit: true, SwapLimit: true, CPULimit: true, PIDsLimit: true, DiskLimit: true}
}

func TestCheckRefusesNegativeLimits(t *testing.T) {
	template := func(l cove.Limits) Template {
		return Template{Isolation: cove.IsolationContainer, Network: cove.NetworkNone, Limits: l}
	}
	for name, l := range map[string]cove.Limits{
		"memory": {Memory: -1}, "cpus": {CPUs: -0.5}, "pids": {PIDs: -1}, "disk": {Disk: -1}, "inodes": {Inodes: -1},
		"open files": {OpenFiles: -1}, "stdout": {Stdout: -1}, "stderr": {Stderr: -1}, "timeout": {Timeout: -1},
	} {
		if err := everything().Check(template(l)); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := everything().Check(template(cove.Limits{Memory: 1, CPUs: 1, PIDs: 1, Disk: 1})); err != nil {
		t.Errorf("positive limits: %v", err)
	}
}

func TestCheckBindingRefusesTargets(t *testing.T) {
	for target, refused := range map[string]bool{"/data": false, cove.Workspace: false, "/": true, "/proc": true, "/dev/shm": true, "/work/../sys": true, "relative": true, "": true} {
		err := everything().CheckBinding(Binding{Mounts: []cove.Mount{{Source: "/tmp", Target: target}}})
		if (err != nil) != refused {
			t.Errorf("%q: %v", target, err)
		}
	}
}
