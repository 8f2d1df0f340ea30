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

// Over returns the map with which root of a user namespace reaches every file that sandboxes of the user make: that of
// Apart, or that of the user alone. ok is false where there is no need of it.
func (d IDs) Over() (m IDMap, ok bool) {
	if m, ok := d.Apart(); ok || d.root {
		return m, ok
	}
	return ownMap(cove.RootUser, d.self), true
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
	if !m.Tool { // of one id each, which needs no right
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: m.Users[0].Host, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: m.Groups[0].Host, Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return cove.Errorf(cove.Unavailable, "cannot start %s in a user namespace: %w", arg, err).
			WithHint("user namespaces seem to be turned off; \"cove doctor\" says how to allow them")
	}
	var err error
	if m.Tool {
		if err = m.Write(context.Background(), cmd.Process.Pid); err != nil {
			cmd.Process.Kill()
		}
	}
	go cmd.Wait()
	return err
}
