//go:build linux

package build

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/netsetup"
)

var netlinks = map[string]int{guest.NetlinkRoute: unix.NETLINK_ROUTE, guest.NetlinkNetfilter: unix.NETLINK_NETFILTER}

// netlink sends messages by one call, as a firewall batch requires, and waits for the answers that they request.
func (b *Builder) netlink(s guest.Step) error {
	protocol, ok := netlinks[s.Target]
	if !ok {
		return errors.New("unknown netlink family")
	}
	expected, err := netsetup.Acknowledged(s.Data)
	if err != nil {
		return err
	}
	fd := b.Call(unix.SYS_SOCKET, num(unix.AF_NETLINK), num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), num(protocol))
	// The kernel answers at once; a missing answer must not hang the start.
	patience := unix.Timeval{Sec: 10}
	b.Do(unix.SYS_SETSOCKOPT, fd, num(unix.SOL_SOCKET), num(unix.SO_RCVTIMEO), b.Bytes(executor.Structure(patience)),
		num(unsafe.Sizeof(patience)))
	to := unix.RawSockaddrNetlink{Family: unix.AF_NETLINK}
	b.Do(unix.SYS_SENDTO, fd, b.Bytes(s.Data), num(len(s.Data)), num(0), b.Bytes(executor.Structure(to)),
		num(unsafe.Sizeof(to)))
	answer := b.Space(64)
	for range expected {
		b.Scope(func() {
			again := b.Label()
			b.Here(again)
			b.Do(unix.SYS_RECVFROM, fd, answer, num(64), num(0), num(0), num(0))
			b.On(unix.EINTR, again)
			b.JumpUnless(b.Load(answer.At(4), 2), ^uint64(0), unix.NLMSG_ERROR, again) // an echo of what was made
			code := b.Load(answer.At(unix.SizeofNlMsghdr), 4)
			b.FailUnless(code, ^uint64(0), 0, code)
		})
	}
	b.Close(fd)
	return nil
}

// sockaddr is the address of an internet socket, for the kernel.
func sockaddr(addr netip.AddrPort) (family int, raw []byte) {
	port := binary.BigEndian.AppendUint16(nil, addr.Port())
	if ip := addr.Addr(); ip.Is4() {
		raw = binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
		raw = append(append(raw, port...), ip.AsSlice()...)
		return unix.AF_INET, append(raw, make([]byte, 8)...)
	}
	raw = binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
	raw = append(append(append(raw, port...), 0, 0, 0, 0), addr.Addr().AsSlice()...)
	return unix.AF_INET6, append(raw, 0, 0, 0, 0)
}

// Listen makes a listening socket of an internet network.
func (b *Builder) Listen(l guest.Listen) (executor.Value, error) {
	addr, err := netip.ParseAddrPort(l.Address)
	if err != nil {
		return executor.Value{}, err
	}
	kind := unix.SOCK_STREAM
	switch l.Network {
	case "udp4", "udp6":
		kind = unix.SOCK_DGRAM
	case "tcp4", "tcp6":
	default:
		return executor.Value{}, errors.New("unknown network")
	}
	b.Doing("listen on " + l.Network + " " + l.Address)
	family, raw := sockaddr(addr)
	fd := b.Call(unix.SYS_SOCKET, num(family), num(kind|unix.SOCK_CLOEXEC), num(0))
	if kind == unix.SOCK_STREAM { // allow old connections on the same port
		one := b.Bytes(executor.Structure(int32(1)))
		b.Do(unix.SYS_SETSOCKOPT, fd, num(unix.SOL_SOCKET), num(unix.SO_REUSEADDR), one, num(4))
	}
	b.Do(unix.SYS_BIND, fd, b.Bytes(raw), num(len(raw)))
	if kind == unix.SOCK_STREAM {
		b.Do(unix.SYS_LISTEN, fd, num(unix.SOMAXCONN))
	}
	return fd, nil
}

// ListenUnix makes a listening socket that only the user's processes can connect to. Its directory is at a descriptor
// meanwhile, which ends.
func (b *Builder) ListenUnix(l guest.Listen, seal guest.Seal, place int) (fd executor.Value, err error) {
	b.Doing("listen on " + l.Network + " " + l.Address)
	fd = b.Call(unix.SYS_SOCKET, num(unix.AF_UNIX), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), num(0))
	b.inParent(guest.Root+l.Address, func(dir executor.Value, name string) {
		// bind(2) takes no directory descriptor.
		b.Keep(dir, place)
		full := "/proc/self/fd/" + strconv.Itoa(place) + "/" + name
		if len(full) >= len(unix.RawSockaddrUnix{}.Path) {
			err = unix.ENAMETOOLONG
		}
		raw := append(binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX), full...)
		raw = append(raw, 0)
		b.Do(unix.SYS_BIND, fd, b.Bytes(raw), num(len(raw)))
		b.Do(unix.SYS_FCHMODAT, dir, b.Text(name), num(0o600))
		b.Do(unix.SYS_FCHOWNAT, dir, b.Text(name), num(seal.UserUID), num(seal.UserGID), num(unix.AT_SYMLINK_NOFOLLOW))
		b.Keep(num(0), place)
	})
	b.Do(unix.SYS_LISTEN, fd, num(unix.SOMAXCONN))
	return fd, err
}
