//go:build linux

// Package origdst reports the original destination of a redirected connection. It avoids package net, so that the guest
// can link it.
package origdst

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns the address that the client of a TCP connection connected to, before the firewall of its network namespace
// redirected it (SO_ORIGINAL_DST). It fails with ENOENT for a connection that was not redirected.
func Of(c syscall.Conn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var at netip.AddrPort
	var opErr error
	if err := raw.Control(func(fd uintptr) { at, opErr = get(int(fd)) }); err != nil {
		return netip.AddrPort{}, err
	}
	if opErr != nil {
		return netip.AddrPort{}, fmt.Errorf("original destination: %w", opErr)
	}
	return at, nil
}

// get reads SO_ORIGINAL_DST, whose number IP6T_SO_ORIGINAL_DST shares, into types of x/sys that are large enough.
func get(fd int) (netip.AddrPort, error) {
	local, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	six, is := local.(*unix.SockaddrInet6)
	if is && !netip.AddrFrom16(six.Addr).Is4In6() {
		info, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
		if err != nil {
			return netip.AddrPort{}, err
		}
		port := binary.NativeEndian.AppendUint16(nil, info.Addr.Port) // as in memory: big endian
		return netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr), binary.BigEndian.Uint16(port)), nil
	}
	request, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	sa := request.Multiaddr // struct sockaddr_in: 2 bytes of family, the port, the address
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), binary.BigEndian.Uint16(sa[2:])), nil
}
