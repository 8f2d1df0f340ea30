package httpapi

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/peeruser"
)

// verdict says whether a connection at the owner's door is the owner's. The zero verdict is that it is.
type verdict struct{ stranger error }

type verdictKey struct{}

// connContext notes who has connected at the owner's door. An id alone does not tell the owner from a program in a
// sandbox that a socket was shown to. At the door of this machine, it prepares to find the local user.
func connContext(ctx context.Context, c net.Conn) context.Context {
	switch doorOf(ctx) {
	case fromLoopback:
		return context.WithValue(ctx, localUserKey{}, &localUser{c: c})
	case fromNetwork:
		return ctx
	}
	v := verdict{errors.New("the kind of its connection is not known")}
	if strict, ok := c.(strictConn); ok {
		if caller, ok := strict.Conn.(*callerConn); ok {
			v.stranger = caller.stranger
		}
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

// localUser finds the local user at the other end of a connection over loopback. It looks when a request asks, and once
// it has found the user, no more.
type localUser struct {
	c net.Conn

	mu    sync.Mutex
	uid   uint32 // guarded by mu
	found bool   // guarded by mu
}

type localUserKey struct{}

func (u *localUser) find() (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.found {
		return u.uid, nil
	}
	at, ok := u.c.RemoteAddr().(socketAddr)
	if !ok {
		return 0, peeruser.ErrUnknown
	}
	uid, err := peeruser.Find(at.socket)
	u.uid, u.found = uid, err == nil
	return uid, err
}

// localUserOf returns the local user at the other end of a request's connection, which came in over loopback.
func localUserOf(ctx context.Context) (uint32, error) {
	u, ok := ctx.Value(localUserKey{}).(*localUser)
	if !ok {
		return 0, peeruser.ErrUnknown
	}
	return u.find()
}
