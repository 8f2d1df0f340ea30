//go:build unix

package client

import "syscall"

// apart has a program begin a session, so that Ctrl-C in the terminal is this process's alone.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
