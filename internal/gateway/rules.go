package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

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
		g.PullRequests = g.PullRequests && p.PullRequests()
	}
	return g
}
