package gateway

import (
	"net/http"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// stage is one step of an allowed request on its way out. Each stage has a file.
type stage struct {
	name decision.Stage
	// enter admits a request, and may change it. For a passed-through connection h is nil. An error is the answer: a
	// *proxy.Refusal, or an error with a code of cove.
	enter func(r policy.Request, h *http.Request) (leg, error)
}

// leg holds a stage's later duties for an admitted request; each may be nil.
type leg struct {
	send     func(*http.Request, http.RoundTripper) (*http.Response, decision.Stage, error) // see proxy.Passage
	response func(*http.Response) error
	problem  func() string       // see proxy.Passage
	end      func(failure error) // see proxy.Passage
}

func enter(stages []stage, r policy.Request, h *http.Request) (proxy.Passage, error) {
	p := &passage{legs: make([]leg, 0, len(stages))}
	for _, s := range stages {
		l, err := s.enter(r, h)
		if err != nil {
			p.End(proxy.ErrUnfinished)
			return nil, proxy.At(s.name, err)
		}
		p.legs = append(p.legs, l)
	}
	return p, nil
}

type passage struct{ legs []leg }

func (p *passage) Send(h *http.Request, next http.RoundTripper) (*http.Response, decision.Stage, error) {
	for _, l := range p.legs {
		if l.send != nil {
			return l.send(h, next)
		}
	}
	res, err := next.RoundTrip(h)
	return res, decision.StageUpstream, err
}

func (p *passage) Response(h *http.Response) error {
	for _, l := range p.legs {
		if l.response == nil {
			continue
		}
		if err := l.response(h); err != nil {
			return err
		}
	}
	return nil
}

func (p *passage) Problem() string {
	for _, l := range p.legs {
		if l.problem != nil {
			if problem := l.problem(); problem != "" {
				return problem
			}
		}
	}
	return ""
}

func (p *passage) End(failure error) {
	for _, l := range p.legs {
		if l.end != nil {
			l.end(failure)
		}
	}
}

type upstream struct {
	host policy.Host
	port uint16
}

func upstreamOf(r policy.Request) upstream { return upstream{r.Host, r.Port} }

func (u upstream) String() string { return u.host.Authority(u.port) }

const maxUpstreams = 1024 // bounds the upstreams of a sandbox with state; the least recently used are dropped

func newRecent[V any]() *simplelru.LRU[upstream, V] {
	l, err := simplelru.NewLRU[upstream, V](maxUpstreams, nil)
	if err != nil { // the size is positive
		panic(err)
	}
	return l
}
