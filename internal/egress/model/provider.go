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
	Region     string            // of Bedrock and Vertex AI
	Project    string            // of Vertex AI
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
