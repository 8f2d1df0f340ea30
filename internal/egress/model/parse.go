package model

import (
	"cmp"
	_ "embed"
	"errors"
	"net"
	"net/textproto"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

//go:embed providers.yaml
var known []byte

// Known returns Cove's built-in providers.
func Known() ([]Provider, error) { return Parse("", nil) }

// Parse parses providers in YAML, strictly, and adds the built-in ones, from which those of the same names inherit.
//
//	providers:
//	  - name: local                          # for --model-provider
//	    kind: openai                         # its API: openai or anthropic
//	    base_url: http://localhost:11434/v1  # prefix of the endpoints
//	    endpoints: [chat/completions, models]
//	    credential: local                    # set on its requests, see credential.Parse
//	    headers: {X-Team: red}               # set where a request has none
//	    models: ["small-*"]                  # permitted models; default all
//	    prices:                              # dollars for a million tokens
//	      - {models: "small-*", input: 1, output: 5, cache_read: 0.1, cache_write: 1.25}
//
// Errors: InvalidArgument with source.
func Parse(source string, data []byte) ([]Provider, error) {
	own, err := read(source, data)
	if err != nil {
		return nil, err
	}
	builtIn, err := read("providers.yaml", known)
	if err != nil {
		return nil, err
	}
	var all []Provider
	for _, e := range append(own, builtIn...) {
		if slices.ContainsFunc(all, func(p Provider) bool { return p.Name == e.Name }) {
			continue // stated already
		}
		i := slices.IndexFunc(builtIn, func(b entry) bool { return b.Name == e.Name })
		if i >= 0 {
			e = e.over(builtIn[i])
		}
		p, err := e.provider()
		if err != nil {
			return nil, in(source, e.Name, err)
		}
		if i >= 0 {
			usual := builtIn[i]
			usual.Prices = e.Prices
			p.Known = reflect.DeepEqual(e, usual)
		}
		all = append(all, p)
	}
	return all, nil
}

type entry struct {
	Name       string            `yaml:"name"`
	Kind       Kind              `yaml:"kind"`
	Base       string            `yaml:"base_url"`
	Endpoints  []Endpoint        `yaml:"endpoints"`
	Credential string            `yaml:"credential"`
	Headers    map[string]string `yaml:"headers"`
	Models     []string          `yaml:"models"`
	Prices     []Price           `yaml:"prices"`
}

func read(source string, data []byte) ([]entry, error) {
	var doc struct {
		Providers []entry `yaml:"providers"`
	}
	if err := policy.Decode(source, data, &doc); cove.ErrorCode(err) == cove.InvalidArgument {
		return nil, err
	} else if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %s", source, strings.TrimPrefix(err.Error(), "yaml: ")).
			WithHint("a provider has name, kind, base_url, endpoints, credential, headers, models and prices")
	}
	seen := map[string]bool{}
	for _, e := range doc.Providers {
		if seen[e.Name] {
			return nil, in(source, e.Name, cove.Errorf(cove.InvalidArgument, "it is there twice"))
		}
		seen[e.Name] = true
	}
	return doc.Providers, nil
}

func in(source, name string, err error) error {
	e := cove.Errorf(cove.InvalidArgument, "%s: the provider %.80q: %s", source, name, bare(err))
	e.Hint = cove.ErrorHint(err)
	return e
}

func bare(err error) string {
	if e, ok := errors.AsType[*cove.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// over fills in keys from other. An e with its own address inherits no credential, which is for other's address.
func (e entry) over(other entry) entry {
	if e.Base == "" {
		e.Base = other.Base
		e.Credential = cmp.Or(e.Credential, other.Credential)
	}
	e.Kind = cmp.Or(e.Kind, other.Kind)
	if e.Endpoints == nil {
		e.Endpoints = other.Endpoints
	}
	if e.Headers == nil {
		e.Headers = other.Headers
	}
	return e
}

var providerName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func (e entry) provider() (Provider, error) {
	p := Provider{Name: e.Name, Kind: e.Kind, Endpoints: e.Endpoints, Credential: e.Credential, Models: e.Models,
		Headers: map[string]string{}}
	bad := func(format string, args ...any) (Provider, error) {
		return p, cove.Errorf(cove.InvalidArgument, format, args...)
	}
	if !providerName.MatchString(p.Name) {
		return bad("a name has small letters, digits, hyphens, dots and underscores")
	}
	if endpointsOf[p.Kind] == nil {
		return bad("kind is openai or anthropic")
	}
	if p.Endpoints == nil {
		p.Endpoints = endpointsOf[p.Kind]
	}
	for _, one := range p.Endpoints {
		if !slices.Contains(Endpoints, one) {
			return bad("there is no endpoint %.80q; there are %q", one, Endpoints)
		}
	}
	var err error
	if p.Base, err = parseBase(e.Base); err != nil {
		return p, err
	}
	usual := map[string]uint16{"http": 80, "https": 443}[p.Base.Scheme]
	if p.host, p.port, err = policy.ParseAuthority(p.Base.Host, usual); err != nil {
		return p, err
	}
	if p.Credential != "" && p.Base.Scheme != "https" {
		return bad("credentials are never set without TLS, and base_url is not https")
	}
	for name, value := range e.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return bad("%.80q is no header", name)
		}
		p.Headers[textproto.CanonicalMIMEHeaderKey(name)] = value
	}
	for _, one := range e.Prices {
		for _, dollars := range []float64{one.Input, one.Output, one.CacheRead, one.CacheWrite} {
			if !(dollars >= 0 && dollars < 1e6) {
				return bad("a price is in dollars for a million tokens, and %v is none", dollars)
			}
		}
		one.Models = cmp.Or(one.Models, "*")
		p.Prices = append(p.Prices, one)
	}
	return p, nil
}

// parseBase parses a base URL. A service of this machine gets the name that policies use.
func parseBase(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || u.RawPath != "" || strings.Contains(u.Path, "*") {
		return nil, cove.Errorf(cove.InvalidArgument, "base_url is no https or http URL").WithHint(
			"write it like https://api.example.com/v1, without user, query and special characters")
	}
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		u.Host = net.JoinHostPort(policy.HostService, port)
	}
	return u, nil
}

// Choose returns providers by name. Errors: NotFound.
func Choose(all []Provider, names ...string) ([]*Provider, error) {
	var chosen []*Provider
	for _, name := range names {
		i := slices.IndexFunc(all, func(p Provider) bool { return p.Name == name })
		if i < 0 {
			var there []string
			for _, p := range all {
				there = append(there, p.Name)
			}
			slices.Sort(there)
			return nil, cove.Errorf(cove.NotFound, "there is no model provider %.80q", name).WithHint("there are %s",
				strings.Join(there, ", "))
		}
		if !slices.Contains(chosen, &all[i]) {
			chosen = append(chosen, &all[i])
		}
	}
	return chosen, nil
}
