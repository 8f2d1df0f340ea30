package gateway

import (
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// decider judges the requests of one sandbox, as far as no approval is needed.
type decider struct {
	*rules
	models  *models
	github  github.Servers
	ownPort func(port uint16) bool // see Options
	// endpoints tells whether the gateway has endpoints for the sandbox: for models, or for credentials.
	endpoints bool
}

// sshPort is the port of git, and not of the API, at a GitHub server.
const sshPort = 22

// judge returns the verdict on a request: Ask where it needs an approval.
func (d *decider) judge(r policy.Request) policy.Verdict {
	switch {
	case r.Endpoint:
		return d.judgeProvider(r)
	case r.Host.Name() == policy.GatewayService:
		return d.judgeEndpoint(r)
	case r.Host.Name() == policy.HostService && d.ownPort != nil && d.ownPort(r.Port):
		return policy.Verdict{Rule: "gateway", Reason: r.Host.Authority(r.Port) + " is Cove itself, which no rule opens"}
	}
	v := d.decide(r)
	if why := d.intercepted(r); why != "" {
		if v.PassThrough {
			return policy.Verdict{Rule: v.Rule, Reason: why}
		}
		v.Passable = false
	}
	if v.Action == policy.Ask && implied(r, v) {
		v.Action = policy.Allow
	}
	return v
}

// intercepted returns the reason why a connection cannot be passed through, or "".
func (d *decider) intercepted(r policy.Request) string {
	switch {
	case r.Layer != policy.LayerConnect:
		return ""
	case d.credentials.Binds(r.Host, r.Port):
		return "a credential is set on requests to " + r.Host.Authority(r.Port) + ", which cannot be passed through"
	case d.gitHost(r.Host):
		return "what is asked of repositories over git is judged, so connections to " + r.Host.String() +
			" cannot be passed through"
	case r.Port != sshPort && d.github.Has(r.Host):
		return "what is asked of GitHub's API is judged, so connections to " + r.Host.String() +
			" cannot be passed through"
	}
	return ""
}

// implied reports whether a request may go on although a rule asks about it, because a later request is judged before
// any byte leaves: a name is only looked up here, an intercepted connection waits for its request, and a dialled
// address follows an approved request.
func implied(r policy.Request, v policy.Verdict) bool {
	switch r.Layer {
	case policy.LayerDNS:
		return true
	case policy.LayerConnect:
		return !v.PassThrough || r.Inside
	case policy.LayerDial:
		return !v.Asks.Address
	}
	return false
}

// judgeEndpoint judges requests to the gateway's own name. It has endpoints for sandboxes with a model or a credential,
// at one port.
func (d *decider) judgeEndpoint(r policy.Request) policy.Verdict {
	if v, denied := d.denies(r); denied {
		return v
	}
	switch {
	case !d.endpoints:
		return policy.Verdict{Rule: "default", Reason: r.Host.String() +
			" has nothing for a sandbox without model providers and credentials"}
	case r.Layer == policy.LayerDial, r.Layer != policy.LayerDNS && r.Port != 80:
		return policy.Verdict{Rule: "default", Reason: "the endpoints of " + r.Host.String() + " are at port 80"}
	}
	return policy.Verdict{Action: policy.Allow, Rule: "gateway: endpoints"}
}

// judgeProvider judges the gateway's requests to a provider for the sandbox: the provider's own policy allows, and the
// sandbox's may deny.
func (d *decider) judgeProvider(r policy.Request) policy.Verdict {
	if v, denied := d.denies(r); denied {
		return v
	}
	v := policy.Verdict{Rule: "default", Reason: "no provider of this sandbox's is there"}
	for _, p := range d.models.providers {
		if v = p.policy.Decide(r); v.Action == policy.Allow {
			return policy.Verdict{Action: policy.Allow, Rule: "provider " + p.Name}
		}
	}
	v.Action, v.Remedy = policy.Deny, "" // a sandbox cannot get permission
	return v
}

// stands returns the verdict, during a change, on an open connection or request: what needed an approval until now has
// it, or waits for it.
func (d *decider) stands(r policy.Request) policy.Verdict {
	v := d.judge(r)
	if v.Action == policy.Ask && d.asks(r) {
		v.Action = policy.Allow
	}
	return v
}

// maySign permits leaf certificates for hosts to which the sandbox may connect, at some port.
func (d *decider) maySign(h policy.Host) error {
	v := d.decide(policy.Request{Layer: policy.LayerDNS, Host: h})
	if _, address := h.Addr(); address || v.Action != policy.Deny {
		return nil // an address has been judged with its port
	}
	return cove.Errorf(cove.Forbidden, "%s", v.Reason)
}
