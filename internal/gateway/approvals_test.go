package gateway

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/store"
)

// records stands for the store's approvals and audit log.
type records struct {
	memory
	written []store.Record
}

func (r *records) Append(_ context.Context, record store.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = append(r.written, record)
	return nil
}

func (r *records) Revoke(_ context.Context, _ string, id cove.ApprovalID) error {
	return cove.Errorf(cove.NotFound, "no approval %s", id)
}

// TestApprovals checks who sees and answers the questions of which routes, over two gateways, under which names they
// are shown and audited, and how long they are shown to be open.
func TestApprovals(t *testing.T) {
	c := clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &records{}
	vault, log := store.NewVault(r), slog.New(slog.DiscardHandler)
	a := NewApprovals(store.Auditor{Store: vault, Clock: c, Log: log})
	var gateways []*Gateway
	for range 2 {
		g := New(Options{Dir: t.TempDir(), Clock: c, Approvals: &vault, Log: log})
		t.Cleanup(g.Close)
		a.Add(g)
		gateways = append(gateways, g)
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	open := func(g *Gateway, s Spec) *Route {
		t.Helper()
		s.Sandbox, s.Policy = cove.NewSandboxID(), []*policy.Document{document(t, asks)}
		w, err := g.Open(s)
		if err != nil {
			t.Fatal(err)
		}
		changed := waitsFor(w)
		request := requestOf(t, "asked.test", "GET", "/")
		waiting.Go(func() { w.Decide(context.Background(), request) })
		<-changed
		c.Advance(time.Second) // so that ages differ
		return w
	}
	var (
		keeper, stranger, owner = cove.KeyHolder("keeper"), cove.KeyHolder("stranger"), cove.MachineOwner()
		of                      = cove.NewExecutionID()
		elsewhere               = cove.NewSandboxID()
	)
	execution := open(gateways[0], Spec{Name: string(of), Object: string(of), Owner: keeper})
	sandbox := open(gateways[1], Spec{Name: "before", Owner: keeper})
	sandbox.Rename("after")
	open(gateways[0], Spec{Name: "brave-otter", Object: string(elsewhere), Asker: keeper, Owner: owner}) // by the host
	open(gateways[1], Spec{Name: "builder", Object: "builder", Owner: cove.RegisteredClient("builder")})
	open(gateways[1], Spec{Name: "own", Owner: owner})

	names := func(who cove.Principal) (all []string) {
		for _, h := range a.Holds(who) {
			all = append(all, string(h.Execution)+"/"+h.Client)
		}
		return all
	}
	owns := []string{string(of) + "/", "after/", "brave-otter/"}
	for who, want := range map[cove.Principal][]string{
		keeper: owns, stranger: nil, owner: append(slices.Clip(owns), "/builder", "own/"), {}: nil,
	} {
		if got := names(who); !slices.Equal(got, want) {
			t.Errorf("%s: %q waits, want %q", who, got, want)
		}
	}

	until := held(execution)[0].Until
	execution.EndBy(until.Add(time.Hour))
	if got := a.Holds(keeper)[0].Until; !got.Equal(until) {
		t.Errorf("with time left, it waits until %s, want %s", got, until)
	}
	execution.EndBy(until.Add(-time.Minute))
	if got := a.Holds(keeper)[0].Until; !got.Equal(until.Add(-time.Minute)) {
		t.Errorf("it waits until %s, longer than the execution may take", got)
	}

	all := a.Holds(owner)
	yes := func(approval.Hold) error { return nil }
	for name, err := range map[string]error{
		"a stranger":  a.Answer(t.Context(), stranger, all[0].ID, approval.Answer{Allow: true}, yes),
		"another's":   a.Answer(t.Context(), keeper, all[4].ID, approval.Answer{Allow: true}, yes),
		"a client's":  a.Answer(t.Context(), keeper, all[3].ID, approval.Answer{Allow: true}, yes),
		"an unknown":  a.Answer(t.Context(), owner, cove.NewHoldID(), approval.Answer{Allow: true}, yes),
		"an approval": a.Revoke(t.Context(), keeper, cove.NewApprovalID()),
	} {
		if cove.ErrorCode(err) != cove.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	forbidden := cove.Errorf(cove.Forbidden, "no")
	if err := a.Answer(t.Context(), keeper, all[0].ID, approval.Answer{Allow: true}, func(h approval.Hold) error {
		if h.Execution != of {
			t.Errorf("the judge is asked about %+v", h)
		}
		return forbidden
	}); err != forbidden {
		t.Errorf("not allowed to answer: %v", err)
	}
	err := a.Answer(t.Context(), keeper, all[0].ID, approval.Answer{Scope: "ever"}, yes)
	if cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("a wrong answer: %v", err)
	}
	if len(r.written) > 0 || len(a.Holds(owner)) != len(all) {
		t.Errorf("refusals have changed something: %+v", r.written)
	}
	for _, h := range all[:4] {
		who := keeper
		if h.Client != "" {
			who = owner
		}
		if err := a.Answer(t.Context(), who, h.ID, approval.Answer{Allow: true}, yes); err != nil {
			t.Errorf("%+v: %v", h, err)
		}
	}
	var objects []string
	for _, record := range r.written {
		objects = append(objects, record.Action+" "+record.Object+" "+record.Who)
	}
	want := []string{"approve " + string(of) + " key:keeper", "approve " + string(sandbox.sandbox) + " key:keeper",
		"approve " + string(elsewhere) + " key:keeper", "approve builder local"}
	if !slices.Equal(objects, want) {
		t.Errorf("audited: %q, want %q", objects, want)
	}
	if got := names(owner); !slices.Equal(got, []string{"own/"}) {
		t.Errorf("left: %q", got)
	}
	gateways[1].Close()
	if got := names(owner); len(got) > 0 {
		t.Errorf("of a closed gateway: %q", got)
	}
}
