//go:build !linux

package localsocket

import "net"

// checkListener passes: the server runs on Linux, and is reached here through another program's socket.
func checkListener(*net.UnixConn, string) error { return nil }
