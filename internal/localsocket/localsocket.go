// Package localsocket listens on unix sockets that only their owner can connect to, from their first appearance.
package localsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// Listen listens at a path, replaces an existing file, and removes the file when the listener is closed. The socket is
// made in a private directory, and moved once its mode is set.
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

// Addr returns the final path, not that of the private directory.
func (s socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

func (s socket) Close() error {
	os.Remove(s.path)
	return s.Listener.Close()
}
