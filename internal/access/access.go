// Package access decides which callers of the API may call which routes. It holds the table of all routes, each with
// the scope that it needs, and what each API key may do. Its decisions are pure; the API calls them before a route's
// handler. Whose objects a caller sees is decided by cove.Principal and store.Vault: a route that a caller may call
// answers for the caller's own objects alone.
package access

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Scope is a part of the API that a key may use.
type Scope string

// The scopes of keys.
const (
	Run       Scope = "run"       // execute snippets, and ask models for single answers
	Sandboxes Scope = "sandboxes" // long-lived sandboxes, the commands in them, and their work
	Agents    Scope = "agents"    // give agents tasks
	Read      Scope = "read"      // read the key's own objects and records
	Approve   Scope = "approve"   // answer requests that wait, and change networks that are open
	Metrics   Scope = "metrics"   // read the counts of the whole server
	Admin     Scope = "admin"     // what the machine has installed, and its audit log as a whole
)

// Scopes are all scopes, in the order of the documents.
var Scopes = []Scope{Run, Sandboxes, Agents, Read, Approve, Metrics, Admin}

// Usual are the scopes of a key that names none, and of local users: everything but the machine as a whole.
var Usual = []Scope{Run, Sandboxes, Agents, Read, Approve}

// ParseScopes parses names of scopes. Errors: InvalidArgument.
func ParseScopes(names []string) ([]Scope, error) {
	scopes := make([]Scope, len(names))
	for i, name := range names {
		if scopes[i] = Scope(name); !slices.Contains(Scopes, scopes[i]) {
			return nil, cove.Errorf(cove.InvalidArgument, "%.40q is no scope", name).
				WithHint("the scopes are %s", join(Scopes, ", "))
		}
	}
	return scopes, nil
}

func join(scopes []Scope, between string) string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return strings.Join(names, between)
}

// audience says which callers a route is for.
type audience uint8

const (
	holders audience = iota // of one of the need's scopes
	known                   // every caller that has shown who it is
	anyone                  // strangers, too
	owner                   // the machine's owner alone
)

// Need describes the callers that a route is for.
type Need struct {
	audience audience
	scopes   []Scope // any of them is enough
	why      string  // for the owner alone, or the same for every caller
}

// scoped returns the need of any of some scopes. The route answers for the caller's own objects.
func scoped(any ...Scope) Need { return Need{scopes: any} }

// same adds the reason why every caller of a route gets the same.
func (n Need) same(why string) Need {
	n.why = why
	return n
}

func forKnown(why string) Need  { return Need{audience: known, why: why} }
func forAnyone(why string) Need { return Need{audience: anyone, why: why} }
func forOwner(why string) Need  { return Need{audience: owner, why: why} }

// Opened returns the need of a route that strangers may call, too.
func (n Need) Opened() Need { return forAnyone(n.why) }

// OwnerOnly reports whether a route is for the machine's owner alone.
func (n Need) OwnerOnly() bool { return n.audience == owner }

// Open reports whether strangers may call a route.
func (n Need) Open() bool { return n.audience == anyone }

// Same returns why every caller of a route gets the same; empty where it answers for the caller's own objects.
func (n Need) Same() string {
	if n.audience == owner {
		return ""
	}
	return n.why
}

// Scopes returns the scopes any of which a route needs; none where it needs no scope.
func (n Need) Scopes() []Scope { return slices.Clone(n.scopes) }

// String returns the need as a sentence of the documentation; empty where a key of any scopes will do.
func (n Need) String() string {
	switch n.audience {
	case holders:
		if len(n.scopes) == len(Scopes) {
			return ""
		}
		return "Keys need the scope " + join(n.scopes, " or ") + "."
	case owner:
		return "For the machine's owner alone."
	}
	return ""
}

// Caller describes the caller of a route, as far as it has shown who it is.
type Caller struct {
	Who     cove.Principal
	Known   bool  // the owner, the holder of a valid key, or a local user where no key is needed
	Unknown error // why it is not known, if that is more than a missing key
	Scopes  []Scope
}

// Has reports whether a caller has a scope. The machine's owner has all of them.
func (c Caller) Has(s Scope) bool { return c.Who.IsOwner() || slices.Contains(c.Scopes, s) }

// Table has the need of each route, by its method and pattern: "GET /executions/{id}".
type Table map[string]Need

// Expired is the error about a key that is not valid any more.
func Expired(key string) error {
	return cove.Errorf(cove.Unauthenticated, "the API key %s has expired", key).
		WithHint("make another one (cove config new-key %s), or move expires in the server's configuration", key)
}

// NoUser is the error about a connection over loopback whose local user cannot be found.
func NoUser() error {
	return cove.Errorf(cove.Unauthenticated, "the local user at the other end of this connection cannot be told").
		WithHint("connect again, or use the server's socket, or give the server API keys (cove config new-key)")
}

// Check decides whether a caller may call a route; an empty one is a path that no route has, which strangers do not
// learn. A route without a row is the owner's. Errors: Unauthenticated, Forbidden.
func (t Table) Check(c Caller, route string) error {
	need, row := t[route]
	if need.audience == anyone && row {
		return nil
	}
	if !c.Known && c.Unknown != nil {
		return c.Unknown
	}
	if !c.Known {
		return cove.Errorf(cove.Unauthenticated, "no valid API key was given").
			WithHint("send it as X-API-Key: KEY or Authorization: Bearer KEY")
	}
	switch {
	case c.Who.IsOwner() || route == "" || row && need.audience == known:
		return nil
	case !row || need.audience == owner:
		why := need.why
		if why == "" {
			why = "this is for the machine's owner"
		}
		return cove.Errorf(cove.Forbidden, "%s", why).WithHint("use the command line on that machine")
	}
	return c.Need(need.scopes...)
}

// Need refuses a caller that has none of some scopes, where there are any, with what to write in the configuration.
// Errors: Forbidden.
func (c Caller) Need(any ...Scope) error {
	if len(any) == 0 || slices.ContainsFunc(any, c.Has) {
		return nil
	}
	needs := "the scope " + join(any, " or ")
	if name, is := c.Who.Key(); is {
		return cove.Errorf(cove.Forbidden, "the API key %s may not do this: it needs %s", name, needs).
			WithHint("in the server's configuration, give it that: api_keys, name: %s, scopes: [%s]", name,
				join(append(slices.Clone(c.Scopes), any[0]), ", "))
	}
	return cove.Errorf(cove.Forbidden, "this needs %s", needs).
		WithHint("use the command line on that machine, or an API key that has it")
}
