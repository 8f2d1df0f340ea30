package session

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	collectVariable = "GOGC" // of the runtime
	// collectLate has the runtime collect no garbage before a program has taken 16 MB. It is 400, written as no user
	// does, so that it can be told from what a user has set.
	collectLate = "+0400"
)

// CollectLate has the runtime collect no garbage before this program has taken 16 MB, and from then on as always,
// unless the user has said otherwise (GOGC). Most commands have ended by then; collections would take a sixth of their
// time.
func CollectLate() {
	switch os.Getenv(collectVariable) {
	case "":
		debug.SetGCPercent(400)
	case collectLate: // by handOver, since the runtime has started
		os.Unsetenv(collectVariable)
	default:
		return
	}
	garbage := &struct{ *int }{}
	runtime.AddCleanup(garbage, func(percent int) { debug.SetGCPercent(percent) }, 100) // at the first collection
}
