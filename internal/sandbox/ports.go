package sandbox

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
)

// routePorts has the ports at which the gateway listens in a sandbox for its programs.
var routePorts = []uint16{engine.TransparentPort, engine.ProxyPort, engine.DNSPort}

// connect connects to a TCP port at the loopback of a running sandbox, which errors call name. Errors: Unavailable,
// Unsupported.
func connect(ctx context.Context, sb *provision.Sandbox, name string, port uint16) (net.Conn, error) {
	if slices.Contains(routePorts, port) {
		return nil, cove.Errorf(cove.Unavailable, "port %d of %s is the gateway's", port, name)
	}
	c, err := sb.Reach(ctx, port)
	switch {
	case cove.ErrorCode(err) == cove.Unsupported:
		return nil, err
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, cove.Errorf(cove.Unavailable, "nothing listens on port %d of %s", port, name)
	case err != nil:
		return nil, cove.Errorf(cove.Unavailable, "%s does not accept connections on port %d: %w", name, port, err)
	}
	return c, nil
}

// ports counts the connections from outside by the caller, the sandbox and the port.
type ports struct {
	mu   sync.Mutex
	open map[portUse]int
}

type portUse struct {
	who  cove.Principal
	of   cove.SandboxID
	port uint16
}

// take counts a connection, and reports whether it is the only one.
func (p *ports) take(u portUse) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[u]++
	return p.open[u] == 1
}

func (p *ports) give(u portUse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[u]--; p.open[u] == 0 {
		delete(p.open, u)
	}
}

// portConn is a connection that is counted until it is closed.
type portConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *portConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// CloseWrite tells the program that no more comes.
func (c *portConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
