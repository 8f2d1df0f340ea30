package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// ask asks SERVER:PORT over udp or tcp for NAME and TYPE, in one message by hand, and says the answer's code and how
// many answers it has.
//
//	ask udp 127.0.0.1:53 NAME TYPE [TIMES]
//
// With TIMES, NAME has a number put before it, each its own; Count is then how many were answered.
func ask(args []string) (report, error) {
	if len(args) < 4 {
		return report{}, errors.New("ask NETWORK SERVER NAME TYPE [TIMES]")
	}
	kind, err := strconv.ParseUint(args[3], 10, 16)
	if err != nil {
		return report{}, err
	}
	times := 1
	if len(args) > 4 {
		if times, err = strconv.Atoi(args[4]); err != nil {
			return report{}, err
		}
	}
	c, err := net.DialTimeout(args[0], args[1], longest)
	if err != nil {
		return report{detail: err.Error()}, netErrno(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(longest))
	name, err := strconv.Unquote(`"` + args[2] + `"`)
	if err != nil {
		return report{}, err
	}
	codes := map[string]int{}
	var r report
	for i := range times {
		one := name
		if times > 1 {
			one = "n" + strconv.Itoa(i) + "." + name
		}
		answer, err := question(c, args[0], uint16(i+1), one, uint16(kind))
		if err != nil {
			return report{detail: err.Error(), count: int64(i)}, netErrno(err)
		}
		code := fmt.Sprintf("code %d, %d answers", answer[3]&15, binary.BigEndian.Uint16(answer[6:]))
		if kind == 1 && binary.BigEndian.Uint16(answer[6:]) == 1 { // A: its address is the last of the message
			code += " at " + netip.AddrFrom4([4]byte(answer[len(answer)-4:])).String()
		}
		codes[code]++
		if answer[3]&15 == 0 {
			r.count++
		}
	}
	for code, n := range codes {
		r.lines = append(r.lines, fmt.Sprintf("%d times %s", n, code))
	}
	if r.count == 0 {
		return r, refusal("NODNS")
	}
	return r, nil
}

// question makes one and reads its answer. A name is split at its dots, so that labels may have any other byte.
func question(c net.Conn, network string, id uint16, name string, kind uint16) ([]byte, error) {
	m := binary.BigEndian.AppendUint16(nil, id)
	m = append(m, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		m = append(append(m, byte(len(label))), label...)
	}
	m = append(m, 0)
	m = binary.BigEndian.AppendUint16(m, kind)
	m = append(m, 0, 1)
	b := make([]byte, 64<<10)
	if network == "tcp" {
		m = append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
	}
	if _, err := c.Write(m); err != nil {
		return nil, err
	}
	if network == "tcp" {
		if _, err := io.ReadFull(c, b[:2]); err != nil {
			return nil, err
		}
		b = b[:binary.BigEndian.Uint16(b)]
		if _, err := io.ReadFull(c, b); err != nil {
			return nil, err
		}
	} else {
		n, err := c.Read(b)
		if err != nil {
			return nil, err
		}
		b = b[:n]
	}
	if len(b) < 12 {
		return nil, errors.New("a short answer")
	}
	return b, nil
}

// datagram sends one to ADDRESS and waits for what the kernel says of it: a
// datagram that is refused is, at the next call, or answered.
func datagram(args []string) (report, error) {
	c, err := net.Dial("udp", args[0])
	if err != nil {
		return report{detail: err.Error()}, netErrno(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("probe")); err != nil {
		return report{}, netErrno(err)
	}
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, 512)
	n, err := c.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return report{detail: "sent, and nothing said"}, nil
	}
	if err != nil {
		return report{}, netErrno(err)
	}
	return report{detail: "answered " + outcome.Quoted(string(b[:n]))}, nil
}

// socketOption sets what would change how or as whom a socket sends.
func socketOption(args []string) (report, error) {
	family := unix.AF_INET
	if args[0] == "rthdr" || args[0] == "hopopts" || args[0] == "v6transparent" {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return report{}, err
	}
	defer unix.Close(fd)
	const routed, strict = 131, 137
	route := func(kind byte) string { return string([]byte{kind, 7, 4, 93, 184, 216, 66, 0}) }
	switch args[0] {
	case "lsrr":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, route(routed))
	case "ssrr":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, route(strict))
	case "transparent":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
	case "freebind":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
	case "rthdr":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_RTHDR,
			"\x00\x02\x00\x01\x00\x00\x00\x00"+strings.Repeat("\x20", 16))
	case "hopopts":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, "\x00\x00\x01\x04\x00\x00\x00\x00")
	case "v6transparent":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)
	case "mark":
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1)
	case "device":
		err = unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo")
	default:
		err = errors.New("no such option")
	}
	return report{}, err
}
