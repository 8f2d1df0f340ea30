//go:build linux

package build

import "golang.org/x/sys/unix"

// Kept are the capabilities of a sealed guest with an id of its own: to start processes as the user, and to signal
// them. They are bounded to the sandbox's user namespace, and children never get them.
const Kept = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// LastCapability bounds the loop over capabilities, which ends earlier at the kernel's last one.
const LastCapability = 63

// Halved are limits of what the kernel counts for the user who made the sandbox, too: the other half is left to that
// user's other processes.
var Halved = []int{unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE}
