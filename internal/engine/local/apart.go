//go:build linux

package local

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Apart returns the map of root inside for a user who has subordinate ids: root is the user, and all others are
// subordinate ids. ok is false where there are none, or no need of them.
func (d IDs) Apart() (m IDMap, ok bool) {
	if d.root || d.subordinate == (Owner{}) {
		return m, false
	}
	return subordinateMap(cove.RootUser, d.self, d.subordinate), true
}

// overFiles are capabilities over files whose owners a user namespace maps: to give them away, to pass their modes by,
// and to keep special modes and the capabilities of programs.
var overFiles = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SETFCAP}

// Start starts a program as root of a user namespace with the map of Apart, without a capability but those over files.
// Its descriptor 3 is file; signals of the terminal do not reach it.
func (m IDMap) Start(program, arg string, file *os.File) error {
	cmd := exec.Command(program, arg)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = []string{}, "/", []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, AmbientCaps: overFiles, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return cove.Errorf(cove.Unavailable, "cannot start %s in a user namespace: %w", arg, err).
			WithHint("user namespaces seem to be turned off; \"cove doctor\" says how to allow them")
	}
	err := m.Write(context.Background(), cmd.Process.Pid)
	if err != nil {
		cmd.Process.Kill()
	}
	go cmd.Wait()
	return err
}
