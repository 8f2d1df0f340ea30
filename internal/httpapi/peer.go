package httpapi

import (
	"context"
	"net"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/localsocket"
)

// strangerKey is the key of the reason why a connection at the owner's door is not the owner's.
type strangerKey struct{}

// connContext looks who has connected at the owner's door. An id alone does not tell the owner from a program in a
// sandbox that a socket was shown to.
func connContext(ctx context.Context, c net.Conn) context.Context {
	strict, ok := c.(strictConn)
	if !ok || doorOf(ctx) != fromOwner {
		return ctx
	}
	if err := localsocket.CheckPeer(strict.Conn); err != nil {
		return context.WithValue(ctx, strangerKey{}, err)
	}
	return ctx
}

// checkPeer refuses a stranger at the owner's door.
func checkPeer(ex *exchange) error {
	why, ok := ex.r.Context().Value(strangerKey{}).(error)
	if !ok {
		return nil
	}
	return cove.Errorf(cove.Forbidden, "this socket is for processes outside every sandbox and container: %w", why).
		WithHint("call cove on the machine itself, or this server over the network with an API key")
}
