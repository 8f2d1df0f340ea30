//go:build linux

package executor

// become goes on with other instructions, and never returns.
//
//go:noescape
func become(instructions, address, pipe uintptr)
