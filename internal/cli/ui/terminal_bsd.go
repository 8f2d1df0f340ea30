//go:build unix && !linux

package ui

import (
	"os"

	"golang.org/x/sys/unix"
)

// DropInput forgets what was typed at a terminal and not yet read.
func DropInput(f *os.File) {
	const read = 1 // FREAD of sys/fcntl.h
	unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCFLUSH, read)
}
