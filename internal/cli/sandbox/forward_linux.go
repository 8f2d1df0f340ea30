package sandbox

import (
	"net"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/peeruser"
)

// ownPeer refuses a connection of another user than this process's and root: it would reach what is the caller's.
func ownPeer(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return cove.Errorf(cove.Internal, "a connection of the kind %T", c)
	}
	uid, err := peeruser.Find(tcp)
	return judgePeer(uid, err, os.Geteuid())
}

func judgePeer(uid uint32, err error, own int) error {
	switch {
	case err != nil:
		return cove.Errorf(cove.Forbidden, "a connection is refused: %w", err)
	case uid != 0 && int(uid) != own:
		return cove.Errorf(cove.Forbidden, "a connection of another user, %d, is refused", uid)
	}
	return nil
}
