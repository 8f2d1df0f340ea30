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
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Credential is one credential, without its value.
type Credential struct {
	Name      string
	Source    Source
	Variables []string // variables inside that hold the placeholder
	Shape     string   // format of a placeholder, such as "sk-{40}"
	Bindings  []Binding
	// Or are alternatives, each complete in itself: the first that has a value is used.
	Or []Credential

	// optional credentials are the machine's own (ForRemote): requests go without if the source has no value, and any
	// other credential of a set goes before.
	optional bool
}

// Files returns the files that hold values of credentials, and the programs that are named by a path and return some.
func Files(all []Credential) (values, programs []string) {
	for i := range all {
		for _, way := range all[i].ways() {
			switch s := way.Source; {
			case s.kind == fromFile:
				values = append(values, s.name)
			case s.kind == fromCommand && filepath.IsAbs(s.argv[0]):
				programs = append(programs, s.argv[0])
			}
		}
	}
	return values, programs
}

// ways returns a credential and its alternatives.
func (c *Credential) ways() []*Credential {
	all := []*Credential{c}
	for i := range c.Or {
		all = append(all, &c.Or[i])
	}
	return all
}

// way returns the first alternative that may have a value, as far as is known without a program, or else the first one.
func (c *Credential) way() *Credential {
	for _, w := range c.ways() {
		if w.Source.there() {
			return w
		}
	}
	return c
}

// ready returns the source from which the value would be read now. Errors: Unavailable, with a remedy.
func (c *Credential) ready(ctx context.Context, values *Values) (from string, err error) {
	var whys []error
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
			whys = append(whys, fmt.Errorf("%s: %w", w.Source, err))
			break
		}
		if len(w.Bindings) > 0 {
			continue
		}
		_, err := values.get(ctx, w.Source, policy.Host{}, 0)
		if err == nil {
			return w.Source.String(), nil
		}
		whys = append(whys, fmt.Errorf("%s: %w", w.Source, err))
	}
	return "", c.missing(whys)
}

// missing returns the error of a credential without a value. Of the errors of its sources it tells the only one, or the
// first one of a value that is there and cannot be used.
func (c *Credential) missing(whys []error) error {
	var sources []string
	for _, w := range c.ways() {
		sources = append(sources, w.Source.String())
	}
	e := cove.Errorf(cove.Unavailable, "the credential %s is not available from %s", c.Name, strings.Join(sources, ", "))
	unusable := func(why error) bool { return cove.ErrorCode(why) == cove.InvalidArgument }
	if len(sources) == 1 && len(whys) == 1 {
		e = cove.Errorf(cove.Unavailable, "%s: %w", e, errors.Unwrap(whys[0]))
	} else if i := slices.IndexFunc(whys, unusable); i >= 0 {
		e = cove.Errorf(cove.Unavailable, "%s; %w", e, whys[i])
	}
	return e.WithHint("%s, on the host; \"cove credentials check\" shows what there is", c.remedy())
}

// remedy returns what gives the credential a value.
func (c *Credential) remedy() string {
	var variables, other []string
	for _, w := range c.ways() {
		if w.Source.kind == fromEnv {
			variables = append(variables, w.Source.name)
		} else {
			other = append(other, w.Source.remedy())
		}
	}
	if len(variables) > 0 {
		set := "export " + variables[0] + "=…"
		if len(variables) > 1 {
			set += " (or " + strings.Join(variables[1:], ", ") + ")"
		}
		other = slices.Insert(other, 0, set)
	}
	return strings.Join(other, ", or ")
}

// Binding selects the requests that get a credential, and its form in them.
type Binding struct {
	ID   string // place of its definition: "credentials.yaml:12"
	Form Form

	where  *policy.Policy // allows exactly the bound requests
	probes []probe
	plain  bool // also without TLS
}

type probe struct {
	host policy.Host
	port uint16
}

// Unbound reports whether a credential is set on nothing by its own description.
func (c *Credential) Unbound() bool { return len(c.Bindings) == 0 }

// BoundTo returns an unbound credential and its alternatives, bound to the requests that a policy allows, at one host
// and port. plain sets it without TLS, too.
func (c *Credential) BoundTo(id string, f Form, where *policy.Policy, host policy.Host, port uint16,
	plain bool) Credential {
	bound := *c
	bound.Bindings = []Binding{{ID: id, Form: f, where: where, probes: []probe{{host, port}}, plain: plain}}
	bound.Or = slices.Clone(c.Or)
	for i := range bound.Or {
		bound.Or[i].Bindings = bound.Bindings
	}
	return bound
}

// Plain reports whether a credential is also set on requests without TLS.
func (c *Credential) Plain() bool {
	return !c.Unbound() && !slices.ContainsFunc(c.Bindings, func(b Binding) bool { return !b.plain })
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

func order(c Credential) int {
	if c.optional {
		return 1
	}
	return 0
}

// Placeholders returns, for each variable of a sandbox's environment, a random text of the shape, new at each call.
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
	r := policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}
	for _, b := range s.bindings() {
		if b.matches(r) {
			return true
		}
	}
	return false
}

// Limits reports whether a credential is bound to some methods or paths of a request's host and port, and not to
// others.
func (s *Set) Limits(r policy.Request) bool {
	for _, b := range s.bindings() {
		if b.where.Limits(r) {
			return true
		}
	}
	return false
}

// bindings returns the bindings of all credentials and their alternatives, each with the alternative that it is of.
func (s *Set) bindings() iter.Seq2[*Credential, *Binding] {
	return func(yield func(*Credential, *Binding) bool) {
		if s == nil {
			return
		}
		for i := range s.credentials {
			for _, w := range s.credentials[i].ways() {
				for j := range w.Bindings {
					if !yield(w, &w.Bindings[j]) {
						return
					}
				}
			}
		}
	}
}

// Covers reports whether a request, at LayerHTTP, gets a credential of the set.
func (s *Set) Covers(r policy.Request) bool {
	uses, err := s.uses(r)
	return err == nil && len(uses) > 0
}

// Login returns the user and password for a program that asks for those of a host, as git does: placeholders, which the
// credential replaces. They are those of Placeholders if the credential has a variable.
func (s *Set) Login(host policy.Host, port uint16, placeholders map[string]string) (user, password string, ok bool) {
	r := policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}
	for c, b := range s.bindings() {
		if b.Form.basic && b.matches(r) {
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
	for c, b := range s.bindings() {
		for _, p := range b.probes {
			r := policy.Request{Layer: policy.LayerConnect, Host: p.host, Port: p.port}
			if v := decide(r); b.matches(r) && v.Action != policy.Deny && v.PassThrough {
				return cove.Errorf(cove.Conflict, "the credential %s cannot be set on requests to %s: %s passes its TLS through",
					c.Name, p.host.Authority(p.port), v.Rule).
					WithHint("remove pass_through from the rule, or the credential")
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

// plain reports whether the use is also for requests without TLS.
func (u use) plain() bool {
	return !slices.ContainsFunc(u.options, func(o option) bool {
		return slices.ContainsFunc(o.bindings, func(b *Binding) bool { return !b.plain })
	})
}

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
// Nothing is set without TLS, where it is not said to be. digest is called where a request is signed; it may be nil if
// none is. After an error the request must not be sent. Errors: Unavailable when a value cannot be read; Conflict when
// two credentials share a place; those of digest.
func (s *Set) Apply(r policy.Request, h *http.Request, digest Digest) ([]string, error) {
	uses, err := s.uses(r)
	if len(uses) == 0 || err != nil {
		return nil, err
	}
	if h.URL.Scheme != "https" {
		uses = slices.DeleteFunc(uses, func(u use) bool { return !u.plain() })
	}
	had := uses[:0]
	for _, u := range uses {
		whys := s.choose(h.Context(), r, &u)
		if u.chosen == nil && u.credential.optional {
			continue
		}
		if u.chosen == nil {
			return nil, u.credential.missing(whys)
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
			if !u.login.signs {
				b.Form.set(h, u.login)
			} else if err := b.Form.sign(h, u.login, digest, s.values.clock.Now()); err != nil {
				return nil, err
			}
		}
		names = append(names, u.credential.Name)
	}
	return names, nil
}

// Withhold removes from a request what the sandbox sent in the places of its credentials, and sets nothing. Errors:
// Conflict, as Apply.
func (s *Set) Withhold(r policy.Request, h *http.Request) error {
	uses, err := s.uses(r)
	for _, u := range uses {
		for _, o := range u.options {
			for _, b := range o.bindings {
				b.Form.strip(h)
			}
		}
	}
	return err
}

// choose reads the first alternative with a value, or returns the error of each.
func (s *Set) choose(ctx context.Context, r policy.Request, u *use) (whys []error) {
	for i := range u.options {
		o := &u.options[i]
		var err error
		if u.login, err = s.values.get(ctx, o.way.Source, r.Host, r.Port); err == nil {
			err = o.accepts(u.login)
		}
		if err == nil {
			u.chosen = o
			return nil
		}
		whys = append(whys, fmt.Errorf("%s: %w", o.way.Source, err))
	}
	return whys
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

// Refused reports that the server did not accept a request's credentials: programs are asked again at the next use.
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

// Known returns every value of the set that has been read, also replaced ones. The version changes with the values.
func (s *Set) Known() (known []secret.Value, version uint64) {
	if s == nil {
		return nil, 0
	}
	return s.values.known(func(src string) bool {
		if s == nil {
			return false
		}
		for i := range s.credentials { // those without a binding of their own are read for providers
			for _, c := range s.credentials[i].ways() {
				if c.Source.key() == src {
					return true
				}
			}
		}
		return false
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

// randomPart is the part of a shape that stands for so many random letters and digits.
var randomPart = pattern.New(`\{([0-9]{1,3})\}`)

const (
	defaultShape = "{40}"
	minRandom    = 16 // characters of a placeholder, so that no two are equal
	maxShape     = 1 << 10
)

func checkShape(shape string) error {
	random := 0
	for _, m := range randomPart.Regexp().FindAllStringSubmatch(shape, -1) {
		n, _ := strconv.Atoi(m[1])
		random += n
	}
	rest := randomPart.Regexp().ReplaceAllString(shape, "")
	if random < minRandom || random+len(rest) > maxShape || !visible(rest) || strings.ContainsAny(rest, "{}") {
		return cove.Errorf(cove.InvalidArgument, "a shape is one word, with {N} for N random characters, at least %d",
			minRandom).WithHint(`for example "sk-{40}"`)
	}
	return nil
}

func fill(shape string) string {
	return randomPart.Regexp().ReplaceAllStringFunc(shape, func(b string) string {
		n, _ := strconv.Atoi(b[1 : len(b)-1])
		return letters(n)
	})
}

func letters(n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 0, n)
	for len(out) < n {
		var random [64]byte
		rand.Read(random[:])
		for _, r := range random {
			if int(r) < 4*len(alphabet) && len(out) < n { // uniform
				out = append(out, alphabet[int(r)%len(alphabet)])
			}
		}
	}
	return string(out)
}
