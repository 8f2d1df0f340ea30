package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/cove-sandbox/cove/api"
)

// FollowDecisions passes on decisions with a higher number than after, as any process of Cove with the server's
// database records them, until ctx ends or take returns an error. It uses Execution, Host and Verdict of o. A stream
// that breaks off is Unavailable; the caller may continue after the last received decision.
func (c *Client) FollowDecisions(ctx context.Context, o DecisionOptions, after int64,
	take func(api.Decision) error) error {
	resp, err := c.sendAfter(ctx, http.MethodGet, at("/network/decisions/stream").with(o.query()), "", nil,
		strconv.FormatInt(after, 10))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := checkStream(resp); err != nil {
		return err
	}
	lost := loss{of: "the request", words: "the stream of decisions ended",
		hint: "look at the server's log, and ask again"}
	return each(ctx, resp.Body, lost, func(ev event) (bool, error) {
		if ev.name != api.EventDecision {
			return false, nil
		}
		var d api.Decision
		if err := ev.decode(&d); err != nil {
			return false, err
		}
		return false, take(d)
	})
}
