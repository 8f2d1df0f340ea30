package gateway

import (
	"net/http"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// stage is one step on the way of what policy has allowed. Each has a file.
type stage struct {
	name api.Stage
	// enter admits a request, and may change it, or a connection that is passed
	// through, where h is nil. An error is the answer: a *proxy.Refusal, or one
	// with a code of cove.
	enter func(r policy.Request, h *http.Request) (leg, error)
}

// leg is what a stage has to do later for what it has admitted; each may be nil.
type leg struct {
	response func(*http.Response) error
	end      func(failure error) // see proxy.Passage
}

// stages, in the order that requests go through them. Policy comes before the
// first; the proxy dials after the last, and records what became of it. They
// are for what the sandbox asks itself, or for a provider of models.
func (w *Way) stages(credentials *credential.Set, of *model.Provider) []stage {
	return []stage{
		{api.StageGitHub, w.judgeGitHub},
		{api.StageGit, w.judgeGit},
		{api.StageRate, w.rates.enter},
		{api.StageBreaker, w.breakers.enter},
		{api.StageBudget, w.counting(of)},
		{api.StageCredentials, setting(credentials)},
		{api.StageUpstream, w.redact},
	}
}

// Prepare implements proxy.Sandbox: policy has allowed the request.
func (c *client) Prepare(r policy.Request, h *http.Request) (proxy.Passage, error) {
	return enter(c.pipeline, r, h)
}

// enter takes a request through stages.
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

// passage is one request on its way, or one connection.
type passage struct{ legs []leg }

// Response implements proxy.Passage.
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

// End implements proxy.Passage.
func (p *passage) End(failure error) {
	for _, l := range p.legs {
		if l.end != nil {
			l.end(failure)
		}
	}
}

// upstream is who a request is for.
type upstream struct {
	host policy.Host
	port uint16
}

func upstreamOf(r policy.Request) upstream { return upstream{r.Host, r.Port} }

func (u upstream) String() string { return u.host.Authority(u.port) }

// maxUpstreams is how many upstreams of a sandbox something is remembered of;
// those that have not been asked for longest are forgotten.
const maxUpstreams = 1024

func newRecent[V any]() *simplelru.LRU[upstream, V] {
	l, err := simplelru.NewLRU[upstream, V](maxUpstreams, nil)
	if err != nil { // the size is positive
		panic(err)
	}
	return l
}
