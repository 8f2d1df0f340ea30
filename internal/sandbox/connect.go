package sandbox

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/cove-sandbox/cove"
)

// Connect connects to a TCP port at the loopback of a running sandbox. The peer is a program of the sandbox, and not
// trusted. The caller closes the connection. It is recorded unless the caller has another one to the port. Errors:
// NotFound, Conflict when the sandbox does not run, Unavailable when nothing listens at the port, Unsupported where the
// engine has no way in.
func (ps *Processes) Connect(ctx context.Context, who cove.Principal, ref string, port uint16) (net.Conn, error) {
	in, err := ps.Enter(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	use := portUse{who, in.ID, port}
	if ps.ports.take(use) {
		err = ps.Note(ctx, who, auditRecord("connect", in.ID, fmt.Sprintf("%s: port %d", in.Name, port), nil))
	}
	var c net.Conn
	if err == nil {
		c, err = connect(ctx, in.Guest, "the sandbox "+in.Name, port)
	}
	if err != nil {
		ps.ports.give(use)
		return nil, err
	}
	return &portConn{Conn: c, release: sync.OnceFunc(func() { ps.ports.give(use) })}, nil
}
