// Package model owns Cove's knowledge of providers of language models: their endpoints, the usage that their answers
// state, and the remaining use of a sandbox (its budget). It decides and parses; it sends nothing.
package model

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/prices"
)

// Provider is one account at one provider of models.
type Provider struct {
	Name       string
	Kind       Kind
	Base       *url.URL // prefix of the endpoints: "https://api.example.com/v1"
	Endpoints  []Endpoint
	Credential string            // name of the credential for its requests; empty: none
	Headers    map[string]string // set on requests that have none, such as Anthropic-Version
	Models     []string          // patterns, * matches anything; empty: every model
	Prices     []prices.Price    // the first that matches counts; those that come with Cove are last
	Region     string            // of Bedrock and Vertex AI
	Project    string            // of Vertex AI
	Known      bool              // built-in, apart from prices: also recognised by its own address

	host policy.Host // of Base
	port uint16
}

// Has reports whether p has an endpoint.
func (p *Provider) Has(e Endpoint) bool { return slices.Contains(p.Endpoints, e) }

// URL returns the URL of a target.
func (p *Provider) URL(t Target) *url.URL {
	u := *p.Base
	raw := p.path(t)
	u.Path, u.RawPath = raw, raw
	if decoded, err := url.PathUnescape(raw); err == nil { // a canonical path decodes
		u.Path = decoded
	}
	return &u
}

// path returns the path of a target at the provider.
func (p *Provider) path(t Target) string {
	s := schemeOf(p.Kind)
	path, _ := s.path(t.Endpoint)
	return p.below(t.Version) + strings.Replace(path, modelPart, t.raw, 1)
}

// below returns the beginning of the provider's paths of a version.
func (p *Provider) below(version string) string {
	s := schemeOf(p.Kind)
	begin := strings.TrimSuffix(p.Base.Path, "/") + "/"
	if s.versioned {
		begin += version + "/"
	}
	if s.placed {
		begin += p.place() + "/"
	}
	return begin
}

// place returns the part of a path that names the project and the region.
func (p *Provider) place() string { return "projects/" + p.Project + "/locations/" + p.Region }

// versions returns the versions in the provider's own paths, at least one.
func (p *Provider) versions() []string {
	if s := schemeOf(p.Kind); s.versioned {
		return s.versions
	}
	return []string{""}
}

// Allows reports whether a model is permitted.
func (p *Provider) Allows(model string) bool {
	return len(p.Models) == 0 || slices.ContainsFunc(p.Models, func(pattern string) bool {
		return matches(pattern, model)
	})
}

// Price returns the price of a use of a model, if it is known.
func (p *Provider) Price(model string, u Usage) (prices.Price, bool) {
	i := slices.IndexFunc(p.Prices, func(price prices.Price) bool {
		return (price.Source == "" && matches(price.Models, model) || price.Source != "" && price.Names(model)) &&
			(price.Above == 0 || u.Input+u.CacheRead+u.CacheWrite > price.Above)
	})
	if i < 0 || model == "" {
		return prices.Price{}, false
	}
	return p.Prices[i], true
}

// cost returns what a use costs in dollars: by the configuration, as the provider says, or by the prices that come with
// Cove. Where none of these is known it is nothing, or the most that any model costs where dollars are limited.
func (p *Provider) cost(model string, u Usage, limited bool) (dollars float64) {
	price, known := p.Price(model, u)
	switch {
	case known && (price.Source == "" || u.Cost == 0):
		return of(price, u)
	case known || u.Cost > 0 || !limited:
		return u.Cost
	}
	for _, price := range p.Prices {
		dollars = max(dollars, of(price, u))
	}
	return dollars
}

func of(p prices.Price, u Usage) float64 {
	const million = 1e6
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output + float64(u.CacheRead)*p.CacheRead +
		float64(u.CacheWrite)*p.CacheWrite) / million
}

// Judge refuses a budget in dollars against which the use of a model cannot be counted, since its price is not known.
// Without a model the provider must have prices. Errors: InvalidArgument.
func (p *Provider) Judge(b cove.Budget, model string) error {
	if _, known := p.Price(model, Usage{}); b.Cost == 0 || known || model == "" && len(p.Prices) > 0 {
		return nil
	}
	what := "the model provider " + p.Name
	if model != "" {
		what = fmt.Sprintf("the model %.80q of %s", model, p.Name)
	}
	return cove.Errorf(cove.InvalidArgument, "a budget in dollars cannot be judged: what %s costs is not known", what).
		WithHint("state it in the file of gateway.providers (name: %s, prices: …), or limit requests or tokens; "+
			"\"cove models prices\" has the prices that are known", p.Name)
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

// Find returns what a request to the provider itself asks of it, if it is for an endpoint of its kind.
func (p *Provider) Find(r policy.Request) (Target, bool) {
	if p.host != r.Host || p.port != r.Port {
		return Target{}, false
	}
	s := schemeOf(p.Kind)
	path, below := strings.CutPrefix(r.Path, strings.TrimSuffix(p.Base.Path, "/")+"/")
	t, ok := s.match(path, s.versioned)
	if !below || !ok || r.Method != t.Endpoint.Method() || s.placed && t.place != p.place() {
		return Target{}, false
	}
	return t, true
}

// Serves returns the target of a request at the gateway's address, by its path below that, if the provider has it. The
// project and region of the path are not looked at: those of the provider count.
func (p *Provider) Serves(path, method string) (Target, bool) {
	t, ok := schemeOf(p.Kind).match(path, true)
	return t, ok && t.Endpoint.Method() == method && p.Has(t.Endpoint) && !slices.Contains(notServed, t.Endpoint)
}

// Host returns where the provider is asked.
func (p *Provider) Host() (policy.Host, uint16) { return p.host, p.port }

// Requests returns requests to an endpoint in the form that policies and credentials judge.
func (p *Provider) Requests(e Endpoint) (all []policy.Request) {
	for _, version := range p.versions() {
		all = append(all, policy.Request{Layer: policy.LayerHTTP, Host: p.host, Port: p.port, Method: e.Method(),
			Path: p.path(Target{Endpoint: e, Version: version, raw: "any"})})
	}
	return all
}

// Policy returns a policy that allows only the provider's endpoints. Errors: InvalidArgument when no policy could.
func (p *Provider) Policy(m policy.Machine) (*policy.Policy, error) {
	d := &policy.Document{Source: "provider " + p.Name, Mode: cove.NetworkLimited}
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		paths := p.patterns(method)
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

// patterns returns the paths of the endpoints with a method, as policies write them: a segment with a model in it is *.
func (p *Provider) patterns(method string) (all []string) {
	for _, e := range p.Endpoints {
		path, ok := schemeOf(p.Kind).path(e)
		if !ok || e.Method() != method {
			continue
		}
		segments := strings.Split(path, "/")
		wild := slices.IndexFunc(segments, func(s string) bool { return strings.Contains(s, modelPart) })
		if wild >= 0 {
			segments[wild] = "*"
		}
		for _, version := range p.versions() {
			all = append(all, p.below(version)+strings.Join(segments, "/"))
			if p.Kind == Bedrock { // a model may be an ARN, which has an encoded slash
				all = append(all, p.below(version)+strings.Replace(strings.Join(segments, "/"), "*", "*/*", 1))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Private reports whether the provider is this machine, or a private address: who asks it needs no name for that, so
// no other server can be in its place, and nothing leaves the network that the address is of.
func (p *Provider) Private() bool {
	a, isAddr := p.host.Addr()
	return p.host.Name() == policy.HostService || isAddr && a.IsPrivate()
}
