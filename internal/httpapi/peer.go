package httpapi

import (
	"context"
	"errors"
	"net"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/localsocket"
)

// verdict says whether a connection at the owner's door is the owner's. The zero verdict is that it is.
type verdict struct{ stranger error }

type verdictKey struct{}

// connContext looks who has connected at the owner's door. An id alone does not tell the owner from a program in a
// sandbox that a socket was shown to.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if doorOf(ctx) != fromOwner {
		return ctx
	}
	v := verdict{errors.New("the kind of its connection is not known")}
	if strict, ok := c.(strictConn); ok {
		v.stranger = localsocket.CheckPeer(strict.Conn)
	}
	return context.WithValue(ctx, verdictKey{}, v)
}

// checkPeer refuses a stranger at the owner's door, and a connection without a verdict.
func checkPeer(ex *exchange) error {
	if ex.door != fromOwner {
		return nil
	}
	v, looked := ex.r.Context().Value(verdictKey{}).(verdict)
	if !looked {
		v.stranger = errors.New("no verdict says which process has connected")
	}
	if v.stranger == nil {
		return nil
	}
	return cove.Errorf(cove.Forbidden, "this socket is for processes outside every sandbox and container: %w", v.stranger).
		WithHint("call cove on the machine itself, or this server over the network with an API key")
}
