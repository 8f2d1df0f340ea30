package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cove-sandbox/cove/api"
)

// Profiles lists the named configurations of the server.
func (c *Client) Profiles(ctx context.Context) ([]api.Profile, error) {
	l, err := ask[api.ProfileList](ctx, c, http.MethodGet, at("/profiles"), nil)
	return l.Profiles, err
}

// Profile returns one of them. Errors: NotFound.
func (c *Client) Profile(ctx context.Context, name string) (api.Profile, error) {
	return ask[api.Profile](ctx, c, http.MethodGet, at("/profiles/"+url.PathEscape(name)), nil)
}
