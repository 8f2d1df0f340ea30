package sandbox

import "github.com/cove-sandbox/cove/internal/linux/peeruser"

func init() { ownPeer = peeruser.CheckOwn }
