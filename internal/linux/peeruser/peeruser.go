//go:build linux

// Package peeruser finds the local user at the other end of a TCP connection over loopback. It asks the kernel for the
// one socket that has the two addresses of the connection, in the network namespace of this process.
package peeruser

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// ErrUnknown means that no socket of a known user has the addresses: it was closed, or belongs to a user whom the user
// namespace of this process does not have.
var ErrUnknown = errors.New("the peer's user is not known")

// overflowUID is the user that stands for all whom a user namespace does not have (fs.overflowuid).
const overflowUID = 65534

// Find returns the user that made the socket at the other end of a connection that this process has accepted. It may be
// called once the first bytes have come, and what it returns is true for all bytes of the connection.
func Find(c *net.TCPConn) (uint32, error) {
	peer, ok := c.RemoteAddr().(*net.TCPAddr)
	own, both := c.LocalAddr().(*net.TCPAddr)
	if !ok || !both {
		return 0, ErrUnknown
	}
	uid, err := findBy(peer.AddrPort(), own.AddrPort(), ask, search)
	if err != nil {
		return 0, err
	}
	// A peer that resets its connection frees its port at once, for a socket of another user, while its bytes can still be
	// read here. The user is therefore that of the connection only if this is alive after the user was found.
	if err := alive(c); err != nil {
		return 0, err
	}
	return uid, nil
}

// CheckOwn refuses a connection of another user than this process's and root.
func CheckOwn(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return ErrUnknown
	}
	uid, err := Find(tcp)
	if err == nil && uid != 0 && int(uid) != os.Geteuid() {
		err = cove.Errorf(cove.Forbidden, "a connection of another user, %d, is refused", uid)
	}
	return err
}

// alive refuses a connection that was reset, or is closed.
func alive(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var failed error
	if err := raw.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if info.State != established && info.State != closeWait {
		return ErrUnknown
	}
	return nil
}

// way is a way to find the user of a socket by its addresses.
type way func(peer, own netip.AddrPort) (uint32, error)

// findBy finds the user in the first of some ways that knows it. Each is tried, because to a kernel without the
// module tcp_diag no socket exists.
func findBy(peer, own netip.AddrPort, ways ...way) (uint32, error) {
	peer, own = unmapped(peer), unmapped(own)
	var failed error
	for _, find := range ways {
		uid, err := find(peer, own)
		if err != nil {
			failed = err
			continue
		}
		if uid == overflowUID && !everyUser() {
			return 0, ErrUnknown
		}
		return uid, nil
	}
	return 0, failed
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// everyUser reports whether this process is in the initial user namespace, or one with all of its users.
func everyUser() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295"
}

// Sizes and states of include/uapi/linux/inet_diag.h and include/net/tcp_states.h.
const (
	byFamily      = 20 // SOCK_DIAG_BY_FAMILY
	requestSize   = 56 // struct inet_diag_req_v2
	answerSize    = 72 // struct inet_diag_msg
	established   = 1
	finWait1      = 4
	finWait2      = 5
	closeWait     = 8
	lastAck       = 9
	closing       = 11
	anyState      = 0xffffffff
	answerAddress = 4  // offset of struct inet_diag_sockid
	answerUID     = 64 // offset of idiag_uid; the inode follows
)

// connected reports whether a socket in a state has a peer. One in TIME_WAIT, or that only listens, tells
// nothing about the user of a connection.
func connected(state uint8) bool {
	switch state {
	case established, finWait1, finWait2, closeWait, lastAck, closing:
		return true
	}
	return false
}

// ask looks the socket up by netlink (sock_diag(7)).
func ask(peer, own netip.AddrPort) (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return 0, err
	}
	id := sockid(peer, own)
	r := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+requestSize)
	binary.NativeEndian.PutUint32(r, unix.NLMSG_HDRLEN+requestSize)
	binary.NativeEndian.PutUint16(r[4:], byFamily)
	binary.NativeEndian.PutUint16(r[6:], unix.NLM_F_REQUEST) // not a dump, which compares ports alone
	family := byte(unix.AF_INET6)
	if peer.Addr().Is4() {
		family = unix.AF_INET
	}
	r = append(r, family, unix.IPPROTO_TCP, 0, 0)
	r = binary.NativeEndian.AppendUint32(r, anyState)
	r = append(r, id...)
	r = binary.NativeEndian.AppendUint32(r, 0)       // of any interface
	r = binary.NativeEndian.AppendUint64(r, 1<<64-1) // INET_DIAG_NOCOOKIE
	if err := unix.Sendto(fd, r, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	var b [512]byte
	n, _, err := unix.Recvfrom(fd, b[:], 0)
	if err != nil {
		return 0, err
	}
	return parse(b[:n], id)
}

// sockid returns the addresses of a socket as struct inet_diag_sockid has them, without interface and cookie.
func sockid(local, remote netip.AddrPort) []byte {
	id := binary.BigEndian.AppendUint16(nil, local.Port())
	id = binary.BigEndian.AppendUint16(id, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		id = append(id, a.AsSlice()...)
		for range 16 - a.BitLen()/8 {
			id = append(id, 0)
		}
	}
	return id
}

// parse reads the answer about the socket with some addresses. It is pure.
func parse(b, id []byte) (uint32, error) {
	if len(b) < unix.NLMSG_HDRLEN+4 {
		return 0, fmt.Errorf("an answer of %d bytes", len(b))
	}
	kind, body := binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:]
	if kind == unix.NLMSG_ERROR {
		if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); errno != unix.ENOENT {
			return 0, errno
		}
		return 0, ErrUnknown
	}
	if kind != byFamily || len(body) < answerSize {
		return 0, fmt.Errorf("an answer of kind %d with %d bytes", kind, len(body))
	}
	uid, inode := binary.NativeEndian.Uint32(body[answerUID:]), binary.NativeEndian.Uint32(body[answerUID+4:])
	// A socket that its program has closed has no inode, and its user is given as 0.
	if !connected(body[1]) || inode == 0 || string(body[answerAddress:answerAddress+4]) != string(id[:4]) {
		return 0, ErrUnknown
	}
	return uid, nil
}

// search looks the socket up in the kernel's tables. A client with a socket of IPv6 that is connected to an address of
// IPv4 is in the table of IPv6.
func search(peer, own netip.AddrPort) (uint32, error) {
	if !peer.Addr().Is4() {
		return searchIn("/proc/net/tcp6", peer, own)
	}
	uid, err := searchIn("/proc/net/tcp", peer, own)
	if err == nil {
		return uid, nil
	}
	if uid, err := searchIn("/proc/net/tcp6", mapped(peer), mapped(own)); err == nil {
		return uid, nil
	}
	return 0, err
}

func mapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

func searchIn(name string, peer, own netip.AddrPort) (uint32, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return find(f, peer, own)
}

// find reads a table of sockets as /proc/net/tcp has it (proc_net_tcp.rst).
func find(table io.Reader, peer, own netip.AddrPort) (uint32, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[1] != inTable(peer) || f[2] != inTable(own) {
			continue
		}
		state, _ := strconv.ParseUint(f[3], 16, 8)
		uid, err := strconv.ParseUint(f[7], 10, 32)
		if err != nil || f[9] == "0" || !connected(uint8(state)) {
			return 0, ErrUnknown
		}
		return uint32(uid), nil
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, ErrUnknown
}

// inTable returns an address in the form of that table: words in the machine's order, in hex.
func inTable(a netip.AddrPort) string {
	var b strings.Builder
	for words := a.Addr().AsSlice(); len(words) > 0; words = words[4:] {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(words))
	}
	fmt.Fprintf(&b, ":%04X", a.Port())
	return b.String()
}
