// Package protocol is what the host and the init of a test VM say to each other: JSON values, one a line, over a virtio
// serial port. The host sends a [Step] and reads [Event]s until one has Done set.
package protocol

import "time"

// Account is as whom, and in which control group, a step runs. The control
// groups are laid out as systemd lays them out.
type Account string

const (
	// Root is uid 0 in a session of its own.
	Root Account = "root"
	// Delegated is uid 1000 in a scope under its own user@1000.service, which owns a delegated subtree with cpu, memory
	// and pids, as `systemd-run --user --scope` makes one. It owns 65,536 subordinate ids.
	Delegated Account = "delegated"
	// Undelegated is uid 1000 as somebody who has logged in over ssh: in a session scope that belongs to root.
	Undelegated Account = "undelegated"
	// Service is uid 1000 as a system service with User= and Delegate=: the
	// process itself is in the delegated control group.
	Service Account = "service"
	// Partial is uid 1002, delegated by a systemd that leaves out the cpu controller, as those before 252 do.
	Partial Account = "partial"
	// NoRange is uid 1001, delegated as Delegated is, with no subordinate ids.
	NoRange Account = "norange"
)

// Step is one command to run.
type Step struct {
	Args    []string      `json:"args"`
	Env     []string      `json:"env,omitempty"` // added to the account's own
	Dir     string        `json:"dir,omitempty"`
	As      Account       `json:"as"`
	Timeout time.Duration `json:"timeout"`
}

// Event is what the init tells.
type Event struct {
	// Kernel is set in the first event, when the VM is up: its release.
	Kernel string `json:"kernel,omitempty"`
	// Output is standard output and error of the step, as they come.
	Output []byte `json:"output,omitempty"`
	Done   *Done  `json:"done,omitempty"`
}

// Done is how a step ended.
type Done struct {
	// Error says why the step could not be run; nothing else is set then.
	Error    string `json:"error,omitempty"`
	ExitCode int    `json:"exit_code"` // 128 + signal when a signal ended it
	TimedOut bool   `json:"timed_out,omitempty"`
	// Left is what the step left behind: processes, control groups, mounts. The init has removed it since.
	Left []string `json:"left,omitempty"`
}
