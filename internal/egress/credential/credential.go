// Package credential owns the sources of credentials, their bindings to requests, and the forms in which they are set
// (invariants C1 to C3).
//
// A [Credential] names the source of its value (a [Source]), and the requests that get it with the form (its
// [Binding]s). A sandbox has a [Set] of credentials. Its environment holds placeholders, so that programs start. On the
// host, after policy, the gateway removes the sandbox's own value from the credential's place in a request and sets the
// real one. Nothing is searched and replaced: a placeholder sent anywhere else stays a placeholder.
//
// Values are read on use and live in memory only, as [secret.Value]. No error, log line or String shows one.
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
	Variables []string // variables inside that hold the placeholder
	Shape     string   // format of a placeholder, such as "sk-{40}"
	Bindings  []Binding
	// Or are alternatives, each complete in itself, for a source without a value: the first alternative with a value is
	// used.
	Or []Credential

	// optional credentials are the machine's own (ForRemote): requests go without if the source has no value, and any
	// other credential of a set goes before.
	optional bool
}

// ways returns a credential and its alternatives.
func (c *Credential) ways() []*Credential {
	all := []*Credential{c}
	for i := range c.Or {
		all = append(all, &c.Or[i])
	}
	return all
}

// way returns the alternative in use, as far as that is known without running a program; the first one if none has a
// value.
func (c *Credential) way() *Credential {
	for _, w := range c.ways() {
		if w.Source.there() {
			return w
		}
	}
	return c
}

// Ready returns the source from which the value would be read now. Errors: Unavailable, with a remedy.
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

// missing returns the error of a credential without a value; why is the error of its only source.
func (c *Credential) missing(why error) error {
	var sources []string
	for _, w := range c.ways() {
		sources = append(sources, w.Source.String())
	}
	e := cove.Errorf(cove.Unavailable, "the credential %s is not available from %s", c.Name, strings.Join(sources, ", "))
	if why != nil && len(sources) == 1 {
		e = cove.Errorf(cove.Unavailable, "the credential %s is not available from %s: %w", c.Name, sources[0], why)
	}
	if len(sources) > 1 {
		return e.WithHint("see that one of them is there, on the host, where Cove's server finds it")
	}
	return e.WithHint("see that it is there, on the host")
}

// Binding selects the requests that get a credential, and its form in them.
type Binding struct {
	ID   string // place of its definition: "credentials.yaml:12"
	Form Form

	where  *policy.Policy // allows exactly the bound requests
	probes []probe
}

// probe is one host and port of a binding.
type probe struct {
	host policy.Host
	port uint16
}

// matches reports whether b covers r, as far as r's layer shows.
func (b *Binding) matches(r policy.Request) bool { return b.where.Decide(r).Action == policy.Allow }

// Set holds the credentials of one sandbox. The nil Set is empty.
type Set struct {
	credentials []Credential
	values      *Values
}

// NewSet returns a Set. The machine's own credentials (ForRemote) leave variables and places to the others. Errors:
// InvalidArgument when two credentials share a name or a variable.
func NewSet(values *Values, credentials ...Credential) (*Set, error) {
	credentials = slices.Clone(credentials)
	slices.SortStableFunc(credentials, func(a, b Credential) int { return cmp.Compare(order(a), order(b)) })
	holder := map[string]int{}
	for i := range credentials {
		c := &credentials[i]
		if c.optional {
			c.Variables = slices.DeleteFunc(slices.Clone(c.Variables), func(v string) bool { _, held := holder[v]; return held })
		}
		takes := []string{"the name " + c.Name}
		for _, w := range c.ways() {
			takes = append(takes, w.Variables...)
		}
		for _, what := range takes {
			if other, held := holder[what]; held && other != i {
				return nil, cove.Errorf(cove.InvalidArgument, "the credentials %s and %s both have %s", credentials[other].Name,
					c.Name, what).WithHint("use one of them")
			}
			holder[what] = i
		}
	}
	return &Set{credentials: credentials, values: values}, nil
}

// order sorts optional credentials after all others.
func order(c Credential) int {
	if c.optional {
		return 1
	}
	return 0
}

// Placeholders returns the placeholders for a sandbox's environment: for each variable a random text of the expected
// shape, new at each call.
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

// Binds reports whether some request to a host and port may get a credential. TLS to it must be intercepted then:
// passed-through requests cannot be judged or changed (invariant C3).
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

// ways returns the alternatives of all credentials.
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

// Login returns the user and password for a program that asks for those of a host, as git does: placeholders, which the
// credential replaces. They are those of Placeholders if the credential has a variable.
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

// Check refuses a policy that passes bound connections through. It must be called whenever policy or credentials
// change. Errors: Conflict.
func (s *Set) Check(decide func(policy.Request) policy.Verdict) error {
	if s == nil {
		return nil
	}
	for _, c := range s.ways() {
		for _, b := range c.Bindings {
			for _, p := range b.probes {
				r := policy.Request{Layer: policy.LayerConnect, Host: p.host, Port: p.port}
				if v := decide(r); b.matches(r) && v.Action != policy.Deny && v.PassThrough {
					return cove.Errorf(cove.Conflict, "the credential %s cannot be set on requests to %s: %s passes its TLS through",
						c.Name, p.host.Authority(p.port), v.Rule).
						WithHint("remove pass_through from the rule, or the credential")
				}
			}
		}
	}
	return nil
}

// use is a credential of a request, with its alternatives.
type use struct {
	credential *Credential
	options    []option // the first with a value is used
	chosen     *option
	login      login
}

// option is an alternative of a credential, and its bindings that cover a request.
type option struct {
	way      *Credential
	bindings []*Binding
}

// accepts reports whether the login fits the bindings' forms.
func (o option) accepts(l login) error {
	for _, b := range o.bindings {
		if err := b.Form.accepts(l); err != nil {
			return err
		}
	}
	return nil
}

// Apply sets the credentials of a request, and returns their names. r is the request as judged by policy, at LayerHTTP.
// Apply first removes every copy that the sandbox sent, and every other header and parameter that authenticates.
// Nothing is set without TLS. After an error the request must not be sent. Errors: Unavailable when a value cannot be
// read; Conflict when two credentials share a place.
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

// choose reads the first alternative with a value, or returns the last one's error.
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

// uses returns the credentials for a request. An optional credential leaves a place to any other.
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
				other := takes[where]
				if c.optional && other != nil && other != c {
					continue
				}
				if other != nil && other != c || own[where] {
					return nil, cove.Errorf(cove.Conflict, "the credentials %s and %s are both bound to %s %s%s",
						cmp.Or(other, c).Name, c.Name, r.Method, r.Host, r.Path).
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

// Refused reports that the server did not accept the credentials of a request. A value from a program is read again at
// the next use.
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

// Known returns every value of the set that has been read, including replaced ones, for redaction. The version changes
// with the values.
func (s *Set) Known() (known []secret.Value, version uint64) {
	if s == nil {
		return nil, 0
	}
	return s.values.known(func(src string) bool {
		return slices.ContainsFunc(s.ways(), func(c *Credential) bool { return c.Source.key() == src })
	})
}

// String returns the names of the credentials.
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
