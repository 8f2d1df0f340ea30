//go:build !linux

package sandbox

import "net"

// ownPeer passes: this system is not asked whose a connection is.
func ownPeer(net.Conn) error { return nil }
