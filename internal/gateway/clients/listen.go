package clients

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/localsocket"
)

// Listen listens at "HOST:PORT" or "unix:/PATH", for its owner alone, and returns the address: port 0 is any that is
// free. A program that reaches the address goes out as the client, so it must be loopback or a unix socket unless
// beyond is set (invariant A1). Errors: InvalidArgument, Conflict when another program listens there.
func Listen(address string, beyond bool) (net.Listener, string, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		l, err := listenUnix(path)
		return l, address, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", cove.Errorf(cove.InvalidArgument, "%.100q is no address to listen on", address).
			WithHint("write 127.0.0.1:3128 or unix:/path")
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, "", cove.Errorf(cove.InvalidArgument, "%.100q: %.64q is no numeric address", address, host).
			WithHint("write 127.0.0.1:3128 or unix:/path")
	}
	if !beyond && !ip.IsLoopback() {
		return nil, "", cove.Errorf(cove.InvalidArgument,
			"refusing to listen on %s: every program that reaches it would go out with this policy and its credentials",
			address).
			WithHint("listen on 127.0.0.1 or a unix socket, or run the gateway with --beyond-loopback")
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, "", cove.Errorf(cove.Conflict, "%s is in use by another program", address).
			WithHint("choose another address")
	}
	if err != nil {
		return nil, "", cove.Errorf(cove.InvalidArgument, "cannot listen on %.100q: %w", address, err).
			WithHint("choose another address")
	}
	return l, l.Addr().String(), nil
}

// listenUnix listens at a path, and replaces a socket that is not served any more.
func listenUnix(path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot listen on unix:%s: %w", path, err).
			WithHint("a socket's path is absolute and has about 90 bytes at most")
	}
	if !filepath.IsAbs(path) {
		return fail(errors.New("the path is not absolute"))
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, cove.Errorf(cove.Conflict, "there is something else at %s", path).
			WithHint("choose another path, or move it away")
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, cove.Errorf(cove.Conflict, "another program listens on unix:%s already", path).
			WithHint("choose another path, or end that program")
	}
	l, err := localsocket.Listen(path)
	if err != nil {
		return fail(err)
	}
	return l, nil
}
