package proxy

import "net"

// Strict returns a connection that passes a server only HTTP/1 requests that every parser reads in the same way. With
// the first other one it breaks off, and its reads fail. CONNECT is such a one.
func Strict(c net.Conn) *StrictConn { return &StrictConn{strictConn{Conn: c, onError: func(error) {}}} }

// StrictConn is a connection of Strict.
type StrictConn struct{ strictConn }

// Refused returns the reason why the connection broke off, or nil. tooLong reports that a line or a head is too long.
func (c *StrictConn) Refused() (reason error, tooLong bool) {
	return c.refused, c.refused == errLineTooLong || c.refused == errTooMany
}

// CloseWrite ends the answers, where the connection below can end one direction. Otherwise it does nothing.
func (c *StrictConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Release passes on whatever comes next. It is for connections that a handler has taken over from the server.
func (c *StrictConn) Release() { c.off = true }

// Read implements net.Conn.
func (c *StrictConn) Read(p []byte) (int, error) {
	n, err := c.strictConn.Read(p)
	if !c.off && c.framing.state == inTunnel {
		c.refused = errRequestLine
		return 0, c.refused
	}
	return n, err
}
