package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/linux/fdpass"
)

// The methods in this file are for a gateway of its own ("cove gateway").

// GatewayHealth asks how the gateway is.
func (c *Client) GatewayHealth(ctx context.Context) (api.GatewayHealth, error) {
	var h api.GatewayHealth
	err := c.call(ctx, http.MethodGet, "/health", nil, &h)
	return h, err
}

// GatewayClients lists the gateway's clients by name.
func (c *Client) GatewayClients(ctx context.Context) ([]api.GatewayClient, error) {
	var l api.GatewayClientList
	err := c.call(ctx, http.MethodGet, "/clients", nil, &l)
	return l.Clients, err
}

// RegisterGatewayClient gives a client a way out, or another policy.
func (c *Client) RegisterGatewayClient(ctx context.Context, g api.GatewayRegistration) (api.GatewayClient, error) {
	var made api.GatewayClient
	err := c.call(ctx, http.MethodPost, "/clients", g, &made)
	return made, err
}

// RemoveGatewayClient closes a client's way out for good.
func (c *Client) RemoveGatewayClient(ctx context.Context, name string) error {
	resp, err := c.send(ctx, http.MethodDelete, clientPath(name), "", nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// ChangeGatewayClient adds to what a client may reach, at once.
func (c *Client) ChangeGatewayClient(ctx context.Context, name string, change api.NetworkChange) (api.NetworkChanged, error) {
	var done api.NetworkChanged
	err := c.call(ctx, http.MethodPost, clientPath(name)+"/network", change, &done)
	return done, err
}

// GatewayAuthority is the certificate authority that a client trusts.
func (c *Client) GatewayAuthority(ctx context.Context, name string) (api.Authority, error) {
	var a api.Authority
	err := c.call(ctx, http.MethodGet, clientPath(name)+"/ca", nil, &a)
	return a, err
}

func clientPath(name string) string { return "/clients/" + url.PathEscape(name) }

// HandOver gives the gateway the sockets of a transparent client, which stay
// the caller's too. The way out is open until the connection that it returns
// is closed, or breaks. The client's address must be a unix socket.
func (c *Client) HandOver(ctx context.Context, name string, sockets []*os.File) (_ io.ReadCloser, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	request := "POST " + clientPath(name) + "/sockets HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " + api.SocketsProtocol + "\r\nContent-Length: 0\r\n\r\n"
	if _, err := conn.Write([]byte(request)); err != nil {
		return nil, unreachable(ctx, err)
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, failure(resp)
	}
	if err := fdpass.Send(conn.(*net.UnixConn), sockets); err != nil {
		return nil, unreachable(ctx, err)
	}
	var refused api.Error
	line, err := reader.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &refused)
	}
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	if refused.Error != "" {
		return nil, remoteError(refused, http.StatusInternalServerError)
	}
	if !stop() {
		return nil, cove.Errorf(cove.Canceled, "the request was given up: %w", context.Cause(ctx))
	}
	return conn, nil
}
