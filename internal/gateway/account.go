package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
)

// Accounts hold what callers of the API use of the models of the machine's owner: over all their sandboxes, and beyond
// the life of a process. All gateways of a store share one.
type Accounts struct {
	store  store.Vault
	grants access.Grants
	log    *slog.Logger

	mu   sync.Mutex
	open map[cove.Principal]*account // guarded by mu
}

// NewAccounts returns the accounts of the callers with some grants.
func NewAccounts(s store.Vault, grants access.Grants, log *slog.Logger) *Accounts {
	return &Accounts{store: s, grants: grants, log: log, open: map[cove.Principal]*account{}}
}

// of returns a principal's account, and nil for one whose use nothing bounds: the machine's owner, and its registered
// clients. Without accounts a caller has an empty one.
func (a *Accounts) of(who cove.Principal) *account {
	if !who.IsCaller() {
		return nil
	}
	if a == nil {
		return &account{who: who}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[who] == nil {
		a.open[who] = &account{who: who, grants: a.grants, records: a.store.For(who), log: a.log}
	}
	return a.open[who]
}

// account tracks one caller's use of the models of the machine's owner.
type account struct {
	who     cove.Principal
	grants  access.Grants
	records store.Records
	log     *slog.Logger

	mu      sync.Mutex
	ledger  *model.Ledger         // guarded by mu; nil until what was used before has been read
	unsaved []model.ProviderUsage // guarded by mu; the store has not taken it yet
}

// budget returns the most that may be used; zero: nothing may be. Without an account there is no bound.
func (a *account) budget() cove.Budget {
	if a == nil {
		return cove.Budget{}
	}
	return a.grants.Of(a.who).Models
}

// admits refuses every request to the providers of the machine's owner to a caller without a budget, also one that is
// not counted. Errors: *model.Refusal.
func (a *account) admits() error {
	if a == nil {
		return nil
	}
	if err := a.grants.MayUseModels(a.who); err != nil {
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

// begin admits a request of size bytes to a provider, as Ledger.Begin does, and records it before it is made. Errors:
// *model.Refusal, *model.Exhausted, and Canceled.
func (a *account) begin(ctx context.Context, p *model.Provider, size int64) (*spending, error) {
	if a == nil {
		return nil, nil
	}
	if err := a.admits(); err != nil {
		return nil, err
	}
	ledger, err := a.read(ctx)
	if err != nil {
		return nil, model.Refuse(http.StatusServiceUnavailable, "what %s has used of models cannot be read: %s", a.who, err)
	}
	call, err := ledger.Begin(ctx, p, size)
	if err != nil {
		return nil, err
	}
	if err := a.save(ctx, model.ProviderUsage{Provider: p.Name, Usage: model.Usage{Requests: 1}}); err != nil {
		call.End("", model.Usage{})
		return nil, model.Refuse(http.StatusServiceUnavailable, "what %s uses of models cannot be recorded: %s", a.who, err)
	}
	return &spending{a, p.Name, call}, nil
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

// save records use, with what could not be recorded before.
func (a *account) save(ctx context.Context, u model.ProviderUsage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unsaved = append(a.unsaved, u)
	err := a.records.UseModels(ctx, a.unsaved...)
	if err == nil {
		a.unsaved = nil
	}
	return err
}

// saveTimeout is how long the record of an answer may take.
const saveTimeout = 10 * time.Second

// end records the request's use of a model, as Call.End does. What cannot be recorded is with the next request, which
// is refused until it can.
func (s *spending) end(used string, u model.Usage) {
	if s == nil {
		return
	}
	added := s.call.End(used, u)
	if added == (model.Usage{}) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	if err := s.account.save(ctx, model.ProviderUsage{Provider: s.provider, Usage: added}); err != nil {
		s.account.log.Error("what a caller has used of models is not recorded yet", "client", s.account.who.String(),
			"error", err)
	}
}
