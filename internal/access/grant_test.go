package access

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

func TestSpareCPU(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	broken := errors.New("broken")
	for _, c := range []struct {
		name      string
		grant     Grant
		hour, day time.Duration // that were used
		err       error
		want      cove.Code
	}{
		{name: "no quota asks for nothing", err: broken},
		{name: "less than both", grant: Grant{CPUHour: time.Minute, CPUDay: time.Hour}, hour: 59 * time.Second,
			day: 59 * time.Minute},
		{name: "the hour is used up", grant: Grant{CPUHour: time.Minute, CPUDay: time.Hour}, hour: time.Minute,
			day: time.Minute, want: cove.Overloaded},
		{name: "the day is", grant: Grant{CPUHour: time.Minute, CPUDay: time.Hour}, day: time.Hour, want: cove.Overloaded},
		{name: "a day alone", grant: Grant{CPUDay: time.Hour}, hour: time.Minute, day: 2 * time.Hour, want: cove.Overloaded},
		{name: "the records cannot be read", grant: Grant{CPUDay: time.Hour}, err: broken, want: cove.Internal},
	} {
		err := c.grant.SpareCPU(now, func(since time.Time) (time.Duration, error) {
			switch now.Sub(since) {
			case time.Hour:
				return c.hour, c.err
			case 24 * time.Hour:
				return c.day, c.err
			}
			t.Errorf("%s: asks since %s", c.name, since)
			return 0, nil
		})
		if cove.ErrorCode(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestMayUseModels: of all callers, only a key with a budget may use the models of the machine's owner, until it
// expires.
func TestMayUseModels(t *testing.T) {
	ci, now := cove.KeyHolder("ci"), time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	some := cove.Budget{Requests: 1}
	g := Grants{ci: {Models: some, Expires: now.Add(1)}, cove.KeyHolder("old"): {Models: some, Expires: now},
		cove.KeyHolder("all"): {Scopes: Scopes}}
	for who, want := range map[cove.Principal]cove.Code{
		cove.KeyHolder("old"): cove.Unauthenticated,
		ci:                    "", cove.MachineOwner(): "", cove.System("x"): "", cove.RegisteredClient("ci"): "",
		cove.KeyHolder("all"): cove.Forbidden, cove.KeyHolder("unknown"): cove.Forbidden, cove.LocalUser(0): cove.Forbidden,
		cove.Address("127.0.0.1"): cove.Forbidden, {}: cove.Forbidden,
	} {
		if err := g.MayUseModels(who, now); cove.ErrorCode(err) != want {
			t.Errorf("%q: %v, want %q", who, err, want)
		}
	}
	err := g.MayUseModels(cove.KeyHolder("all"), now)
	if !strings.Contains(cove.ErrorHint(err), "name: all, model_budget: ") {
		t.Errorf("the hint does not say what to write: %v", err)
	}
}

func TestKnownTo(t *testing.T) {
	a, b := cove.KeyHolder("a"), cove.KeyHolder("b")
	g := Grants{b: {}, a: {}}
	for who, want := range map[cove.Principal][]cove.Principal{
		cove.MachineOwner(): {a, b}, a: {a}, b: {b},
		cove.KeyHolder("c"): nil, cove.LocalUser(0): nil, cove.RegisteredClient("a"): nil, cove.System("x"): nil, {}: nil,
	} {
		if got := g.KnownTo(who); !slices.Equal(got, want) {
			t.Errorf("%q knows of %v, want %v", who, got, want)
		}
	}
}

func TestExpired(t *testing.T) {
	end := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]bool{end.Add(-1): false, end: true, end.Add(time.Hour): true} {
		if got := (Grant{Expires: end}).Expired(at); got != want {
			t.Errorf("at %s: %v", at, got)
		}
	}
	if (Grant{}).Expired(end) {
		t.Error("a key without an end has expired")
	}
}
