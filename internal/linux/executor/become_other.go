//go:build linux && !amd64

package executor

// become is not called, for no script has it.
//
//go:nosplit
//go:norace
func become(instructions, address, pipe uintptr) { exit(124) }
