//go:build linux

// Package netsetup configures the network namespace of the calling thread. It uses system calls only, so that the guest
// can link it.
package netsetup

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Send sends whole netlink messages to the kernel's protocol (NETLINK_ROUTE, NETLINK_NETFILTER) and waits for the
// acknowledgements that they request. It uses one write, as a firewall batch requires. It returns the kernel's error.
func Send(protocol int, messages []byte) error {
	expected, err := acknowledged(messages)
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

// each calls f with the type, flags and body of every message in data.
func each(data []byte, f func(kind, flags uint16, body []byte) error) error {
	for len(data) > 0 {
		if len(data) < unix.NLMSG_HDRLEN {
			return errors.New("half a netlink message")
		}
		length := binary.NativeEndian.Uint32(data)
		if length < unix.NLMSG_HDRLEN || uint64(length) > uint64(len(data)) {
			return errors.New("a netlink message of a wrong length")
		}
		if err := f(binary.NativeEndian.Uint16(data[4:]), binary.NativeEndian.Uint16(data[6:]),
			data[unix.NLMSG_HDRLEN:length]); err != nil {
			return err
		}
		aligned := (uint64(length) + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		data = data[min(aligned, uint64(len(data))):]
	}
	return nil
}

// acknowledged counts the messages that request an acknowledgement.
func acknowledged(data []byte) (n int, err error) {
	err = each(data, func(_, flags uint16, _ []byte) error {
		if flags&unix.NLM_F_ACK != 0 {
			n++
		}
		return nil
	})
	return n, err
}

// answers counts the acknowledgements in data; a refusal is an error.
func answers(data []byte) (n int, err error) {
	err = each(data, func(kind, _ uint16, body []byte) error {
		if kind != unix.NLMSG_ERROR {
			return nil // an echo of what was made
		}
		if len(body) < 4 {
			return errors.New("half an answer")
		}
		if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
			return unix.Errno(-code)
		}
		n++
		return nil
	})
	return n, err
}
