package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cove-sandbox/cove/api"
)

// Profiles lists the named configurations of the server.
func (c *Client) Profiles(ctx context.Context) ([]api.Profile, error) {
	var l api.ProfileList
	err := c.call(ctx, http.MethodGet, "/profiles", nil, &l)
	return l.Profiles, err
}

// Profile returns one of them. Errors: NotFound.
func (c *Client) Profile(ctx context.Context, name string) (api.Profile, error) {
	var p api.Profile
	err := c.call(ctx, http.MethodGet, "/profiles/"+url.PathEscape(name), nil, &p)
	return p, err
}
