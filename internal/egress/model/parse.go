package model

import (
	"cmp"
	_ "embed"
	"errors"
	"net"
	"net/textproto"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/internal/prices"
)

//go:embed providers.yaml
var known []byte

// Known returns Cove's built-in providers.
func Known() ([]Provider, error) { return Parse("", nil) }

// Parse parses providers in YAML, strictly, and adds the built-in ones, from which those of the same names inherit.
//
//	providers:
//	  - name: local                          # for --model-provider
//	    kind: openai                         # its API: openai, anthropic, gemini, bedrock or vertex
//	    base_url: http://localhost:11434/v1  # prefix of the endpoints; the last three have one of their own
//	    region: us-east-1                    # of bedrock and vertex
//	    project: my-project                  # of vertex
//	    endpoints: [chat/completions, models]
//	    credential: local                    # set on its requests, see credential.Parse
//	    headers: {X-Team: red}               # set where a request has none
//	    models: ["small-*"]                  # permitted models; default all
//	    prices:                              # dollars for a million tokens, before those that come with Cove
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
		at := p.Base.String()
		if at == e.usualBase() {
			at = string(p.Kind)
		}
		p.Prices = append(p.Prices, prices.At(at)...) // another address may charge others
		all = append(all, p)
	}
	return all, nil
}

type entry struct {
	Name       string            `yaml:"name"`
	Kind       Kind              `yaml:"kind"`
	Base       string            `yaml:"base_url"`
	Region     string            `yaml:"region"`
	Project    string            `yaml:"project"`
	Endpoints  []Endpoint        `yaml:"endpoints"`
	Credential string            `yaml:"credential"`
	Headers    map[string]string `yaml:"headers"`
	Models     []string          `yaml:"models"`
	Prices     []prices.Price    `yaml:"prices"`
}

func read(source string, data []byte) ([]entry, error) {
	var doc struct {
		Providers []entry `yaml:"providers"`
	}
	if err := policy.Decode(source, data, &doc); cove.ErrorCode(err) == cove.InvalidArgument {
		return nil, err
	} else if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %s", source, inOneLine(err)).
			WithHint("a provider has name, kind, base_url, region, project, endpoints, credential, headers, models and prices")
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

// inOneLine returns what a decoder says, without the names of types that no document has.
func inOneLine(err error) string {
	text := err.Error()
	if types, ok := errors.AsType[*yaml.TypeError](err); ok {
		text = ofType.Regexp().ReplaceAllString(strings.Join(types.Errors, "; "), " here")
	}
	return strings.Join(strings.Fields(strings.TrimPrefix(text, "yaml: ")), " ")
}

var ofType = pattern.New(` in type [\w.]+\.\w+`)

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

// over fills in keys from other. An e with its own address inherits no credential, which is for other's address. One of
// another kind inherits nothing.
func (e entry) over(other entry) entry {
	if e.Kind != "" && e.Kind != other.Kind {
		return e
	}
	if e.Base == "" && other.Base != "" {
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

var providerName = pattern.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func (e entry) provider() (Provider, error) {
	p := Provider{Name: e.Name, Kind: e.Kind, Endpoints: e.Endpoints, Credential: e.Credential, Models: e.Models,
		Region: e.Region, Project: e.Project, Headers: map[string]string{}}
	bad := func(format string, args ...any) (Provider, error) {
		return p, cove.Errorf(cove.InvalidArgument, format, args...)
	}
	if !providerName.MatchString(p.Name) {
		return bad("a name has small letters, digits, hyphens, dots and underscores")
	}
	scheme := schemeOf(p.Kind)
	if scheme == nil {
		return bad("kind is %s", words(Kinds))
	}
	if p.Endpoints == nil {
		p.Endpoints = scheme.endpoints()
	}
	for _, one := range p.Endpoints {
		if _, ok := scheme.path(one); !ok {
			return bad("there is no endpoint %.80q of the kind %s; there are %s", one, p.Kind, words(scheme.all()))
		}
	}
	if err := e.checkPlace(); err != nil {
		return p, err
	}
	if e.Base == "" {
		e.Base = e.usualBase()
		p.Credential = cmp.Or(p.Credential, usualCredential[p.Kind])
	}
	var err error
	if p.Base, err = parseBase(e.Base); err != nil {
		return p, err
	}
	if last := path.Base(p.Base.Path); scheme.versioned && slices.Contains(scheme.versions, last) {
		return p, cove.Errorf(cove.InvalidArgument, "base_url ends with the version %s, which is part of each request", last).
			WithHint("leave it out: %s", strings.TrimSuffix(strings.TrimSuffix(e.Base, "/"), "/"+last))
	}
	usual := map[string]uint16{"http": 80, "https": 443}[p.Base.Scheme]
	if p.host, p.port, err = policy.ParseAuthority(p.Base.Host, usual); err != nil {
		return p, err
	}
	if p.Credential != "" && p.Base.Scheme != "https" && !p.Private() {
		return p, cove.Errorf(cove.InvalidArgument, "its credential would leave in plain text, since base_url is not https").
			WithHint("without TLS a key is set for localhost and for private addresses only (base_url: http://10.0.0.5:8000/v1)")
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

// regionOrProject matches a region or project: a part of a host name, and of a path.
var regionOrProject = pattern.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// checkPlace checks the region and project, which some kinds have.
func (e entry) checkPlace() error {
	for _, part := range []struct {
		key, value, example string
		kinds               []Kind
	}{
		{"region", e.Region, "us-east-1", []Kind{Bedrock, Vertex}},
		{"project", e.Project, "my-project", []Kind{Vertex}},
	} {
		wanted := slices.Contains(part.kinds, e.Kind)
		switch {
		case !wanted && part.value != "":
			return cove.Errorf(cove.InvalidArgument, "the kind %s has no %s; %s has", e.Kind, part.key, words(part.kinds))
		case wanted && part.value == "":
			return cove.Errorf(cove.InvalidArgument, "%s is missing, which the kind %s needs", part.key, e.Kind).
				WithHint("write it like %s: %s", part.key, part.example)
		case wanted && !regionOrProject.MatchString(part.value):
			return cove.Errorf(cove.InvalidArgument, "%.80q is no %s", part.value, part.key).
				WithHint("write it like %s: %s", part.key, part.example)
		}
	}
	return nil
}

// usualBase returns the address of a kind that has one address, or one for each region; "" for the others.
func (e entry) usualBase() string {
	switch e.Kind {
	case Gemini:
		return "https://generativelanguage.googleapis.com"
	case Bedrock:
		domain := "amazonaws.com"
		if strings.HasPrefix(e.Region, "cn-") {
			domain = "amazonaws.com.cn"
		}
		return "https://bedrock-runtime." + e.Region + "." + domain
	case Vertex:
		switch e.Region {
		case "global":
			return "https://aiplatform.googleapis.com"
		case "us", "eu": // several regions at once
			return "https://aiplatform." + e.Region + ".rep.googleapis.com"
		}
		return "https://" + e.Region + "-aiplatform.googleapis.com"
	}
	return ""
}

// usualCredential names the preset credential for the usual address of a kind.
var usualCredential = map[Kind]string{Gemini: "gemini", Bedrock: "bedrock", Vertex: "vertex"}

func words[T ~string](all []T) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, string(one))
	}
	return strings.Join(texts, ", ")
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
