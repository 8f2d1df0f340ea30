//go:build unix && !linux

package driver

import "syscall"

// inGroup has a program begin a process group.
func inGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
