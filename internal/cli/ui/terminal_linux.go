package ui

import (
	"os"

	"golang.org/x/sys/unix"
)

// DropInput forgets what was typed at a terminal and not yet read.
func DropInput(f *os.File) { unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }
