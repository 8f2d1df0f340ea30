package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/store"
)

// usedModels is a store of what clients have used of models.
type usedModels struct {
	store.Store
	mu     sync.Mutex
	of     map[string]model.Usage // guarded by mu
	broken error                  // guarded by mu
}

func (s *usedModels) ModelsUsed(_ context.Context, client string) ([]model.ProviderUsage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []model.ProviderUsage{{Provider: "one", Usage: s.of[client]}}, s.broken
}

func (s *usedModels) UseModels(_ context.Context, client string, used ...model.ProviderUsage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.of[client] = s.of[client].Plus(model.Sum(used))
	}
	return s.broken
}

func (s *usedModels) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// TestAccounts: a key uses the models of the machine's owner within its budget, over all its sandboxes and processes;
// a caller without one does not at all, and what cannot be recorded is not spent. The owner needs no budget.
func TestAccounts(t *testing.T) {
	kept := &usedModels{of: map[string]model.Usage{}}
	ci, poor, old := cove.KeyHolder("ci"), cove.KeyHolder("poor"), cove.KeyHolder("old")
	grants := access.Grants{ci: {Models: cove.Budget{Requests: 4, Tokens: 1000}}, poor: {Scopes: access.Usual},
		old: {Models: cove.Budget{Requests: 4}, Expires: time.Now().Add(-time.Hour)}}
	open := func(who cove.Principal, a *Accounts) *Route {
		t.Helper()
		g := modelGateway(t)
		g.o.Accounts = a
		r, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Owner: who, Providers: []string{"one"}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	accounts := func() *Accounts {
		return NewAccounts(store.NewVault(kept), grants, clock.Real(), slog.New(slog.DiscardHandler))
	}
	ask := func(what string, r *Route, status int, says string) {
		t.Helper()
		_, passage, answer := askEndpoint(t, r, "messages", `{"model":"small"}`, nil)
		got, said := 0, ""
		if answer != nil {
			got, said = answer.Status, string(answer.Body)
		} else {
			passage.End(errors.New("no answer"))
		}
		if got != status || !strings.Contains(said, says) {
			t.Errorf("%s: %d %s, want %d %q", what, got, said, status, says)
		}
	}
	all := accounts()
	first, second := open(ci, all), open(ci, all)
	ask("the first", first, 0, "")
	ask("in another sandbox", second, 0, "")
	for name, who := range map[string]cove.Principal{"a key without a budget": poor, "a local user": cove.LocalUser(7),
		"nobody": {}} {
		ask(name, open(who, all), 403, "owner")
		ask(name+", without accounts", open(who, nil), 403, "owner")
	}
	if _, _, answer := askEndpoint(t, open(poor, all), "messages/count_tokens", `{"model":"small"}`, nil); answer == nil ||
		answer.Status != 403 {
		t.Errorf("what is not counted, without a budget: %+v", answer)
	}
	ask("a key that has expired, of a sandbox that lasts", open(old, all), 403, "has expired")
	ask("the owner", open(cove.MachineOwner(), all), 0, "")

	kept.breaks(errors.New("no space"))
	ask("what cannot be recorded", first, 503, `"api_error","message":"what key:ci uses of models cannot be recorded; the`)
	ask("what was used cannot be read", open(ci, accounts()), 503, "cannot be read; the log")
	kept.breaks(nil)
	again := accounts() // of the next process
	if used := kept.of["key:ci"]; used.Requests != 2 {
		t.Errorf("recorded: %+v", used)
	}
	ask("the third", second, 0, "")
	ask("the last, as the one that was refused does not count", second, 0, "")
	if used := kept.of["key:ci"]; used != (model.Usage{Requests: 4}) || len(kept.of) != 1 {
		t.Errorf("recorded: %+v", kept.of)
	}
	for name, r := range map[string]*Route{"the same sandbox": first, "another one": second, "a new one": open(ci, all),
		"one of another process": open(ci, again)} {
		ask(name, r, 429, "the budget of the API key ci (model_budget in the server's configuration) is used up: 4 of 4")
	}
}

// TestReservedUse: what is reserved for a request is recorded before it is made, and stays used where it has no answer;
// what cannot be recorded at its end is recorded at that of the process.
func TestReservedUse(t *testing.T) {
	kept, ci := &usedModels{of: map[string]model.Usage{}}, cove.KeyHolder("ci")
	all := NewAccounts(store.NewVault(kept), access.Grants{ci: {Models: cove.Budget{Tokens: 1e6}}}, clock.Real(),
		slog.New(slog.DiscardHandler))
	g := modelGateway(t)
	g.o.Accounts = all
	r, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Owner: ci, Providers: []string{"one"}})
	if err != nil {
		t.Fatal(err)
	}
	begin := func() (*http.Request, proxy.Passage) {
		t.Helper()
		h, passage, answer := askEndpoint(t, r, "messages", `{"model":"small"}`, nil)
		if answer != nil {
			t.Fatalf("%+v", answer)
		}
		return h, passage
	}
	tokens := func(when string, requests, output int64) {
		t.Helper()
		if used := kept.of["key:ci"]; used.Requests != requests || used.Output != output {
			t.Errorf("%s: %+v, want %d requests and %d tokens of answers", when, used, requests, output)
		}
	}
	h, passage := begin()
	tokens("before it is made", 1, 4096)
	if _, err := io.ReadAll(h.Body); err != nil {
		t.Fatal(err)
	}
	passage.End(proxy.ErrUnfinished)
	tokens("the sandbox has left before the answer", 1, 4096)
	_, passage = begin()
	tokens("beside the second", 2, 2*4096)
	kept.breaks(errors.New("no space"))
	passage.End(errors.New("unreachable"))
	all.Flush()
	tokens("its end cannot be recorded", 2, 2*4096)
	kept.breaks(nil)
	all.Flush()
	all.Flush()
	tokens("at the end of the process", 2, 4096)
}
