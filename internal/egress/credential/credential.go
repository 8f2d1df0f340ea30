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
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
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
	// Or are what is used in its place, each with all of the above, where the
	// source has nothing: the first one that has.
	Or []Credential

	optional bool // requests go without when the source has none
}

// ways are a credential and what may be used in its place.
func (c *Credential) ways() []*Credential {
	all := []*Credential{c}
	for i := range c.Or {
		all = append(all, &c.Or[i])
	}
	return all
}

// way is the one that is used now, as far as can be told without running a
// program; the first one if none is.
func (c *Credential) way() *Credential {
	for _, w := range c.ways() {
		if w.Source.there() {
			return w
		}
	}
	return c
}

// Ready says from where the value would be had now. Errors: Unavailable, with
// what to do.
func (c *Credential) Ready(ctx context.Context) (from string, err error) {
	values := NewValues(clock.Real())
	for _, w := range c.ways() {
		for _, b := range w.Bindings {
			if len(b.probes) == 0 {
				continue
			}
			l, err := values.get(ctx, w.Source, b.probes[0].host, b.probes[0].port)
			if err == nil {
				err = b.Form.accepts(l)
			}
			if err == nil {
				return w.Source.String(), nil
			}
			break
		}
	}
	return "", c.missing(nil)
}

// missing is the error of a credential that is nowhere; why is of its only
// source.
func (c *Credential) missing(why error) error {
	var sources []string
	for _, w := range c.ways() {
		sources = append(sources, w.Source.String())
	}
	e := cove.Errorf(cove.Unavailable, "the credential %s cannot be had from %s", c.Name, strings.Join(sources, ", "))
	if why != nil && len(sources) == 1 {
		e = cove.Errorf(cove.Unavailable, "the credential %s cannot be had from %s: %w", c.Name, sources[0], why)
	}
	if len(sources) > 1 {
		return e.WithHint("see that one of them is there, on the host, where Cove's server finds it")
	}
	return e.WithHint("see that it is there, on the host")
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
	holder := map[string]int{}
	for i, c := range credentials {
		takes := []string{"the name " + c.Name}
		for _, w := range c.ways() {
			takes = append(takes, w.Variables...)
		}
		for _, what := range takes {
			if other, held := holder[what]; held && other != i {
				return nil, cove.Errorf(cove.InvalidArgument, "the credentials %s and %s both have %s", credentials[other].Name, c.Name, what).WithHint("use one of them")
			}
			holder[what] = i
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
	for i := range s.credentials {
		w := s.credentials[i].way()
		placeholder := fill(w.Shape)
		for _, v := range w.Variables {
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
	for _, w := range s.ways() {
		for i := range w.Bindings {
			if w.Bindings[i].matches(r) {
				return true
			}
		}
	}
	return false
}

// ways are those of all credentials.
func (s *Set) ways() (all []*Credential) {
	for i := range s.credentials {
		all = append(all, s.credentials[i].ways()...)
	}
	return all
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
	for _, c := range s.ways() {
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
	for _, c := range s.ways() {
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

// use is a credential that a request gets, in one of its ways.
type use struct {
	credential *Credential
	options    []option // the first that has a value is it
	chosen     *option
	login      login
}

// option is a way of a credential, and its bindings that apply to a request.
type option struct {
	way      *Credential
	bindings []*Binding
}

// accepts reports whether the login can be written as the bindings say.
func (o option) accepts(l login) error {
	for _, b := range o.bindings {
		if err := b.Form.accepts(l); err != nil {
			return err
		}
	}
	return nil
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
		why := s.choose(h.Context(), r, &u)
		if u.chosen == nil && u.credential.optional {
			continue
		}
		if u.chosen == nil {
			return nil, u.credential.missing(why)
		}
		had = append(had, u)
	}
	for _, u := range had {
		for _, b := range u.chosen.bindings {
			b.Form.strip(h)
		}
	}
	var names []string
	for _, u := range had {
		for _, b := range u.chosen.bindings {
			b.Form.set(h, u.login)
		}
		names = append(names, u.credential.Name)
	}
	return names, nil
}

// choose reads the first way of a credential that has a value, or says why the
// last has none.
func (s *Set) choose(ctx context.Context, r policy.Request, u *use) (why error) {
	for i := range u.options {
		o := &u.options[i]
		if u.login, why = s.values.get(ctx, o.way.Source, r.Host, r.Port); why == nil {
			why = o.accepts(u.login)
		}
		if why == nil {
			u.chosen = o
			return nil
		}
	}
	return why
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
		var options []option
		for _, w := range c.ways() {
			o := option{way: w}
			own := map[string]bool{} // places
			for j := range w.Bindings {
				b := &w.Bindings[j]
				if !b.matches(r) {
					continue
				}
				where := b.Form.place()
				if other := takes[where]; other != nil && other != c || own[where] {
					return nil, cove.Errorf(cove.Conflict, "the credentials %s and %s are both bound to %s %s%s", cmp.Or(other, c).Name, c.Name, r.Method, r.Host, r.Path).
						WithHint("bind them to different paths, or use one of them")
				}
				takes[where], own[where] = c, true
				o.bindings = append(o.bindings, b)
			}
			if o.bindings != nil {
				options = append(options, o)
			}
		}
		if len(options) > 0 {
			all = append(all, use{credential: c, options: options})
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
		for _, o := range u.options {
			s.values.expire(o.way.Source, r.Host, r.Port)
		}
	}
}

// Known is every value of the set's that has been read, and those before them,
// to be kept out of answers. The version changes when they do.
func (s *Set) Known() (known []secret.Value, version uint64) {
	if s == nil {
		return nil, 0
	}
	return s.values.known(func(src string) bool {
		return slices.ContainsFunc(s.ways(), func(c *Credential) bool { return c.Source.key() == src })
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
