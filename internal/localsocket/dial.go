package localsocket

import (
	"context"
	"net"
)

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
