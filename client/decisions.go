package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// FollowDecisions hands out decisions with a higher number than after, as they
// are recorded by any process of Cove that shares the server's database, until
// ctx ends or each returns an error. Of o it uses Execution, Host and Verdict.
// A stream that breaks off is Unavailable; it may be taken up again after the
// last decision that came.
func (c *Client) FollowDecisions(ctx context.Context, o DecisionOptions, after int64, each func(api.Decision) error) error {
	resp, err := c.sendAfter(ctx, http.MethodGet, o.query().of("/network/decisions/stream"), "", nil, strconv.FormatInt(after, 10))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := checkStream(resp); err != nil {
		return err
	}
	events := newEventReader(resp.Body, maxAnswer)
	for {
		ev, err := events.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errBrokenOff
			}
			if ctx.Err() != nil {
				return cove.Errorf(cove.Canceled, "the request was given up: %w", context.Cause(ctx))
			}
			return cove.Errorf(cove.Unavailable, "the stream of decisions ended: %w", err).WithHint("look at the server's log, and ask again")
		}
		switch ev.name {
		case api.EventDecision:
			var d api.Decision
			if err := json.Unmarshal([]byte(ev.data), &d); err != nil {
				return malformed(ev.name, err)
			}
			if err := each(d); err != nil {
				return err
			}
		case api.EventError:
			var e api.Error
			if err := json.Unmarshal([]byte(ev.data), &e); err != nil {
				return malformed(ev.name, err)
			}
			return remoteError(e, http.StatusInternalServerError)
		}
	}
}
