package gateway

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// provider is a provider that a sandbox may use.
type provider struct {
	*model.Provider
	policy      *policy.Policy
	credentials *credential.Set // nil: none needed
	pipeline    []stage
}

// choose returns the providers that a sandbox may use, each with the credential for requests to it alone.
func (g *Gateway) choose(names []string, b cove.Budget) (all []*provider, credentials []string, err error) {
	chosen, err := model.Choose(g.o.Providers, names...)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range chosen {
		p := &provider{Provider: c}
		if p.policy, err = c.Policy(g.o.Machine); err != nil {
			return nil, nil, fmt.Errorf("the model provider %s: %w", c.Name, err)
		}
		if b.Cost > 0 && len(c.Prices) == 0 {
			return nil, nil, cove.Errorf(cove.InvalidArgument,
				"a budget of dollars needs to know what the model provider %s costs", c.Name).
				WithHint("say its prices in the file of gateway.providers, or limit requests or tokens")
		}
		if c.Credential != "" {
			if p.credentials, err = g.credentialsOf(c); err != nil {
				return nil, nil, err
			}
			credentials = append(credentials, c.Credential)
		}
		all = append(all, p)
	}
	return all, credentials, nil
}

func (g *Gateway) credentialsOf(p *model.Provider) (*credential.Set, error) {
	chosen, err := credential.Choose(g.o.Credentials, p.Credential)
	if err != nil {
		return nil, err
	}
	set, err := credential.NewSet(g.values, chosen...)
	if err != nil {
		return nil, err
	}
	for _, e := range p.Endpoints {
		if r := p.Request(e); !set.Covers(r) {
			return nil,
				cove.Errorf(cove.InvalidArgument, "the credential %s is not bound to %s %s, where the model provider %s is asked",
					p.Credential, r.Method, p.URL(e), p.Name).
					WithHint("bind it there (to, in its description), or leave the endpoint out")
		}
	}
	return set, nil
}

// Models returns the sandbox's use of models, by provider.
func (w *Way) Models() []model.ProviderUsage { return w.ledger.Used() }

// modelEnv returns variables that lead programs to the sandbox's models: base URLs, and keys where there is no
// placeholder, since programs do not start without one.
func (w *Way) modelEnv() map[string]string {
	const base = "http://" + policy.GatewayService
	env := map[string]string{}
	for _, p := range w.providers {
		if p.Has(model.Messages) {
			env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"] = base+strings.TrimSuffix(endpointPath, "/v1/"), noKey
		}
		if p.Has(model.Chat) || p.Has(model.Responses) || p.Has(model.Embeddings) {
			env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"] = base+strings.TrimSuffix(endpointPath, "/"), noKey
		}
	}
	return env
}

// noKey is the key for programs where the gateway has none to replace.
const noKey = "set-by-the-gateway"

// call is a request to a model.
type call struct {
	provider *model.Provider
	endpoint model.Endpoint
	limited  bool // only the provider's permitted models: the gateway makes the request, not the sandbox
}

// callOf reports whether a request is for a model, of a given provider or of any known one.
func (w *Way) callOf(r policy.Request, of *model.Provider) (call, bool) {
	if of != nil {
		e, ok := of.Find(r)
		return call{of, e, true}, ok && e.Counted()
	}
	all := w.gateway.o.Providers
	for i := range all {
		if e, ok := all[i].Find(r); ok {
			return call{provider: &all[i], endpoint: e}, e.Counted()
		}
	}
	return call{}, false
}

// counting is the stage that counts the use of models, and refuses requests beyond the budget.
func (w *Way) counting(of *model.Provider) func(policy.Request, *http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		if h == nil { // passed through, unreadable
			return leg{}, nil
		}
		c, ok := w.callOf(r, of)
		if !ok {
			return leg{}, nil
		}
		u, err := w.begin(h, c)
		if err != nil {
			return leg{}, err
		}
		return leg{response: u.read, end: func(error) { u.end() }}, nil
	}
}

// use is one request to a model and its usage.
type use struct {
	call     *model.Call
	question *model.Question // nil: no body
	meter    *model.Meter    // set when a successful answer has come
	answered bool
	refused  atomic.Bool // refused while its body was read
}

// maxHeld is the largest body, in bytes, that is judged before any of it is sent. Of a larger, refused body a part may
// be sent, but never all.
const maxHeld = 64 << 10

// begin counts a request to a model, unless the budget is used up.
func (w *Way) begin(h *http.Request, c call) (*use, error) {
	refuse := func(r *model.Refusal) error {
		return proxy.At(decision.StageBudget, answerTo(c.endpoint.Kind(), r))
	}
	u := &use{}
	judged := c.limited && len(c.provider.Models) > 0 || w.ledger.Limits()
	if coding := h.Header.Get("Content-Encoding"); judged && coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, refuse(&model.Refusal{Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error",
			Message: "the gateway reads requests to models, which must not be compressed"})
	}
	if w.ledger.LimitsCost() && len(c.provider.Prices) == 0 {
		return nil, refuse(&model.Refusal{Status: http.StatusForbidden, Type: "permission_error",
			Message: "the budget of this sandbox is in dollars, and what " + c.provider.Name + " costs is not known"})
	}
	if h.Body != nil {
		u.question = model.NewQuestion(h.Body, func(a model.Asked) error {
			if r := w.objection(c, a); r != nil {
				u.refused.Store(true)
				return refuse(r)
			}
			return nil
		})
		h.Body = u.question
		if judged && h.ContentLength > 0 && h.ContentLength <= maxHeld {
			if err := u.question.Hold(h.ContentLength); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if u.call, err = w.ledger.Begin(h.Context(), c.provider, h.ContentLength); err != nil {
		if r, ok := model.RefusalOf(err); ok {
			err = refuse(r)
		}
		return nil, err
	}
	h.Header.Set("Accept-Encoding", "identity") // the usage must be readable
	return u, nil
}

// objection returns the refusal of a request, as far as its fields are known.
func (w *Way) objection(c call, a model.Asked) *model.Refusal {
	p := c.provider
	switch {
	case a.Background && w.ledger.Limits():
		return &model.Refusal{Status: http.StatusBadRequest, Type: "invalid_request_error",
			Message: "with a budget, nothing is answered in the background, where it could not be counted"}
	case !c.limited || len(p.Models) == 0:
	case a.Malformed:
		return &model.Refusal{Status: http.StatusBadRequest, Type: "invalid_request_error",
			Message: "the request is not JSON"}
	case (a.Model != "" || a.Whole) && !p.Allows(a.Model):
		return &model.Refusal{Status: http.StatusForbidden, Type: "permission_error",
			Message: fmt.Sprintf("the model %.80q is none of the provider %s's that may be used: %s", a.Model, p.Name,
				strings.Join(p.Models, ", "))}
	}
	return nil
}

// read meters the answer as it passes.
func (u *use) read(h *http.Response) error {
	u.answered = true
	if h.StatusCode/100 == 2 {
		u.meter = model.NewMeter(h.Header.Get("Content-Type"))
		h.Body = &metered{h.Body, u.meter}
	}
	return nil
}

type metered struct {
	io.ReadCloser
	meter *model.Meter
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.meter.Write(p[:n])
	return n, err
}

// end records the usage. A request without an answer has used its input.
func (u *use) end() {
	var asked model.Asked
	var size int64
	if u.question != nil {
		asked, size = u.question.Asked()
	}
	switch {
	case u.refused.Load():
		u.call.End("", model.Usage{})
	case u.meter != nil:
		u.call.End(cmp.Or(u.meter.Model(), asked.Model), u.meter.Usage(size))
	case !u.answered && asked.Whole && size > 0:
		u.call.End(asked.Model, model.NewMeter("").Usage(size))
	default:
		u.call.End(asked.Model, model.Usage{})
	}
}
