package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sockets are attempts at the network and at other sockets (K2, H1, C2, E1).
func sockets() map[string]attempt {
	return map[string]attempt{
		"socket":          socketCall,
		"socketpair":      socketPair,
		"connect":         connect,
		"listen":          listenOnce,
		"resolve":         resolve,
		"interfaces":      interfaces,
		"raw_ping":        simple(rawPing),
		"unix_listen":     unixListen,
		"unix_connect":    unixConnect,
		"tcp_listen":      func(args []string) (report, error) { return listenOn("tcp", args[0]) },
		"netlink_route":   simple(netlinkRoute),
		"netlink_link_up": simple(netlinkLinkUp),
	}
}

// numbers parses every argument as an unsigned number of any base.
func numbers(args []string) ([]uintptr, error) {
	var v []uintptr
	for _, a := range args {
		n, err := strconv.ParseUint(a, 0, 64)
		if err != nil {
			return nil, err
		}
		v = append(v, uintptr(n))
	}
	return v, nil
}

// socketCall makes a socket FAMILY TYPE PROTOCOL, all 64 bits of each as given.
func socketCall(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	fd, err := value(unix.SYS_SOCKET, v...)
	return report{}, closing(fd, err)
}

func socketPair(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	var fds [2]int32
	if err := call(unix.SYS_SOCKETPAIR, append(v, at(&fds))...); err != nil {
		return report{}, err
	}
	unix.Close(int(fds[0]))
	unix.Close(int(fds[1]))
	return report{}, nil
}

// connect dials NETWORK ADDRESS and, when something answers, says what.
func connect(args []string) (report, error) {
	c, err := net.DialTimeout(args[0], args[1], 20*time.Second)
	if err != nil {
		return report{}, netErrno(err)
	}
	defer c.Close()
	if !strings.HasPrefix(args[0], "udp") {
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		b := make([]byte, 256)
		n, _ := c.Read(b)
		return report{detail: string(b[:n])}, nil
	}
	if _, err := c.Write([]byte("probe")); err != nil {
		return report{}, netErrno(err)
	}
	return report{}, nil
}

// netErrno digs the errno out of what package net returns.
func netErrno(err error) error {
	var errno unix.Errno
	var dns *net.DNSError
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &dns):
		return refusal("NODNS")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refusal("TIMEOUT")
	}
	return err
}

// listenOnce listens on NETWORK ADDRESS and connects to itself.
func listenOnce(args []string) (report, error) {
	l, err := net.Listen(args[0], args[1])
	if err != nil {
		return report{}, netErrno(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	return connect([]string{args[0], l.Addr().String()})
}

// resolve looks a NAME up and reports how many milliseconds the answer took.
func resolve(args []string) (report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	start := time.Now()
	addrs, err := net.DefaultResolver.LookupHost(ctx, args[0])
	took := time.Since(start).Milliseconds()
	if err != nil {
		return report{count: took, detail: err.Error()}, refusal("NODNS")
	}
	return report{count: took, lines: addrs}, nil
}

// interfaces lists what the network namespace has: links with their addresses, and routes.
func interfaces([]string) (report, error) {
	var r report
	links, err := net.Interfaces()
	if err != nil {
		return r, netErrno(err)
	}
	for _, l := range links {
		addrs, _ := l.Addrs()
		r.lines = append(r.lines, fmt.Sprintf("link %s %v", l.Name, addrs))
	}
	for _, file := range []string{"/proc/net/route", "/proc/net/ipv6_route"} {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 2 && f[0] != "Iface" && f[len(f)-1] != "lo" {
				r.lines = append(r.lines, "route "+strings.Join(f, " "))
			}
		}
	}
	return r, nil
}

// rawPing opens the unprivileged ICMP socket that needs no raw one.
func rawPing() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	return closing(uintptr(fd), err)
}

// unixListen listens on ADDRESS ("@x" is abstract) and answers until killed.
func unixListen(args []string) (report, error) { return listenOn("unix", args[0]) }

func listenOn(network, address string) (report, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return report{}, netErrno(err)
	}
	emit(result("listen", report{detail: "listening"}, nil))
	for {
		c, err := l.Accept()
		if err != nil {
			return report{}, err
		}
		io.WriteString(c, "hello")
		c.Close()
	}
}

func unixConnect(args []string) (report, error) { return connect([]string{"unix", args[0]}) }

// netlinkRoute asks for the links, as every program that enumerates addresses does: it has to work.
func netlinkRoute() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// netlinkLinkUp changes an interface, which takes CAP_NET_ADMIN.
func netlinkLinkUp() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// struct nlmsghdr {RTM_SETLINK, ACK}, struct ifinfomsg {index 1, IFF_UP}: lo, which is up.
	var b []byte
	for _, word := range []uint32{32, unix.RTM_SETLINK | (unix.NLM_F_REQUEST|unix.NLM_F_ACK)<<16, 1, 0, 0, 1,
		unix.IFF_UP, unix.IFF_UP} {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return errors.New("short netlink answer")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
