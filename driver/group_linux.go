package driver

import "syscall"

// inGroup has a program begin a process group, which ends when this process does.
func inGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
