// Package credential owns where credentials come from, what they are bound to,
// and how they are set on a request (invariants C1 to C3).
//
// A [Credential] says where its value is (a [Source]), and for which requests
// it is meant and in which form (its [Binding]s). A sandbox has a [Set] of
// them. Its environment holds placeholders, so that programs start; whatever it
// sends where a credential belongs is removed and the value set, after policy,
// on the host. Nothing is searched and replaced: a placeholder that is sent
// anywhere else stays a placeholder.
//
// Values are read when they are used and live in memory only, as
// [secret.Value]. No error, log line or String shows one.
package credential

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Credential is one credential, without its value.
type Credential struct {
	Name      string
	Source    Source
	Variables []string // where programs inside look for it
	Shape     string   // what a placeholder looks like, such as "sk-{40}"
	Bindings  []Binding

	optional bool // requests go without when the source has none
}

// Binding is a kind of request that a credential is set on.
type Binding struct {
	ID   string // where it is written: "credentials.yaml:12"
	Form Form

	where  *policy.Policy // allows what the binding is about
	probes []probe
}

// probe is one host and port that a binding is about.
type probe struct {
	host policy.Host
	port uint16
}

// matches reports whether b is about r, as far as r's layer shows.
func (b *Binding) matches(r policy.Request) bool {
	return b.where.Decide(r).Action == policy.Allow
}

// Set is the credentials of one sandbox. The nil Set has none.
type Set struct {
	credentials []Credential
	values      *Values
}

// NewSet puts credentials together. Errors: InvalidArgument when two have one
// name or one variable.
func NewSet(values *Values, credentials ...Credential) (*Set, error) {
	holder := map[string]string{}
	for _, c := range credentials {
		for _, what := range append([]string{"the name " + c.Name}, c.Variables...) {
			if other := holder[what]; other != "" {
				return nil, cove.Errorf(cove.InvalidArgument, "the credentials %s and %s both have %s", other, c.Name, what).WithHint("use one of them")
			}
			holder[what] = c.Name
		}
	}
	return &Set{credentials: slices.Clone(credentials), values: values}, nil
}

// Placeholders is what a sandbox's environment holds in place of values: for
// each variable, something random of the expected shape, anew at each call.
func (s *Set) Placeholders() map[string]string {
	all := map[string]string{}
	if s == nil {
		return all
	}
	for _, c := range s.credentials {
		placeholder := fill(c.Shape)
		for _, v := range c.Variables {
			all[v] = placeholder
		}
	}
	return all
}

// Binds reports whether some request to a host and port may get a credential.
// Its TLS has to be intercepted then: what passes through cannot be judged,
// and nothing can be set in it (invariant C3).
func (s *Set) Binds(host policy.Host, port uint16) bool {
	if s == nil {
		return false
	}
	r := policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}
	for _, c := range s.credentials {
		for i := range c.Bindings {
			if c.Bindings[i].matches(r) {
				return true
			}
		}
	}
	return false
}

// Covers reports whether a request, at LayerHTTP, gets a credential of the set.
func (s *Set) Covers(r policy.Request) bool {
	uses, err := s.uses(r)
	return err == nil && len(uses) > 0
}

// Login is what a program is told that asks for user and password of a host, as
// git does: placeholders, in whose place the credential is set. They are those
// that Placeholders gave, if the credential has a variable.
func (s *Set) Login(host policy.Host, port uint16, placeholders map[string]string) (user, password string, ok bool) {
	if s == nil {
		return "", "", false
	}
	r := policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}
	for _, c := range s.credentials {
		for i := range c.Bindings {
			b := &c.Bindings[i]
			if !b.Form.basic || !b.matches(r) {
				continue
			}
			for _, v := range c.Variables {
				password = placeholders[v]
			}
			return cmp.Or(b.Form.user, anyUser), cmp.Or(password, fill(c.Shape)), true
		}
	}
	return "", "", false
}

// anyUser stands for a user that only the source knows.
const anyUser = "x-access-token"

// Check is called whenever policy or credentials change: it refuses a policy
// that passes through what a credential is bound to. Errors: Conflict.
func (s *Set) Check(decide func(policy.Request) policy.Verdict) error {
	if s == nil {
		return nil
	}
	for _, c := range s.credentials {
		for _, b := range c.Bindings {
			for _, p := range b.probes {
				r := policy.Request{Layer: policy.LayerConnect, Host: p.host, Port: p.port}
				if v := decide(r); b.matches(r) && v.Action != policy.Deny && v.PassThrough {
					return cove.Errorf(cove.Conflict, "the credential %s cannot be set on requests to %s: %s passes its TLS through", c.Name, p.host.Authority(p.port), v.Rule).
						WithHint("remove pass_through from the rule, or the credential")
				}
			}
		}
	}
	return nil
}

// use is a binding that applies to a request.
type use struct {
	credential *Credential
	binding    *Binding
	login      login
}

// Apply sets the credentials that are meant for a request, and returns their
// names. r is the request as policy has judged it, at LayerHTTP. Before
// anything is set, every copy of it that the sandbox sent is removed, and so
// is whatever else would tell who asks. Nothing is set without TLS.
// Errors, upon which the request must not be sent: Unavailable when a value
// cannot be had; Conflict when two credentials would take one place.
func (s *Set) Apply(r policy.Request, h *http.Request) ([]string, error) {
	uses, err := s.uses(r)
	if len(uses) == 0 || err != nil || h.URL.Scheme != "https" {
		return nil, err
	}
	had := uses[:0]
	for _, u := range uses {
		u.login, err = s.values.get(h.Context(), u.credential.Source, r.Host, r.Port)
		if err == nil {
			err = u.binding.Form.accepts(u.login)
		}
		if err != nil && u.credential.optional {
			continue
		}
		had = append(had, u)
		if err != nil {
			return nil, cove.Errorf(cove.Unavailable, "the credential %s cannot be had from %s: %w", u.credential.Name, u.credential.Source, err).
				WithHint("see that it is there, on the host")
		}
	}
	for _, u := range had {
		u.binding.Form.strip(h)
	}
	var names []string
	for _, u := range had {
		u.binding.Form.set(h, u.login)
		names = append(names, u.credential.Name)
	}
	return names, nil
}

// uses finds what applies to a request.
func (s *Set) uses(r policy.Request) ([]use, error) {
	if s == nil {
		return nil, nil
	}
	var all []use
	takes := map[string]*Credential{}
	for i := range s.credentials {
		c := &s.credentials[i]
		for j := range c.Bindings {
			b := &c.Bindings[j]
			if !b.matches(r) {
				continue
			}
			if other := takes[b.Form.place()]; other != nil {
				return nil, cove.Errorf(cove.Conflict, "the credentials %s and %s are both bound to %s %s%s", other.Name, c.Name, r.Method, r.Host, r.Path).
					WithHint("bind them to different paths, or use one of them")
			}
			takes[b.Form.place()] = c
			all = append(all, use{credential: c, binding: b})
		}
	}
	return all, nil
}

// Refused tells that the server did not accept what was set on a request. A
// value that a program gave is asked for anew at the next use.
func (s *Set) Refused(r policy.Request) {
	uses, err := s.uses(r)
	if err != nil {
		return
	}
	for _, u := range uses {
		s.values.expire(u.credential.Source, r.Host, r.Port)
	}
}

// Known is every value of the set's that has been read, and those before them,
// to be kept out of answers. The version changes when they do.
func (s *Set) Known() (known []secret.Value, version uint64) {
	if s == nil {
		return nil, 0
	}
	return s.values.known(func(src string) bool {
		return slices.ContainsFunc(s.credentials, func(c Credential) bool { return c.Source.key() == src })
	})
}

// String names the credentials.
func (s *Set) String() string {
	if s == nil {
		return "no credentials"
	}
	var names []string
	for _, c := range s.credentials {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
