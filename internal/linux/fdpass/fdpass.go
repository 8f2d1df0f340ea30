//go:build linux

// Package fdpass hands descriptors from one process to another over a unix socket (SCM_RIGHTS).
package fdpass

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Send sends one byte together with files, which remain the caller's.
func Send(c *net.UnixConn, files []*os.File) error {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	_, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	return err
}

// Receive reads one byte, with which exactly n descriptors must arrive.
func Receive(c *net.UnixConn, n int) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*(n+1))) // room for one more, to notice too many
	var b [1]byte
	got, oobn, flags, _, err := c.ReadMsgUnix(b[:], oob) // close-on-exec
	if err != nil {
		return nil, err
	}
	files, err := parse(oob[:oobn])
	switch {
	case err != nil:
	case got != 1:
		err = errors.New("nothing was sent")
	case len(files) != n || flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("%d descriptors were sent, or more, want %d", len(files), n)
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, err
	}
	return files, nil
}

func parse(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.SetNonblock(fd, true)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}
