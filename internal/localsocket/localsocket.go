// Package localsocket listens on unix sockets that only their owner may connect
// to, from the moment that they are there.
package localsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// Listen listens at a path, in place of whatever is there, and removes the file
// when the listener is closed. It is made in a directory that nobody else
// enters, and moved once nobody else may connect.
func Listen(path string) (net.Listener, error) {
	private, err := os.MkdirTemp(filepath.Dir(path), ".cove")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	temporary := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temporary, 0o600), os.Rename(temporary, path)); err != nil {
		l.Close()
		return nil, err
	}
	return socket{l, path}, nil
}

// socket removes its file when it is closed.
type socket struct {
	net.Listener
	path string
}

// Addr is where it listens, which is not where it was made.
func (s socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

func (s socket) Close() error {
	os.Remove(s.path)
	return s.Listener.Close()
}
