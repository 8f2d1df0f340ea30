package client

import (
	"context"

	"github.com/cove-sandbox/cove/api"
)

// Generate asks a model for a single answer, without an agent, tools or a sandbox. s.Stdout receives the answer as it
// comes, or with a schema once it is valid, and s.Stderr notes; Stdin and Holds are ignored. An answer that failed, or
// that a limit or a caller ended, is returned without an error. The end of ctx ends it.
func (c *Client) Generate(ctx context.Context, req api.GenerateRequest, s Stream) (api.Generated, error) {
	req.Stream, s.Stdin = true, nil
	return run[api.Generated](ctx, c, at("/generate"), req, s, "the server has ended the answer; look at its log")
}
