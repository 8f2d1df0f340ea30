//go:build linux

// Package netsetup configures the network namespace of the calling thread. It uses system calls only, so that the guest
// can link it.
package netsetup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// LoopbackUp brings the loopback interface up.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// Link is a network interface.
type Link struct {
	Name         string
	Loopback, Up bool
}

// Links lists the interfaces of the calling thread's namespace.
func Links() (all []Link, err error) {
	table, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for line := range strings.Lines(string(table)) {
		name, _, ok := strings.Cut(line, ":")
		if !ok { // a heading
			continue
		}
		ifr, err := unix.NewIfreq(strings.TrimSpace(name))
		if err == nil {
			err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr)
		}
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", strings.TrimSpace(name), err)
		}
		flags := ifr.Uint16()
		all = append(all, Link{ifr.Name(), flags&unix.IFF_LOOPBACK != 0, flags&unix.IFF_UP != 0})
	}
	return all, nil
}

// fallbacks are interfaces of the kernel's tunnels, which it puts into every namespace; down, they lead nowhere.
var fallbacks = []string{"tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"}

// WaysAround names the interfaces by which traffic could leave a namespace whose only way out is to be loopback.
func WaysAround(links []Link) (names []string) {
	for _, l := range links {
		if !l.Loopback && (l.Up || !slices.Contains(fallbacks, l.Name)) {
			names = append(names, l.Name)
		}
	}
	return names
}

// Listen makes a listening socket; network is "tcp4", "tcp6", "udp4" or "udp6", address numeric, with its port. The
// socket is blocking; its receiver chooses another mode.
func Listen(network, address string) (*os.File, error) {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	kind := unix.SOCK_STREAM
	switch network {
	case "udp4", "udp6":
		kind = unix.SOCK_DGRAM
	case "tcp4", "tcp6":
	default:
		return nil, errors.New("unknown network")
	}
	var sa unix.Sockaddr
	family := unix.AF_INET
	if addr.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	} else {
		family = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	stream := kind == unix.SOCK_STREAM
	if stream { // allow old connections on the same port
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil && stream {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), address), nil
}

// Send sends whole netlink messages to the kernel's protocol (NETLINK_ROUTE, NETLINK_NETFILTER) and waits for the
// acknowledgements that they request. It uses one write, as a firewall batch requires. It returns the kernel's error.
func Send(protocol int, messages []byte) error {
	expected, err := Acknowledged(messages)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The kernel answers at once; a missing answer must not hang the start.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	buf := make([]byte, 16<<10)
	for expected > 0 {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the kernel's answers: %w", err)
		}
		answers, err := answers(buf[:n])
		if err != nil {
			return err
		}
		expected -= answers
	}
	return nil
}

// Acknowledged counts the messages that request an acknowledgement.
func Acknowledged(data []byte) (n int, err error) {
	messages, err := syscall.ParseNetlinkMessage(data)
	size := 0
	for _, m := range messages {
		size += int(m.Header.Len+unix.NLMSG_ALIGNTO-1) &^ (unix.NLMSG_ALIGNTO - 1)
		if m.Header.Flags&unix.NLM_F_ACK != 0 {
			n++
		}
	}
	if err == nil && size != len(data) {
		err = errors.New("half a netlink message")
	}
	return n, err
}

// answers counts the acknowledgements in data; a refusal is an error.
func answers(data []byte) (n int, err error) {
	messages, err := syscall.ParseNetlinkMessage(data)
	for _, m := range messages {
		if m.Header.Type != unix.NLMSG_ERROR {
			continue // an echo of what was made
		}
		if len(m.Data) < 4 {
			return 0, errors.New("half an answer")
		}
		if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
			return 0, unix.Errno(-code)
		}
		n++
	}
	return n, err
}

// Messages lead the traffic of a namespace to sockets.
type Messages struct {
	Routes   []byte // for NETLINK_ROUTE
	Firewall []byte // for NETLINK_NETFILTER
}
