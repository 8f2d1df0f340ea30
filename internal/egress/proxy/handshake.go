package proxy

import (
	"errors"
	"net"
	"slices"
)

// handshaking is a client's connection during its TLS handshake. It keeps the last bytes that came: OpenSSL and others
// send the alert with which they give up in clear, after the server has begun to encrypt (RFC 8446, 6.2), and
// crypto/tls then reports a broken record.
type handshaking struct {
	net.Conn
	last []byte // of an alert's length at most
	done bool   // the handshake is over
}

const alertLength = 7 // the record's header, the level and the description

// NetConn returns the connection below.
func (c *handshaking) NetConn() net.Conn { return c.Conn }

func (c *handshaking) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.done {
		c.last = append(c.last, p[max(n-alertLength, 0):n]...)
		c.last = slices.Clone(c.last[max(len(c.last)-alertLength, 0):])
	}
	return n, err
}

// Alerts about a certificate that a client does not accept (RFC 8446, 6.2), as they are sent and as crypto/tls names
// them: it keeps the type of such an error to itself.
var certificateAlerts = map[byte]string{
	42: "tls: bad certificate",
	46: "tls: unknown certificate",
	48: "tls: unknown certificate authority",
}

// refused reports whether a handshake that ended with err was given up because of the certificate.
func (c *handshaking) refused(err error) bool {
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" {
		for _, text := range certificateAlerts {
			if remote.Err.Error() == text {
				return true
			}
		}
	}
	const alert, fatal = 21, 2
	if len(c.last) < alertLength || c.last[0] != alert || c.last[1] != 3 || c.last[3] != 0 || c.last[4] != 2 ||
		c.last[5] != fatal {
		return false
	}
	return certificateAlerts[c.last[6]] != ""
}
