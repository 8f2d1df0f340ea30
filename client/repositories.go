package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// Repositories returns the server's stored repositories.
func (c *Client) Repositories(ctx context.Context) ([]api.StoredRepository, error) {
	l, err := ask[api.StoredRepositories](ctx, c, http.MethodGet, at("/repositories"), nil)
	return l.Repositories, err
}

// FetchRepository adds a repository to the store, or updates it. progress receives the steps, and may be nil.
func (c *Client) FetchRepository(ctx context.Context, req api.FetchRepositoryRequest,
	progress func(api.Progress)) (api.StoredRepository, error) {
	var r api.StoredRepository
	err := c.stepByStep(ctx, at("/repositories"), req, progress, api.EventFetched, &r)
	return r, err
}

// RemoveRepository removes a repository without borrowers.
func (c *Client) RemoveRepository(ctx context.Context, source string) error {
	q := query{}
	q.set("source", source)
	return c.call(ctx, http.MethodDelete, at("/repositories").with(q), nil, nil)
}

// CollectRepository repacks a repository.
func (c *Client) CollectRepository(ctx context.Context, source string) error {
	return c.call(ctx, http.MethodPost, at("/repositories/collect"), api.RepositoryName{Source: source}, nil)
}

// stepByStep requests a long operation, passes on its steps, and decodes the last event into result.
func (c *Client) stepByStep(ctx context.Context, to endpoint, req any, progress func(api.Progress), last string,
	result any) error {
	b, err := json.Marshal(req)
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot encode the request: %w", err)
	}
	resp, err := c.send(ctx, http.MethodPost, to, "application/json", bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := checkStream(resp); err != nil {
		return err
	}
	lost := loss{of: "the request", words: "it cannot be followed to the end",
		hint: "look at the server's log, and at what is there"}
	return each(ctx, resp.Body, lost, func(ev event) (bool, error) {
		switch ev.name {
		case api.EventProgress:
			var p api.Progress
			if err := ev.decode(&p); err != nil {
				return false, err
			}
			if progress != nil {
				progress(p)
			}
		case last:
			return true, ev.decode(result)
		}
		return false, nil
	})
}
