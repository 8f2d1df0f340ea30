// Package model owns what Cove knows of providers of language models: who they
// are, which of their endpoints there are, what an answer says was used, and
// what a sandbox may still use (its budget). It decides and reads; it sends
// nothing.
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
	Completions Endpoint = "completions"           // its forerunner
	Responses   Endpoint = "responses"
	Embeddings  Endpoint = "embeddings"
	Models      Endpoint = "models" // the list of them
)

// Endpoints are all of them.
var Endpoints = []Endpoint{Messages, CountTokens, Chat, Completions, Responses, Embeddings, Models}

// Method is how it is called.
func (e Endpoint) Method() string {
	if e == Models {
		return http.MethodGet
	}
	return http.MethodPost
}

// Counted reports whether calls use something.
func (e Endpoint) Counted() bool { return e != Models && e != CountTokens }

// Kind is whose API a provider speaks: how its errors look, and which endpoints
// it has if nothing is said.
type Kind string

const (
	Anthropic Kind = "anthropic"
	OpenAI    Kind = "openai"
)

// Kind is whose call it is.
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
	Base       *url.URL // "https://api.example.com/v1", what endpoints are below
	Endpoints  []Endpoint
	Credential string            // the name of what is set on its requests; empty: nothing
	Headers    map[string]string // set on requests that have none, such as Anthropic-Version
	Models     []string          // patterns, * is anything; empty: every model
	Prices     []Price           // the first that matches counts
	Known      bool              // as Cove knows it, but for prices: it is what it is by its own address, too

	host policy.Host // of Base
	port uint16
}

// Price is in dollars for a million tokens.
type Price struct {
	Models     string // a pattern
	Input      float64
	Output     float64
	CacheRead  float64
	CacheWrite float64
}

// Has reports whether p has an endpoint.
func (p *Provider) Has(e Endpoint) bool { return slices.Contains(p.Endpoints, e) }

// URL is an endpoint's.
func (p *Provider) URL(e Endpoint) *url.URL {
	u := *p.Base
	u.Path = p.path(e)
	return &u
}

func (p *Provider) path(e Endpoint) string {
	return strings.TrimSuffix(p.Base.Path, "/") + "/" + string(e)
}

// Allows reports whether a model may be used.
func (p *Provider) Allows(model string) bool {
	return len(p.Models) == 0 || slices.ContainsFunc(p.Models, func(pattern string) bool { return matches(pattern, model) })
}

// Cost is what a use costs, in dollars, if there are prices. A model without
// one costs as much as the dearest.
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
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output + float64(u.CacheRead)*p.CacheRead + float64(u.CacheWrite)*p.CacheWrite) / million
}

// matches: * stands for any letters, also none.
func matches(pattern, s string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for {
		var part string
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
}

// Find says which endpoint of the provider's a request is for, if for any.
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

// Request is what an endpoint is asked, as policies and credentials judge it.
func (p *Provider) Request(e Endpoint) policy.Request {
	return policy.Request{Layer: policy.LayerHTTP, Host: p.host, Port: p.port, Method: e.Method(), Path: p.path(e)}
}

// Policy allows the provider's endpoints and nothing else. Errors:
// InvalidArgument when no policy could, as for the machine's own addresses.
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
