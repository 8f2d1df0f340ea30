//go:build linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/engine/local"
)

// A daemon at ssh://[USER@]HOST[:PORT] is reached as the docker command does it: by the machine's own ssh, with its
// configuration and its keys, and by the docker command over there, which connects to the daemon.

// overSSH returns the options of a client of such a daemon.
func overSSH(address string) ([]client.Opt, error) {
	args, err := sshArguments(address)
	if err != nil {
		return nil, err
	}
	dial := func(context.Context, string, string) (net.Conn, error) { return startSSH(args) }
	return []client.Opt{client.WithHost("http://ssh"), client.WithDialContext(dial)}, nil
}

func sshArguments(address string) ([]string, error) {
	at, err := url.Parse(address)
	if err == nil && (at.Hostname() == "" || strings.HasPrefix(at.Hostname(), "-") ||
		strings.HasPrefix(at.User.Username(), "-") || strings.Trim(at.Path, "/") != "" || at.RawQuery != "") {
		err = errors.New("it is not of the form ssh://[USER@]HOST[:PORT]")
	}
	if err == nil {
		if _, secret := at.User.Password(); secret {
			err = errors.New("it has a password, which ssh asks for itself")
		}
	}
	if err != nil {
		return nil, err
	}
	args := []string{"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"}
	if name := at.User.Username(); name != "" {
		args = append(args, "-l", name)
	}
	if port := at.Port(); port != "" {
		args = append(args, "-p", port)
	}
	return append(args, "--", at.Hostname(), "docker", "system", "dial-stdio"), nil
}

// sshConn is a connection by a process, which ends with it.
type sshConn struct {
	net.Conn
	cmd       *exec.Cmd
	complaint local.Complaint
	ended     chan struct{} // closed when the process has
	once      sync.Once
}

func startSSH(args []string) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ssh"), os.NewFile(uintptr(fds[1]), "ssh")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	c := &sshConn{Conn: conn, cmd: exec.Command("ssh", args...), ended: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs, theirs, &c.complaint
	if err := c.cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	go func() { defer close(c.ended); c.cmd.Wait() }()
	return c, nil
}

// Read tells what ssh complains about, where the connection ends.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil {
		return n, nil
	}
	if text := c.complaint.Text(c.ended); text != "" {
		err = fmt.Errorf("ssh: %q: %w", text, err)
	}
	return n, err
}

// CloseWrite tells the daemon that nothing more is said.
func (c *sshConn) CloseWrite() error { return c.Conn.(*net.UnixConn).CloseWrite() }

// Close ends the process, too.
func (c *sshConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.cmd.Process.Kill() })
	<-c.ended
	return err
}
