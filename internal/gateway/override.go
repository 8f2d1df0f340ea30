package gateway

import (
	"net/http"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// refuseOverrides is the stage that refuses headers which give a request another method or path than the judged one,
// where a rule, or the binding of a credential, looks at these.
func (s *rules) refuseOverrides(r policy.Request, h *http.Request) (leg, error) {
	if h == nil {
		return leg{}, nil
	}
	for name := range h.Header {
		if policy.Overrides(name) && (r.Endpoint || s.limits(r)) {
			return leg{}, &proxy.Refusal{Code: cove.Forbidden, Rule: "gateway: protocol",
				Reason: "the header " + name + " can change the method or path of a request, and rules or credentials for " +
					r.Host.Authority(r.Port) + " look at these; send the request without it"}
		}
	}
	return leg{}, nil
}

// limits reports whether rules or credentials look at methods or paths of requests to a host and port.
func (s *rules) limits(r policy.Request) bool {
	return s.credentials.Limits(r) || slices.ContainsFunc(s.both(), func(p *policy.Policy) bool { return p.Limits(r) })
}
