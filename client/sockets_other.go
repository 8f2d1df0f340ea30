//go:build !linux

package client

import (
	"net"
	"os"

	"github.com/cove-sandbox/cove"
)

// sendSockets fails: gateways take sockets of Linux alone.
func sendSockets(*net.UnixConn, []*os.File) error {
	return cove.Errorf(cove.Unsupported, "sockets can be handed to a gateway on Linux only")
}
