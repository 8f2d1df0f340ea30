package localsocket

import (
	"net"
	"os"

	"github.com/cove-sandbox/cove"
)

func init() {
	checkListener = func(c *net.UnixConn, path string) error {
		uid, err := PeerUser(c)
		if err != nil {
			return err
		}
		return judge(uid, os.Geteuid(), path)
	}
}

func judge(listener uint32, own int, path string) error {
	if listener == 0 || int(listener) == own {
		return nil
	}
	return cove.Errorf(cove.Forbidden, "at %s listens a program of another user, %d", path, listener).
		WithHint("set COVE_RUN_DIR to a directory of your own, or run the command as that user")
}
