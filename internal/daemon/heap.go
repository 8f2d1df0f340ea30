package daemon

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// KeepMemory tells the runtime how much memory the server may have before it collects more eagerly, unless the user has
// (GOMEMLIMIT). Without, the heap may grow to twice of what is in use, and past the limit of the server's own group.
func KeepMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	group, _ := cgroup.OwnMemoryLimit() // none is known where there are no control groups
	var machine unix.Sysinfo_t
	if unix.Sysinfo(&machine) != nil {
		return
	}
	debug.SetMemoryLimit(memoryLimit(group, int64(machine.Totalram)*int64(machine.Unit)))
}

// memoryLimit returns the server's share: four fifths of what its group may have, and a quarter of the machine's memory
// at most, because the rest is for sandboxes.
func memoryLimit(group, machine int64) int64 {
	limit := machine / 4
	if group > 0 {
		limit = min(limit, group/5*4)
	}
	return limit
}
