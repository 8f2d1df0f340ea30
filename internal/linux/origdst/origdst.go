//go:build linux

// Package origdst reports the original destination of a redirected connection.
package origdst

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of returns the address that the client of c connected to, before the firewall of c's network namespace redirected it
// (SO_ORIGINAL_DST). It fails with ENOENT for a connection that was not redirected.
func Of(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	four := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().Is4()
	var at netip.AddrPort
	var opErr error
	if err := raw.Control(func(fd uintptr) { at, opErr = get(int(fd), four) }); err != nil {
		return netip.AddrPort{}, err
	}
	if opErr != nil {
		return netip.AddrPort{}, fmt.Errorf("original destination: %w", opErr)
	}
	return at, nil
}

// soOriginalDst is the value of both SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

func get(fd int, four bool) (netip.AddrPort, error) {
	if four {
		var sa unix.RawSockaddrInet4
		err := getsockopt(fd, unix.SOL_IP, unsafe.Pointer(&sa), unsafe.Sizeof(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), port(&sa.Port)), err
	}
	var sa unix.RawSockaddrInet6
	err := getsockopt(fd, unix.SOL_IPV6, unsafe.Pointer(&sa), unsafe.Sizeof(sa))
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port(&sa.Port)), err
}

func port(p *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:]) }

func getsockopt(fd, level int, p unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), soOriginalDst, uintptr(p),
		uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
