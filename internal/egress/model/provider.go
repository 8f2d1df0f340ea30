// Package model owns Cove's knowledge of providers of language models: their endpoints, the usage that their answers
// state, and the remaining use of a sandbox (its budget). It decides and parses; it sends nothing.
package model

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Endpoint is one call of a provider's API, by its path below the base URL.
type Endpoint string

const (
	Messages    Endpoint = "messages"              // Anthropic's
	CountTokens Endpoint = "messages/count_tokens" // costs nothing
	Chat        Endpoint = "chat/completions"      // OpenAI's, and of many others
	Completions Endpoint = "completions"           // its predecessor
	Responses   Endpoint = "responses"
	Embeddings  Endpoint = "embeddings"
	Models      Endpoint = "models" // lists models
)

// Endpoints lists all endpoints.
var Endpoints = []Endpoint{Messages, CountTokens, Chat, Completions, Responses, Embeddings, Models}

// Method returns the HTTP method of the endpoint.
func (e Endpoint) Method() string {
	if e == Models {
		return http.MethodGet
	}
	return http.MethodPost
}

// Counted reports whether calls count as use.
func (e Endpoint) Counted() bool { return e != Models && e != CountTokens }

// Kind is the API of a provider: it determines the form of errors, and the default endpoints.
type Kind string

const (
	Anthropic Kind = "anthropic"
	OpenAI    Kind = "openai"
)

// Kind returns the API that the endpoint belongs to.
func (e Endpoint) Kind() Kind {
	if e == Messages || e == CountTokens {
		return Anthropic
	}
	return OpenAI
}

var endpointsOf = map[Kind][]Endpoint{
	Anthropic: {Messages, CountTokens, Models},
	OpenAI:    {Chat, Embeddings, Responses, Models},
}

// Provider is one account at one provider of models.
type Provider struct {
	Name       string
	Kind       Kind
	Base       *url.URL // prefix of the endpoints: "https://api.example.com/v1"
	Endpoints  []Endpoint
	Credential string            // name of the credential for its requests; empty: none
	Headers    map[string]string // set on requests that have none, such as Anthropic-Version
	Models     []string          // patterns, * matches anything; empty: every model
	Prices     []Price           // the first that matches counts
	Known      bool              // built-in, apart from prices: also recognised by its own address

	host policy.Host // of Base
	port uint16
}

// Price is in dollars for a million tokens.
type Price struct {
	Models     string  `yaml:"models"` // a pattern
	Input      float64 `yaml:"input"`
	Output     float64 `yaml:"output"`
	CacheRead  float64 `yaml:"cache_read"`
	CacheWrite float64 `yaml:"cache_write"`
}

// Has reports whether p has an endpoint.
func (p *Provider) Has(e Endpoint) bool { return slices.Contains(p.Endpoints, e) }

// URL returns the URL of an endpoint.
func (p *Provider) URL(e Endpoint) *url.URL {
	u := *p.Base
	u.Path = p.path(e)
	return &u
}

func (p *Provider) path(e Endpoint) string {
	return strings.TrimSuffix(p.Base.Path, "/") + "/" + string(e)
}

// Allows reports whether a model is permitted.
func (p *Provider) Allows(model string) bool {
	return len(p.Models) == 0 || slices.ContainsFunc(p.Models, func(pattern string) bool {
		return matches(pattern, model)
	})
}

// Cost returns the price of a use in dollars, if there are prices. A model without one costs as much as the dearest.
func (p *Provider) Cost(model string, u Usage) (dollars float64, known bool) {
	if len(p.Prices) == 0 {
		return 0, false
	}
	for _, price := range p.Prices {
		if matches(price.Models, model) {
			return price.of(u), true
		}
	}
	for _, price := range p.Prices {
		dollars = max(dollars, price.of(u))
	}
	return dollars, true
}

func (p Price) of(u Usage) float64 {
	const million = 1e6
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output + float64(u.CacheRead)*p.CacheRead +
		float64(u.CacheWrite)*p.CacheWrite) / million
}

// matches reports whether s matches pattern, in which * stands for any characters, including none.
func matches(pattern, s string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	s, found := strings.CutPrefix(s, first)
	for found {
		var part string
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(s, part)
		}
		_, s, found = strings.Cut(s, part)
	}
	return false
}

// Find returns the provider's endpoint that a request is for, if any.
func (p *Provider) Find(r policy.Request) (Endpoint, bool) {
	if p.host != r.Host || p.port != r.Port {
		return "", false
	}
	for _, e := range Endpoints {
		if r.Path == p.path(e) && r.Method == e.Method() {
			return e, true
		}
	}
	return "", false
}

// Request returns a request to an endpoint in the form that policies and credentials judge.
func (p *Provider) Request(e Endpoint) policy.Request {
	return policy.Request{Layer: policy.LayerHTTP, Host: p.host, Port: p.port, Method: e.Method(), Path: p.path(e)}
}

// Policy returns a policy that allows only the provider's endpoints. Errors: InvalidArgument when no policy could.
func (p *Provider) Policy(m policy.Machine) (*policy.Policy, error) {
	d := &policy.Document{Source: "provider " + p.Name, Mode: cove.NetworkLimited}
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		var paths []string
		for _, e := range p.Endpoints {
			if e.Method() == method {
				paths = append(paths, p.path(e))
			}
		}
		if len(paths) == 0 {
			continue
		}
		rule, err := policy.Exactly(d.Source, p.host, p.port, method, paths...)
		if err != nil {
			return nil, err
		}
		d.Rules = append(d.Rules, rule)
	}
	return policy.Compile(m, d)
}
