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

// Guard is a capability of PID 1 of a long-lived sandbox and of its keeper that no program there has. It permits
// nothing: the one call that asks for it, acct(2), wants it outside of the sandbox. But the kernel keeps a process's
// memory from those that have fewer capabilities, also in the moment in which the process is dumpable: at the start of
// a keeper that has the id of the programs.
const Guard = 1 << unix.CAP_SYS_PACCT
