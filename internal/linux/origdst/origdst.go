//go:build linux

// Package origdst reports the original destination of a redirected connection.
package origdst

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

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

// get reads SO_ORIGINAL_DST, whose number IP6T_SO_ORIGINAL_DST shares, into types of x/sys that are large enough.
func get(fd int, four bool) (netip.AddrPort, error) {
	if !four {
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
