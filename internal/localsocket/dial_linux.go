package localsocket

import (
	"net"
	"os"

	"github.com/cove-sandbox/cove"
)

// checkListener refuses a program of another user.
func checkListener(c *net.UnixConn, path string) error {
	uid, err := PeerUser(c)
	if err == nil && uid != 0 && int(uid) != os.Geteuid() {
		err = cove.Errorf(cove.Forbidden, "at %s listens a program of another user, %d", path, uid).
			WithHint("set COVE_RUN_DIR to a directory of your own, or run the command as that user")
	}
	return err
}
