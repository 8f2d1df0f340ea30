package driver

import (
	"os"
	"syscall"
)

// inGroup has no effect: Windows has no process groups that can be signaled.
func inGroup() *syscall.SysProcAttr { return nil }

// signalGroup ends the program, whatever the signal: no other is known to Windows.
func signalGroup(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
