package access

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestCheck asks for every route of both tables as every kind of caller.
func TestCheck(t *testing.T) {
	ci := cove.KeyHolder("ci")
	for _, table := range []Table{Routes, GatewayRoutes} {
		for route, need := range table {
			t.Run(strings.ReplaceAll(route, "/", "."), func(t *testing.T) {
				expect := func(caller string, err error, want cove.Code) {
					t.Helper()
					if cove.ErrorCode(err) != want {
						t.Errorf("%s: %v, want %q", caller, err, want)
					}
				}
				when := func(allowed bool, otherwise cove.Code) cove.Code {
					if allowed {
						return ""
					}
					return otherwise
				}
				if ownAlone := need.audience == holders && need.why == ""; (need.Same() == "") != (ownAlone || need.OwnerOnly()) {
					t.Error("a row for objects of the caller's own gives no reason why all get the same; every other one does")
				}
				if (need.audience == holders) != (len(need.scopes) > 0) {
					t.Errorf("scopes %v of a route for another audience", need.scopes)
				}
				expect("a stranger", table.Check(Caller{Who: cove.Address("192.0.2.1"), Scopes: Usual}, route),
					when(need.Open(), cove.Unauthenticated))
				expect("the holder of an expired key", table.Check(Caller{Who: ci, Scopes: Scopes}, route),
					when(need.Open(), cove.Unauthenticated))
				expect("the owner", table.Check(Caller{Who: cove.MachineOwner(), Known: true}, route), "")
				expect("a key without a scope", table.Check(Caller{Who: ci, Known: true}, route),
					when(need.Open() || need.audience == known, cove.Forbidden))
				expect("a key with every scope", table.Check(Caller{Who: ci, Known: true, Scopes: Scopes}, route),
					when(!need.OwnerOnly(), cove.Forbidden))
				expect("a local user", table.Check(Caller{Who: cove.LocalUser(1000), Known: true, Scopes: Usual}, route),
					when(!need.OwnerOnly() && (need.audience != holders || slices.ContainsFunc(need.scopes, func(s Scope) bool {
						return slices.Contains(Usual, s)
					})), cove.Forbidden))
				for _, s := range Scopes {
					err := table.Check(Caller{Who: ci, Known: true, Scopes: []Scope{s}}, route)
					has := slices.Contains(need.scopes, s)
					expect("a key with the scope "+string(s), err, when(has || need.audience != holders && !need.OwnerOnly(),
						cove.Forbidden))
					if lacks := need.audience == holders && !has; lacks && !strings.Contains(cove.ErrorHint(err),
						"name: ci, scopes: ["+string(s)+", "+string(need.scopes[0])+"]") {
						t.Errorf("the hint does not say what to write: %v", err)
					}
				}
			})
		}
	}
}

func TestCheckOfUnknownRoutes(t *testing.T) {
	key := Caller{Who: cove.KeyHolder("ci"), Known: true, Scopes: Scopes}
	for _, c := range []struct {
		name   string
		caller Caller
		route  string
		want   cove.Code
	}{
		{"no such path, a stranger", Caller{}, "", cove.Unauthenticated},
		{"no such path, a key", key, "", ""},
		{"a route without a row, a stranger", Caller{}, "GET /new", cove.Unauthenticated},
		{"a route without a row, a key", key, "GET /new", cove.Forbidden},
		{"a route without a row, the owner", Caller{Who: cove.MachineOwner(), Known: true}, "GET /new", ""},
		{"a caller without an identity", Caller{Known: true}, "GET /executions", cove.Forbidden},
	} {
		if err := Routes.Check(c.caller, c.route); cove.ErrorCode(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	opened := Table{"GET /metrics": Routes["GET /metrics"].Opened()}
	if err := opened.Check(Caller{}, "GET /metrics"); err != nil {
		t.Errorf("opened metrics: %v", err)
	}
}

func TestParseScopes(t *testing.T) {
	if got, err := ParseScopes([]string{"run", "admin"}); err != nil || !slices.Equal(got, []Scope{Run, Admin}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "Run", "all", "run,read"} {
		_, err := ParseScopes([]string{bad})
		if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(cove.ErrorHint(err), "run, sandboxes, agents") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
