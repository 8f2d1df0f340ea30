package localsocket

import (
	"context"
	"net"
)

// checkListener refuses a program of another user, on Linux, where the server is.
var checkListener = func(c *net.UnixConn, path string) error { return nil }

// Dial connects to a unix socket at which a process of root or of this process's user listens: that of another user
// would be told what this one asks and runs. Errors: Forbidden.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	if err := checkListener(conn, path); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
