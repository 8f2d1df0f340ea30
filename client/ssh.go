package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// sshHost is a machine whose server is reached with the ssh program of this one, and its configuration: each connection
// is "cove server connect" there.
type sshHost struct{ user, name, port string }

// Names that ssh reads neither as an option nor as a part of a command.
var (
	sshName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`)
	sshUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$`)
)

// parseSSH reads ssh://[user@]host[:port].
func parseSSH(address string) (sshHost, error) {
	u, err := url.Parse(address)
	if err != nil {
		return sshHost{}, notSSH(address)
	}
	h := sshHost{user: u.User.Username(), name: u.Hostname(), port: u.Port()}
	_, secret := u.User.Password()
	if !sshName.MatchString(h.name) || h.user != "" && !sshUser.MatchString(h.user) || secret ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return sshHost{}, notSSH(u.Redacted())
	}
	return h, nil
}

func notSSH(address string) error {
	return cove.Errorf(cove.InvalidArgument, "%q is not an address of a server that ssh reaches", address).
		WithHint("write ssh://host, ssh://user@host or ssh://host:port; everything else belongs into ~/.ssh/config")
}

func (h sshHost) arguments() []string {
	// Forwards of the user's configuration would be made once for each connection, and are of no use to it.
	args := []string{"-T", "-a", "-x", "-o", "ClearAllForwardings=yes", "-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR"}
	if h.user != "" {
		args = append(args, "-l", h.user)
	}
	if h.port != "" {
		args = append(args, "-p", h.port)
	}
	return append(args, "--", h.name, "cove", "server", "connect")
}

// dial connects to the server of the machine. ctx bounds the dialing only.
func (h sshHost) dial(ctx context.Context) (net.Conn, error) {
	c := &sshConn{cmd: exec.Command("ssh", h.arguments()...)}
	c.cmd.SysProcAttr = apart()
	c.cmd.Stderr = &c.said
	c.cmd.WaitDelay = time.Second // a connection that ssh shares and keeps holds its standard error, too
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, cove.Errorf(cove.Unavailable, "cannot run ssh: %w", err).WithHint("install the client of OpenSSH")
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	line := make([]byte, len(api.ConnectedLine))
	n, err := io.ReadFull(c.out, line)
	if err == nil && string(line) == api.ConnectedLine {
		if !stop() {
			return nil, context.Cause(ctx)
		}
		return c, nil
	}
	stop()
	if ctx.Err() != nil {
		c.Close()
		return nil, context.Cause(ctx)
	}
	if n > 0 {
		c.Close()
		return nil, cove.Errorf(cove.Unavailable, "%s answers with %.40q, which is not Cove's", h.name, line[:n]).
			WithHint("files such as ~/.bashrc must not print anything there for shells that are not interactive")
	}
	c.in.Close()
	c.wait() // nothing more comes: it ends by itself
	return nil, h.failure(c.cmd.ProcessState.ExitCode(), c.said.text)
}

// Exit codes of ssh, beside those of the program that it runs: of its own failure, and of a shell that does not find
// the program.
const (
	sshFailed   = 255
	sshNotFound = 127
)

// failure describes why there is no connection, by the exit code of ssh and what it has said.
func (h sshHost) failure(code int, said []byte) error {
	var last, hint string
	for line := range strings.Lines(string(said)) {
		line = strings.TrimRight(line, "\r\n")
		switch message, ofCove := strings.CutPrefix(line, "cove: "); {
		case ofCove:
			last, hint = message, ""
		case strings.HasPrefix(line, "  ") && last != "":
			hint = strings.TrimSpace(line)
		case line != "":
			last, hint = line, ""
		}
	}
	last = cmp.Or(last, "it says nothing")
	e := cove.Errorf(cove.Unavailable, "no connection to the server on %s: %s", h.name, last)
	switch {
	case code == sshFailed:
		return e.WithHint("\"%s\" has to work without a question: for a key with a passphrase, use ssh-agent", h.trial())
	case code == sshNotFound:
		return cove.Errorf(cove.Unavailable, "there is no cove on %s: %s", h.name, last).
			WithHint("install Cove there, in a directory of PATH that \"%s\" shows", h.trial("printenv", "PATH"))
	case hint != "":
		return e.WithHint("%s", hint)
	}
	return e.WithHint("see what \"%s\" says", h.trial("cove", "server", "status"))
}

// trial is a command line with which a user tries the connection.
func (h sshHost) trial(command ...string) string {
	words := []string{"ssh"}
	if h.port != "" {
		words = append(words, "-p", h.port)
	}
	if h.user != "" {
		words = append(words, "-l", h.user)
	}
	if len(command) == 0 {
		command = []string{"true"}
	}
	return strings.Join(append(append(words, h.name), command...), " ")
}

// sshConn is a connection over the standard input and output of ssh.
type sshConn struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	said beginning
	once sync.Once
}

func (c *sshConn) Read(p []byte) (int, error)  { return c.out.Read(p) }
func (c *sshConn) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close ends the connection at once. The other end sees it as closed.
func (c *sshConn) Close() error {
	c.in.Close()
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	go c.wait()
	return nil
}

func (c *sshConn) wait() { c.once.Do(func() { c.cmd.Wait() }) }

func (c *sshConn) LocalAddr() net.Addr  { return sshAddr{} }
func (c *sshConn) RemoteAddr() net.Addr { return sshAddr{} }

func (c *sshConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *sshConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *sshConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type sshAddr struct{}

func (sshAddr) Network() string { return "ssh" }
func (sshAddr) String() string  { return "ssh" }

// beginning keeps the first bytes that are written to it.
type beginning struct{ text []byte }

const maxSaid = 4096

func (b *beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxSaid-len(b.text))]...)
	return len(p), nil
}
