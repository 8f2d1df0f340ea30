package client

import "syscall"

// apart has a program begin a process group, so that Ctrl-C in the console is this process's alone.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
