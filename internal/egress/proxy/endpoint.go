package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// ruleEndpoint is the rule that refuses requests to the gateway's own name.
const ruleEndpoint = "gateway: endpoints"

// serveEndpoint answers a request to the gateway's own name, or forwards it to the origin behind it, which is judged,
// dialled and recorded like any other.
func (x *exchange) serveEndpoint(ctx context.Context) {
	s := x.server
	x.stage = decision.StageEndpoint
	origin, answer := s.sandbox.Endpoint(x.target.Request, x.r)
	if answer != nil {
		if answer.Status >= http.StatusBadRequest {
			x.verdict = policy.Verdict{Rule: ruleEndpoint, Reason: answer.Reason}
		}
		x.answerWith(answer)
		return
	}
	var err error
	if x.origin, err = x.target.at(origin.URL); err != nil {
		x.refuse(fmt.Errorf("where an endpoint leads: %w", err))
		return
	}
	f := s.flows.add(&flow{request: x.origin.Request, cut: func() { x.cancel(errCut); x.unblock() }})
	defer s.flows.remove(f)
	x.stage = decision.StagePolicy
	if x.verdict = s.judge(ctx, &route{}, x.origin.Request); x.verdict.Action != policy.Allow {
		x.block()
		return
	}
	x.forward(ctx, origin.Prepare)
}

var errNoOrigin = errors.New("it is no http or https URL of a path")

// at returns the request moved to another URL, with its query.
func (t target) at(u *url.URL) (target, error) {
	t.Endpoint, t.scheme = true, u.Scheme
	port := map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	if port == 0 || u.RawQuery != "" {
		return t, errNoOrigin
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return t, errNoOrigin
		}
		port = uint16(n)
	}
	var err error
	if t.Host, err = policy.ParseHost(u.Hostname()); err != nil {
		return t, err
	}
	t.Port = port
	t.Path, err = policy.CanonicalPath(u.EscapedPath())
	return t, err
}
