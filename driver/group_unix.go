//go:build unix

package driver

import "syscall"

// signalGroup signals the group that a program has begun.
func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }
