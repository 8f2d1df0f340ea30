package client

import (
	"net"
	"os"

	"github.com/cove-sandbox/cove/internal/linux/fdpass"
)

// sendSockets passes sockets over a connection.
func sendSockets(c *net.UnixConn, sockets []*os.File) error { return fdpass.Send(c, sockets) }
