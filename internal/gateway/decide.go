package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/cove-sandbox/cove/internal/egress/credential"
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
	endpoints  bool
	neighbours neighbours
}

const sshPort = 22 // the port of git, and not of the API, at a GitHub server

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
	if v, ok := d.neighbours.verdict(r); ok {
		if denied, is := d.denies(r); is {
			return denied
		}
		return v
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

// judgeEndpoint judges requests to the gateway's own name: endpoints for models and credentials, at one port.
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

// judgeProvider judges the gateway's requests to a provider: the provider's policy allows, the sandbox's may deny.
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

// stands returns the verdict, during a change, on an open flow: one that needed an approval has it, or waits for it.
func (d *decider) stands(r policy.Request) policy.Verdict {
	v := d.judge(r)
	if v.Action == policy.Ask && d.asks(r) {
		v.Action = policy.Allow
	}
	return v
}

// rules hold the policy of one sandbox, which can change while connections are open.
type rules struct {
	*identity
	machine     policy.Machine
	credentials *credential.Set // set on the sandbox's own requests

	policy atomic.Pointer[policy.Policy]
	next   atomic.Pointer[policy.Policy] // set while a change cuts connections

	changing  sync.Mutex
	documents []*policy.Document // of policy; guarded by changing
}

func (s *rules) compile(documents []*policy.Document) (*policy.Policy, error) {
	p, err := policy.Compile(s.machine, documents...)
	if err != nil {
		return nil, err
	}
	if err := s.credentials.Check(p.Decide); err != nil {
		return nil, err
	}
	return p.For(*s.name.Load()), nil
}

// Rename sets the name of the sandbox, in remedies, questions and decisions.
func (s *rules) Rename(name string) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.name.Store(&name)
	s.policy.Store(s.policy.Load().For(name))
}

// change replaces the policy by one of documents. Until cut has closed all that the new policy does not allow, nothing
// is allowed that the old one does not allow.
func (s *rules) change(documents []*policy.Document, cut func()) error {
	p, err := s.compile(documents)
	if err != nil {
		return err
	}
	s.next.Store(p)
	cut()
	s.documents = documents
	s.policy.Store(p)
	s.next.Store(nil)
	return nil
}

// both returns the policies that must agree: the policy and, during a change, the next one.
func (s *rules) both() []*policy.Policy {
	next := s.next.Load() // first: a change stores the policy before it clears next
	all := []*policy.Policy{next, s.policy.Load()}
	if next == nil {
		return all[1:]
	}
	return all
}

// decide returns the verdict of the policy, or during a change the stricter of two.
func (s *rules) decide(r policy.Request) policy.Verdict {
	next := s.next.Load() // first: see both
	v := s.policy.Load().Decide(r)
	if next == nil {
		return v
	}
	after := next.Decide(r)
	if after.Action == policy.Deny || after.Action == policy.Ask && v.Action == policy.Allow {
		v, after = after, v
	}
	v.PassThrough = v.PassThrough && after.PassThrough
	v.Whole = v.Whole && after.Whole
	return v
}

// denies returns the denial of the policy or, during a change, of the next one.
func (s *rules) denies(r policy.Request) (policy.Verdict, bool) {
	next := s.next.Load() // first: see both
	if v, denied := s.policy.Load().Denied(r); denied || next == nil {
		return v, denied
	}
	return next.Denied(r)
}

// asks reports whether the policy, before any change in progress, asks about a request.
func (s *rules) asks(r policy.Request) bool { return s.policy.Load().Decide(r).Action == policy.Ask }

// gitHost reports whether git requests to a host are judged.
func (s *rules) gitHost(h policy.Host) bool {
	return s.next.Load().GitHost(h) || s.policy.Load().GitHost(h)
}

// grants returns what both policies grant at GitHub's API.
func (s *rules) grants() github.Grants {
	g := github.Grants{PullRequests: true}
	for _, p := range s.both() {
		g = g.And(p.GitHub())
	}
	return g
}
