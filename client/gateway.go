package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/localsocket"
)

// The methods in this file are for a standalone gateway ("cove gateway").

// GatewayHealth returns the gateway's state.
func (c *Client) GatewayHealth(ctx context.Context) (api.GatewayHealth, error) {
	return ask[api.GatewayHealth](ctx, c, http.MethodGet, at("/health"), nil)
}

// GatewayClients lists the gateway's clients by name.
func (c *Client) GatewayClients(ctx context.Context) ([]api.GatewayClient, error) {
	l, err := ask[api.GatewayClientList](ctx, c, http.MethodGet, at("/clients"), nil)
	return l.Clients, err
}

// RegisterGatewayClient registers a client with an egress route, or replaces its policy.
func (c *Client) RegisterGatewayClient(ctx context.Context, g api.GatewayRegistration) (api.GatewayClient, error) {
	return ask[api.GatewayClient](ctx, c, http.MethodPost, at("/clients"), g)
}

// RemoveGatewayClient removes a client and its route.
func (c *Client) RemoveGatewayClient(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, clientPath(name), nil, nil)
}

// ChangeGatewayClient extends a client's permission, at once.
func (c *Client) ChangeGatewayClient(ctx context.Context, name string,
	change api.NetworkChange) (api.NetworkChanged, error) {
	return ask[api.NetworkChanged](ctx, c, http.MethodPost, clientPath(name).below("/network"), change)
}

// GatewayAuthority returns the certificate authority that a client trusts.
func (c *Client) GatewayAuthority(ctx context.Context, name string) (api.Authority, error) {
	return ask[api.Authority](ctx, c, http.MethodGet, clientPath(name).below("/ca"), nil)
}

func clientPath(name string) endpoint { return at("/clients/" + url.PathEscape(name)) }

// Holding is an open route of a transparent client.
type Holding struct{ conn *net.UnixConn }

// closeTimeout bounds the closing of a route by the gateway.
const closeTimeout = 5 * time.Second

// Wait returns when the gateway has closed the route, or has gone.
func (h *Holding) Wait() { h.conn.Read(make([]byte, 1)) }

// Close closes the route, and returns when the gateway has closed it.
func (h *Holding) Close() {
	h.conn.CloseWrite()
	h.conn.SetReadDeadline(time.Now().Add(closeTimeout))
	h.Wait()
	h.conn.Close()
}

// HandOver passes the sockets of a transparent client to the gateway; the caller keeps its copies. The route is open as
// long as the Holding. The client's address must be a unix socket.
func (c *Client) HandOver(ctx context.Context, name string, sockets []*os.File) (_ *Holding, err error) {
	conn, err := localsocket.Dial(ctx, c.socket)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	if err = handOver(conn, name, sockets); err != nil {
		stop()
		conn.Close()
		if _, ok := errors.AsType[*cove.Error](err); ok {
			return nil, err
		}
		return nil, unreachable(ctx, err)
	}
	if !stop() {
		return nil, cove.Errorf(cove.Canceled, "the request was given up: %w", context.Cause(ctx))
	}
	return &Holding{conn}, nil
}

// handOver performs the exchange on a fresh connection. The connection's end after the answer is the route's end.
func handOver(conn *net.UnixConn, name string, sockets []*os.File) error {
	request := "POST " + clientPath(name).path +
		"/sockets HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " + api.SocketsProtocol +
		"\r\nContent-Length: 0\r\n\r\n"
	if _, err := conn.Write([]byte(request)); err != nil {
		return err
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return failure(resp)
	}
	if err := sendSockets(conn, sockets); err != nil {
		return err
	}
	var refused api.Error
	line, err := reader.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &refused)
	}
	if err == nil && refused.Error != "" {
		return remoteError(refused, http.StatusInternalServerError)
	}
	return err
}
