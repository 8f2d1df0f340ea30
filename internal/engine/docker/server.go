//go:build linux

package docker

import (
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

// isHere reports whether the server of an address is a process that this one can see: not on another machine, and not
// outside of a container that Cove is in.
func isHere(address string) bool { return serverOf(address).Pid > 0 }

// serverOf returns the process that listens at an address, and its user; no process when this one cannot see it.
func serverOf(address string) unix.Ucred {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return unix.Ucred{}
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return unix.Ucred{}
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return unix.Ucred{}
	}
	var peer *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return unix.Ucred{}
	}
	return *peer
}
