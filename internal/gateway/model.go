package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
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

// models are the models that one sandbox uses: of its providers, and of the known providers that it asks itself.
type models struct {
	providers []*provider
	known     []model.Provider
	ledger    *model.Ledger
	account   *account       // pays for requests to the providers, beside the ledger; nil: none does
	refusals  model.Refusals // of credentials
}

type provider struct {
	*model.Provider
	policy      *policy.Policy
	credentials *credential.Set // nil: none needed
	pipeline    []stage
}

// newModels returns the models for a sandbox with the named providers, and the names of their credentials. Each
// credential is for requests to its provider alone.
func newModels(o *Options, d Described, who cove.Principal, names []string, b cove.Budget) (m *models,
	credentials []string, err error) {
	b = b.Over(o.Budget)
	m = &models{known: d.Providers, ledger: model.NewLedger(b), account: o.Accounts.of(who)}
	chosen, err := model.Choose(d.Providers, names...)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range chosen {
		p := &provider{Provider: c}
		if p.policy, err = c.Policy(o.Machine); err != nil {
			return nil, nil, fmt.Errorf("the model provider %s: %w", c.Name, err)
		}
		if err := cmp.Or(c.Judge(b, ""), c.Judge(m.account.budget(), "")); err != nil {
			return nil, nil, err
		}
		if c.Credential != "" {
			if p.credentials, err = credentialsOf(c, p.policy, o.Values, d); err != nil {
				return nil, nil, err
			}
			credentials = append(credentials, c.Credential)
		}
		m.providers = append(m.providers, p)
	}
	return m, credentials, nil
}

// credentialsOf returns the credential of a provider. One that is bound to nothing is bound to the provider's
// endpoints, in the form of its kind.
func credentialsOf(p *model.Provider, allowed *policy.Policy, values *credential.Values, d Described) (*credential.Set,
	error) {
	chosen, err := credential.Choose(d.Credentials, p.Credential)
	if err != nil {
		return nil, err
	}
	if c := &chosen[0]; c.Unbound() {
		host, port := p.Host()
		*c = c.BoundTo("provider "+p.Name, formOf(p), allowed, host, port, p.Base.Scheme == "http" && p.Private())
	}
	set, err := credential.NewSet(values, chosen...)
	if err != nil {
		return nil, err
	}
	if p.Base.Scheme == "http" && !chosen[0].Plain() {
		return nil, cove.Errorf(cove.InvalidArgument, "the credential %s is bound by its own description, which wants TLS, "+
			"and base_url of the model provider %s is not https", p.Credential, p.Name).
			WithHint("leave to out of its description: it is bound to the endpoints of the providers that name it then")
	}
	for _, e := range p.Endpoints {
		for _, r := range p.Requests(e) {
			if !set.Covers(r) {
				return nil, cove.Errorf(cove.InvalidArgument,
					"the credential %s is not bound to %s %s://%s%s, where the model provider %s is asked",
					p.Credential, r.Method, p.Base.Scheme, p.Base.Host, r.Path, p.Name).
					WithHint("bind it there (to, in its description), or leave to out, or leave the endpoint out")
			}
		}
	}
	return set, nil
}

// formOf returns the form in which the providers of a kind take credentials.
func formOf(p *model.Provider) credential.Form {
	switch p.Kind {
	case model.Anthropic:
		return credential.Header("X-Api-Key")
	case model.Gemini:
		return credential.Header("X-Goog-Api-Key", "key")
	case model.Bedrock:
		return credential.Signature(p.Region, "bedrock")
	}
	return credential.Bearer()
}

// Models returns the sandbox's use of models, by provider.
func (m *models) Models() []model.ProviderUsage { return m.ledger.Used() }

// env returns the variables that lead programs to the sandbox's models, and keys where it has no placeholder: programs
// need one to start. Claude Code asks the first provider that it can.
func (m *models) env() map[string]string {
	const base = "http://" + policy.GatewayService + gatewayPath
	env := map[string]string{}
	claude := ""
	for _, p := range m.providers {
		if p.Has(model.Messages) {
			claude = cmp.Or(claude, "none")
			env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"] = base, noKey
		}
		if p.Has(model.Chat) || p.Has(model.Responses) || p.Has(model.Embeddings) {
			env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"] = base+"/v1", noKey
		}
		switch p.Kind {
		case model.Gemini:
			env["GOOGLE_GEMINI_BASE_URL"], env["GEMINI_API_KEY"] = base, noKey
		case model.Bedrock:
			claude = cmp.Or(claude, "CLAUDE_CODE_USE_BEDROCK")
			maps.Copy(env, map[string]string{"AWS_REGION": p.Region, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": base,
				"ANTHROPIC_BEDROCK_BASE_URL": base, "AWS_ACCESS_KEY_ID": noKey, "AWS_SECRET_ACCESS_KEY": noKey,
				"AWS_EC2_METADATA_DISABLED": "true"})
		case model.Vertex:
			claude = cmp.Or(claude, "CLAUDE_CODE_USE_VERTEX")
			maps.Copy(env, map[string]string{"CLOUD_ML_REGION": p.Region, "ANTHROPIC_VERTEX_PROJECT_ID": p.Project,
				"ANTHROPIC_VERTEX_BASE_URL": base + "/v1", "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
				"GOOGLE_CLOUD_PROJECT": p.Project, "GOOGLE_CLOUD_LOCATION": p.Region, "GOOGLE_VERTEX_BASE_URL": base,
				"GOOGLE_API_KEY": noKey})
		}
	}
	if strings.HasPrefix(claude, "CLAUDE") {
		env[claude] = "1"
	}
	return env
}

// Prefixes of the gateway's endpoints at policy.GatewayService: of all of them, and of those without a version of their
// own.
const (
	gatewayPath  = "/proxy"
	endpointPath = gatewayPath + "/v1/"
)

const noKey = "set-by-the-gateway" // the key for programs where the gateway has none to replace

type call struct {
	provider *model.Provider
	model.Target
	limited bool // only the provider's permitted models: the gateway makes the request, not the sandbox
}

// endpointOf reports whether a request is for an endpoint of a provider, of a given one or of any known one. It may be
// one that is not counted, such as a list of models.
func (m *models) endpointOf(r policy.Request, of *model.Provider) (call, bool) {
	if of != nil {
		t, ok := of.Find(r)
		return call{of, t, true}, ok
	}
	for i := range m.known {
		if t, ok := m.known[i].Find(r); ok {
			return call{provider: &m.known[i], Target: t}, true
		}
	}
	return call{}, false
}

// counting is the stage that counts the use of models, and refuses requests beyond the budget.
func (m *models) counting(of *model.Provider) func(policy.Request, *http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		if h == nil { // passed through, unreadable
			return leg{}, nil
		}
		c, ok := m.endpointOf(r, of)
		if ok && c.limited {
			if err := m.account.admits(); err != nil {
				return leg{}, c.refuse(err)
			}
		}
		if !ok || !c.Endpoint.Counted() {
			return leg{}, nil
		}
		u, err := m.begin(h, c)
		if err != nil {
			return leg{}, err
		}
		return leg{response: u.read, end: func(error) { u.end() }}, nil
	}
}

// watching is the stage that sets credentials, where it is known what becomes of those of models. A model's request
// without a value is answered in the provider's form, in which clients do not try again.
func (m *models) watching(of *model.Provider, set func(policy.Request, *http.Request) (leg, error)) func(
	policy.Request, *http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		l, err := set(r, h)
		c, ok := m.endpointOf(r, of)
		if !ok || h == nil {
			return l, err
		}
		counted := c.Endpoint.Counted()
		if of := (*bodyError)(nil); errors.As(err, &of) || err != nil && !counted { // no fault of a model's credential
			return l, err
		}
		if err != nil {
			m.refusals.Note(c.provider.Name, err)
			return leg{}, answerTo(c.Endpoint.Kind(), model.Refuse(http.StatusUnauthorized, "%s", err))
		}
		inner, end, answered := l.response, l.end, false
		l.response = func(h *http.Response) error {
			answered = true
			switch {
			case counted && model.RefusedKey(h.StatusCode, h.Header):
				m.refusals.Note(c.provider.Name, cove.Errorf(cove.Unavailable,
					"%s has refused the credential of its models (%d)", r.Host, h.StatusCode).
					WithHint("see that the key is right and has not expired: \"cove credentials check\" says where it is from"))
			case counted && h.StatusCode/100 == 2:
				m.refusals.Note(c.provider.Name, nil)
			case h.StatusCode >= http.StatusBadRequest:
				m.refusals.Fail(c.provider.Name, cove.Errorf(cove.Unavailable,
					"%s has answered the last request for a model with %d", r.Host, h.StatusCode), false)
			default:
				m.refusals.Fail(c.provider.Name, nil, false)
			}
			if inner == nil {
				return nil
			}
			return inner(h)
		}
		l.end = func(failure error) {
			if !answered && failure != nil && !errors.Is(failure, proxy.ErrUnfinished) {
				m.refusals.Fail(c.provider.Name, unreached(r, failure), true)
			}
			if end != nil {
				end(failure)
			}
		}
		return l, nil
	}
}

// missing is the stage that leaves upstreams alone, where it is known which requests for models that refuses. An
// upstream that answers for another, which fails, is reached.
func (m *models) missing(of *model.Provider, admit func(policy.Request, *http.Request) (leg, error)) func(
	policy.Request, *http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		l, err := admit(r, h)
		if err == nil {
			return l, nil
		}
		if c, ok := m.endpointOf(r, of); ok && h != nil {
			m.refusals.Fail(c.provider.Name, unreached(r, err), !errors.Is(err, errGateway))
		}
		return l, err
	}
}

// unreached says why a request for a model has no answer.
func unreached(r policy.Request, why error) error {
	return cove.Errorf(cove.Unavailable, "%s does not answer requests for models: %s", r.Host.Authority(r.Port),
		cove.ErrorMessage(why)).
		WithHint("see that the provider of the models is up, and that its address is right; " +
			"\"cove network log\" has the requests")
}

type use struct {
	provider *model.Provider
	target   model.Target
	call     *model.Call
	spending *spending       // beside call
	question *model.Question // nil: no body
	meter    *model.Meter    // set when a successful answer has come
	answered bool
	refused  atomic.Bool // refused while its body was read
}

// maxHeld bounds the bytes of a body that are read before it is sent. Of a larger one a part may be sent and refused.
const maxHeld = 64 << 10

func (m *models) begin(h *http.Request, c call) (*use, error) {
	u := &use{provider: c.provider, target: c.Target}
	if c.Model != "" {
		if r := m.objection(c, model.Asked{Model: c.Model, Whole: true}); r != nil {
			return nil, c.refuse(r)
		}
	}
	judged := c.limited && len(c.provider.Models) > 0 || m.limits(c)
	if coding := h.Header.Get("Content-Encoding"); judged && coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, c.refuse(model.Refuse(http.StatusUnsupportedMediaType,
			"the gateway reads requests to models, which must not be compressed"))
	}
	if h.Body != nil {
		u.question = model.NewQuestion(h.Body, func(a model.Asked) error {
			if c.Model != "" { // what the body says is not looked at
				return nil
			}
			if r := m.objection(c, a); r != nil {
				u.refused.Store(true)
				return c.refuse(r)
			}
			return nil
		})
		h.Body = u.question
		if judged && h.ContentLength > 0 {
			if err := u.question.Hold(h.ContentLength, maxHeld); err != nil {
				return nil, err
			}
		}
	}
	of := c.Model
	if u.question != nil {
		asked, _ := u.question.Asked() // as far as it has been read
		of = cmp.Or(of, asked.Model)
	}
	var err error
	if u.call, err = m.ledger.Begin(h.Context(), c.provider, c.Endpoint, of, h.ContentLength); err == nil &&
		c.limited {
		if u.spending, err = m.account.begin(h.Context(), c.provider, c.Endpoint, of, h.ContentLength); err != nil {
			u.call.End("", model.Usage{})
		}
	}
	if err != nil {
		return nil, c.refuse(err)
	}
	h.Header.Set("Accept-Encoding", "identity") // the usage must be readable
	return u, nil
}

// limits reports whether tokens or dollars of a request are limited, for which the answer's usage is needed.
func (m *models) limits(c call) bool {
	b := m.account.budget()
	return m.ledger.Limits() || c.limited && (b.Tokens > 0 || b.Cost > 0)
}

// refuse returns a refusal, or a budget that is used up, as the answer of the endpoint; another error as it is.
func (c call) refuse(err error) error {
	if r, ok := model.RefusalOf(err); ok {
		return proxy.At(decision.StageBudget, answerTo(c.Endpoint.Kind(), r))
	}
	return err
}

// answerTo returns a refusal in the form for clients of one kind.
func answerTo(k model.Kind, r *model.Refusal) *proxy.Answer {
	return &proxy.Answer{Status: r.Status, Header: r.Header(k), Body: r.Body(k), Reason: r.Message}
}

func (m *models) objection(c call, a model.Asked) *model.Refusal {
	p := c.provider
	switch {
	case a.Background && m.limits(c):
		return model.Refuse(http.StatusBadRequest,
			"with a budget, nothing is answered in the background, where it could not be counted")
	case (!c.limited || len(p.Models) == 0) && !m.limitsCost(c):
	case a.Malformed:
		return model.Refuse(http.StatusBadRequest, "the request is not JSON")
	case a.Model == "" && !a.Whole:
	case c.limited && !p.Allows(a.Model):
		return model.Refuse(http.StatusForbidden, "the model %.80q is none of the provider %s's that may be used: %s",
			a.Model, p.Name, strings.Join(p.Models, ", "))
	case m.limitsCost(c):
		if err := p.Judge(cove.Budget{Cost: 1}, a.Model); err != nil {
			m.refusals.Note(p.Name, err) // a run ends with it
			r := model.Refuse(http.StatusForbidden, "%s", err)
			r.Detail = map[string]string{"error": "price_unknown", "provider": p.Name, "model": a.Model}
			return r
		}
	}
	return nil
}

// limitsCost reports whether dollars of a request are limited, for which the price of its model is needed.
func (m *models) limitsCost(c call) bool {
	return m.ledger.LimitsCost() || c.limited && m.account.budget().Cost > 0
}

// read meters the answer as it passes.
func (u *use) read(h *http.Response) error {
	u.answered = true
	if h.StatusCode/100 == 2 {
		u.meter = model.NewMeter(u.target.Endpoint, h.Header)
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
	end := func(of string, used model.Usage) {
		u.call.End(of, used)
		u.spending.end(of, used)
	}
	switch {
	case u.refused.Load():
		end("", model.Usage{})
	case u.meter != nil:
		of := cmp.Or(u.target.Model, u.meter.Model(), asked.Model)
		if _, known := u.provider.Price(of, model.Usage{}); !known {
			of = cmp.Or(asked.Model, of)
		}
		end(of, u.meter.Usage(size))
	case !u.answered && asked.Whole && size > 0:
		of, used := cmp.Or(u.target.Model, asked.Model), model.NewMeter(u.target.Endpoint, nil).Usage(size)
		u.call.End(of, used)
		u.spending.endUnanswered(of, used)
	default:
		end(cmp.Or(u.target.Model, asked.Model), model.Usage{})
	}
}
