package client

import (
	"context"
	"net/http"

	"github.com/cove-sandbox/cove/api"
)

// Pool is the pool of prepared sandboxes of a server. It is for the machine's owner.
type Pool struct{ c *Client }

// PoolOf returns the pool of a client's server.
func PoolOf(c *Client) Pool { return Pool{c} }

// Status describes the sandboxes that are prepared.
func (p Pool) Status(ctx context.Context) (api.Pool, error) {
	return ask[api.Pool](ctx, p.c, http.MethodGet, at("/pool"), nil)
}

// Warm has the server keep sandboxes prepared for a language, until Drain or its end.
func (p Pool) Warm(ctx context.Context, w api.PoolWarm) (api.Pool, error) {
	return ask[api.Pool](ctx, p.c, http.MethodPut, at("/pool"), w)
}

// Drain has the server destroy the sandboxes that are prepared, and forget what was asked for. It returns when they are
// gone.
func (p Pool) Drain(ctx context.Context) error {
	return p.c.call(ctx, http.MethodDelete, at("/pool"), nil, nil)
}
