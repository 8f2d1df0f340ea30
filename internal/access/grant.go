package access

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
)

// Grant describes what a caller may do and use. A quota of zero is no bound.
type Grant struct {
	Scopes     []Scope
	Expires    time.Time     // from then on the key is not valid; zero: never
	Concurrent int           // executions, runs, commands and terminals at once
	Rate       float64       // requests a second; zero: as the server's
	CPUHour    time.Duration // of CPU time that all its work has used in the last hour
	CPUDay     time.Duration // and in the last 24 hours
	Sandboxes  int           // long-lived sandboxes, running or not
	Disk       int64         // bytes: the sum of their limits
	// Models is the most that may be used of the models of the machine's owner, over all sandboxes and all time. Unlike of
	// other quotas, zero of each means that none of them may be used.
	Models cove.Budget
}

// MayUseModels refuses the models of the machine's owner to a caller that has no budget for them, or whose key has
// expired: its sandboxes may last longer. Errors: Forbidden, Unauthenticated.
func (g Grants) MayUseModels(who cove.Principal, now time.Time) error {
	if !who.IsCaller() {
		return nil
	}
	name, is := who.Key()
	grant := g.Of(who)
	if is && grant.Expired(now) {
		return Expired(name)
	}
	if grant.Models != (cove.Budget{}) {
		return nil
	}
	if is {
		return cove.Errorf(cove.Forbidden, "the API key %s may not use the models of this machine's owner", name).
			WithHint("in the server's configuration, give it a budget: api_keys, name: %s, model_budget: cost=5", name)
	}
	return cove.Errorf(cove.Forbidden, "the models of this machine are its owner's to use").
		WithHint("use the command line on that machine, or an API key that has a model_budget")
}

// ModelsUsedUp adds to the error about a budget for models of a key what to do about it.
func ModelsUsedUp(err error) error {
	return cove.Errorf(cove.Overloaded, "%w", err).
		WithHint("raise model_budget of the key in the server's configuration: it is for all that the key has ever used")
}

// Grants holds the grant of each API key.
type Grants map[cove.Principal]Grant

// Of returns the grant of a principal. One that holds no key has the usual scopes, and no quota of its own.
func (g Grants) Of(p cove.Principal) Grant {
	if grant, is := g[p]; is {
		return grant
	}
	return Grant{Scopes: Usual}
}

// KnownTo returns the holders of keys of which a principal may know: all for the machine's owner, sorted by name, and
// for others themselves alone.
func (g Grants) KnownTo(who cove.Principal) []cove.Principal {
	if _, is := g[who]; is {
		return []cove.Principal{who}
	}
	if !who.IsOwner() {
		return nil
	}
	return slices.SortedFunc(maps.Keys(g), func(a, b cove.Principal) int {
		return strings.Compare(a.String(), b.String())
	})
}

// Expired reports whether the key of a grant is not valid any more at a time.
func (g Grant) Expired(at time.Time) bool { return !g.Expires.IsZero() && !at.Before(g.Expires) }

// CountsCPU reports whether CPU time has a quota.
func (g Grant) CountsCPU() bool { return g.CPUHour > 0 || g.CPUDay > 0 }

// SpareCPU refuses more work where the CPU time of an hour or a day is used up; used returns what was used since a
// time. Errors: Overloaded, used's.
func (g Grant) SpareCPU(now time.Time, used func(since time.Time) (time.Duration, error)) error {
	for _, w := range []struct {
		name   string
		length time.Duration
		most   time.Duration
	}{{"hour", time.Hour, g.CPUHour}, {"24 hours", 24 * time.Hour, g.CPUDay}} {
		if w.most == 0 {
			continue
		}
		spent, err := used(now.Add(-w.length))
		if err != nil {
			return err
		}
		if spent >= w.most {
			return cove.Errorf(cove.Overloaded, "this API key has used %.1f s of CPU time in the last %s, of %g s",
				spent.Seconds(), w.name, w.most.Seconds()).
				WithHint("try again later, or raise cpu_seconds of the key in the server's configuration")
		}
	}
	return nil
}

// TooManyAtOnce is the error about one more run than a key may have at once.
func (g Grant) TooManyAtOnce() error {
	return cove.Errorf(cove.Overloaded, "%d executions, runs, commands and terminals of this API key are under way",
		g.Concurrent).
		WithHint("wait until one has ended, or raise concurrent of the key in the server's configuration")
}
