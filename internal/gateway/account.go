package gateway

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
)

// Accounts hold what callers of the API use of the models of the machine's owner: over all their sandboxes, and beyond
// the life of a process. All gateways of a store share one.
type Accounts struct {
	store  store.Vault
	grants access.Grants
	clock  clock.Clock
	log    *slog.Logger

	mu   sync.Mutex
	open map[cove.Principal]*account // guarded by mu
}

// NewAccounts returns the accounts of the callers with some grants.
func NewAccounts(s store.Vault, grants access.Grants, c clock.Clock, log *slog.Logger) *Accounts {
	return &Accounts{store: s, grants: grants, clock: c, log: log, open: map[cove.Principal]*account{}}
}

// of returns a principal's account, and nil for one whose use nothing bounds: the machine's owner, and its registered
// clients. Without accounts a caller has an empty one.
func (a *Accounts) of(who cove.Principal) *account {
	if !who.IsCaller() {
		return nil
	}
	if a == nil {
		return &account{who: who, clock: clock.Real()}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[who] == nil {
		a.open[who] = &account{who: who, grants: a.grants, records: a.store.For(who), clock: a.clock,
			log: a.log}
	}
	return a.open[who]
}

// account tracks one caller's use of the models of the machine's owner.
type account struct {
	who     cove.Principal
	grants  access.Grants
	records store.Records
	clock   clock.Clock
	log     *slog.Logger

	mu      sync.Mutex
	ledger  *model.Ledger          // guarded by mu; nil until what was used before has been read
	unsaved map[string]model.Usage // guarded by mu; by provider; of ended requests, which the store has not taken yet
}

// budget returns the most that may be used; zero: nothing may be. Without an account there is no bound.
func (a *account) budget() cove.Budget {
	if a == nil {
		return cove.Budget{}
	}
	return a.grants.Of(a.who).Models
}

// admits refuses every request to the providers of the machine's owner to a caller without a budget or whose key has
// expired, also one that is not counted. Errors: *model.Refusal.
func (a *account) admits() error {
	if a == nil {
		return nil
	}
	if err := a.grants.MayUseModels(a.who, a.clock.Now()); err != nil {
		return model.Refuse(http.StatusForbidden, "%s", err)
	}
	return nil
}

// spending is a request for a model that an account pays for. Nil is one that none pays for.
type spending struct {
	account  *account
	provider string
	call     *model.Call
}

// begin admits a request of size bytes for a model of a provider, as Ledger.Begin does. Before it is made, it is
// recorded with what is reserved for it, so that a process that is killed gives nothing back. Errors: *model.Refusal,
// *model.Exhausted, and Canceled.
func (a *account) begin(ctx context.Context, p *model.Provider, e model.Endpoint, of string, size int64) (
	*spending, error) {
	if a == nil {
		return nil, nil
	}
	if err := a.admits(); err != nil {
		return nil, err
	}
	ledger, err := a.read(ctx)
	if err != nil {
		return nil, a.unavailable("read", err)
	}
	call, err := ledger.Begin(ctx, p, e, of, size)
	if err != nil {
		return nil, err
	}
	u := model.ProviderUsage{Provider: p.Name, Usage: call.Aside()}
	u.Requests = 1
	if err := a.save(ctx, u); err != nil {
		call.Undo()
		return nil, a.unavailable("recorded", err)
	}
	return &spending{a, p.Name, call}, nil
}

// unavailable logs why what a caller uses cannot be read or recorded. The sandbox does not learn it.
func (a *account) unavailable(done string, err error) error {
	a.log.Error("what a caller uses of models cannot be "+done, "client", a.who.String(), "error", err)
	return model.Refuse(http.StatusServiceUnavailable,
		"what %s uses of models cannot be %s; the log of the server says why", a.who, done)
}

// read returns the ledger, with what was used before.
func (a *account) read(ctx context.Context) (*model.Ledger, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ledger == nil {
		used, err := a.records.ModelsUsed(ctx)
		if err != nil {
			return nil, err
		}
		a.ledger = model.Resume(a.budget(), a.name(), used)
	}
	return a.ledger, nil
}

// name returns whose budget it is, in words.
func (a *account) name() string {
	if name, is := a.who.Key(); is {
		return "the API key " + name + " (model_budget in the server's configuration)"
	}
	return a.who.String()
}

// save records use of providers, with what could not be recorded before.
func (a *account) save(ctx context.Context, all ...model.ProviderUsage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, u := range a.unsaved {
		all = append(all, model.ProviderUsage{Provider: name, Usage: u})
	}
	if len(all) == 0 {
		return nil
	}
	err := a.records.UseModels(ctx, all...)
	if err == nil {
		a.unsaved = nil
	}
	return err
}

// keep adds use to what is recorded with the next request, or with Flush.
func (a *account) keep(u model.ProviderUsage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unsaved == nil {
		a.unsaved = map[string]model.Usage{}
	}
	a.unsaved[u.Provider] = a.unsaved[u.Provider].Plus(u.Usage)
}

// Flush records what could not be recorded at the end of requests. It is for the end of the process.
func (a *Accounts) Flush() {
	if a == nil {
		return
	}
	a.mu.Lock()
	open := slices.Collect(maps.Values(a.open))
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	for _, one := range open {
		if err := one.save(ctx); err != nil {
			one.log.Error("what a caller has used of models is not recorded", "client", one.who.String(), "error", err)
		}
	}
}

// saveTimeout is how long the record of an answer may take.
const saveTimeout = 10 * time.Second

// end records the request's use of a model, as Call.End does, in place of what was reserved. What cannot be recorded is
// with the next request, which is refused until it can.
func (s *spending) end(used string, u model.Usage) {
	if s == nil {
		return
	}
	more := model.ProviderUsage{Provider: s.provider, Usage: s.call.End(used, u).Minus(s.call.Aside())}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	if err := s.account.save(ctx, more); err != nil {
		s.account.keep(more)
		s.account.log.Error("what a caller has used of models is not recorded yet", "client", s.account.who.String(),
			"error", err)
	}
}

// endUnanswered is end for a request that was sent and has no answer. The answer may have been made: what was reserved
// for it is used, so that who leaves before it comes does not use the model for nothing.
func (s *spending) endUnanswered(used string, u model.Usage) {
	if s == nil {
		return
	}
	u.Output = max(u.Output, s.call.Aside().Output)
	s.end(used, u)
}
