package client

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/coder/websocket"

	"github.com/cove-sandbox/cove/internal/portstream"
)

// PortConnection is a connection to a TCP port of a sandbox. Its peer is a program of the sandbox, and not trusted.
type PortConnection struct{ ws *websocket.Conn }

// ConnectPort connects to a TCP port at the loopback of a running sandbox. The caller must call Carry or Close. Errors:
// NotFound, Conflict when the sandbox does not run, Unavailable when nothing listens at the port.
func (c *Client) ConnectPort(ctx context.Context, sandbox string, port int) (*PortConnection, error) {
	ws, err := dialSocket(ctx, c, sandboxPath(sandbox).below("/ports/"+strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return &PortConnection{ws}, nil
}

// Carry moves what the sandbox's program and the peer of local send, until both have ended, one has gone, or ctx ends.
// It closes both connections. Its error is why it ended before both had.
func (p *PortConnection) Carry(ctx context.Context, local net.Conn) error {
	return portstream.Carry(ctx, p.ws, local)
}

// Close ends the connection.
func (p *PortConnection) Close() error { return p.ws.CloseNow() }

// dialSocket opens a WebSocket.
func dialSocket(ctx context.Context, c *Client, to endpoint) (*websocket.Conn, error) {
	if to.err != nil {
		return nil, to.err
	}
	header := http.Header{}
	if c.key != "" {
		header.Set("Authorization", "Bearer "+c.key)
	}
	conn, resp, err := websocket.Dial(ctx, c.base+to.path,
		&websocket.DialOptions{HTTPClient: c.socks, HTTPHeader: header})
	if err != nil {
		if resp != nil && resp.StatusCode >= 400 {
			return nil, failure(resp)
		}
		return nil, unreachable(ctx, err)
	}
	return conn, nil
}
