// Package execution runs snippets of code: it admits an execution, has an engine make a sandbox for it, runs the
// code, enforces the limits, records the result, and cleans up. It knows contracts only.
package execution

import (
	"context"
	"runtime"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/store"
)

// New makes Executions.
func New(o Options) *Executions {
	x := &Executions{
		Auditor: store.Auditor{Store: o.Store, Clock: o.Clock, Log: o.Log},
		o:       o,
		queue: newQueue(newLine(o.MaxConcurrent, o.MaxQueued, o.MaxComputing, o.Processors), o.MaxWait, o.Grants,
			o.Clock),
		running: map[cove.ExecutionID]*execution{}, outcomes: newOutcomes(o.Store, o.Log),
		texts: newTexts(), trials: trials{last: map[string]*trial{}, work: map[string]clock.Instant{}},
		born: o.Clock.Now(), began: o.Clock.Monotonic(),
	}
	kept := o.Pool
	kept.Clock, kept.Log = o.Clock, o.Log
	kept.Spare = func() bool { return x.queue.load().Computing < runtime.GOMAXPROCS(0) }
	x.Pool = &Pool{kept: pool.New(kept), plain: func(ctx context.Context, p Plain) (pool.Recipe, error) {
		return plain(ctx, x, p)
	}}
	return x
}

// Open opens the default engine, which otherwise happens at the first use.
func (x *Executions) Open() error {
	_, err := x.o.Engines.Get("")
	return err
}

// Load returns how much runs and waits.
func (x *Executions) Load() Load { return x.queue.load() }

// Kill ends a running execution of the principal's. Errors: NotFound, Conflict when it has
// ended or runs in another process of Cove.
func (x *Executions) Kill(ctx context.Context, who cove.Principal, id cove.ExecutionID) error {
	e, err := x.find(ctx, who, id)
	if err != nil {
		return err
	}
	e.end(endKilled)
	x.Audit(ctx, who, store.Record{Action: "kill", Object: string(id), Verdict: "ok"})
	return nil
}

// Models returns what a running execution of the principal's has used of models so far;
// nothing if it does not run here.
func (x *Executions) Models(who cove.Principal, id cove.ExecutionID) []model.ProviderUsage {
	x.mu.Lock()
	e := x.running[id]
	x.mu.Unlock()
	if e == nil || !who.Sees(e.who) {
		return nil
	}
	if route := e.currentRoute(); route != nil {
		return route.Models()
	}
	return nil
}

// ExtendNetwork adds to the policy of a running execution of the principal's, and returns how many of its connections
// that has cut. Errors: InvalidArgument, NotFound, Conflict when it has ended, runs in another process of Cove, or has
// no network.
func (x *Executions) ExtendNetwork(ctx context.Context, who cove.Principal, id cove.ExecutionID,
	documents []*policy.Document) (cut int, err error) {
	route, err := x.routeOf(ctx, who, id)
	if err != nil {
		return 0, err
	}
	if cut, err = route.Extend(documents...); err == nil {
		x.Audit(ctx, who, store.Record{Action: "network", Object: string(id), Verdict: "ok", Detail: describe(documents)})
	}
	return cut, err
}

// Certificate returns that of the authority which a running execution of the principal's
// trusts, as PEM. Errors: NotFound, Conflict, as ExtendNetwork's.
func (x *Executions) Certificate(ctx context.Context, who cove.Principal, id cove.ExecutionID) ([]byte, error) {
	route, err := x.routeOf(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return route.Certificate(), nil
}

// routeOf finds the egress route of a running execution of the principal's.
func (x *Executions) routeOf(ctx context.Context, who cove.Principal, id cove.ExecutionID) (egress.Route, error) {
	e, err := x.find(ctx, who, id)
	if err != nil {
		return nil, err
	}
	route := e.currentRoute()
	if route == nil {
		return nil, cove.Errorf(cove.Conflict, "execution %s has no network, or not yet", id).
			WithHint("start it with --network or --allow")
	}
	return route, nil
}

// describe lists the rules of documents, for the record.
func describe(documents []*policy.Document) string {
	var ids []string
	for _, d := range documents {
		for _, r := range d.Rules {
			ids = append(ids, r.ID)
		}
	}
	return strings.Join(ids, ", ")
}

// Close stops admitting executions, waits for those that run until ctx ends, kills the rest, and returns when they are
// recorded and their sandboxes are gone.
func (x *Executions) Close(ctx context.Context) {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.queue.close()
	select {
	case <-x.queue.empty():
	case <-ctx.Done():
		x.mu.Lock()
		x.ending = true
		for _, e := range x.running {
			e.end(endShutdown)
		}
		x.mu.Unlock()
		<-x.queue.empty()
	}
	x.clean.Wait()
	x.Pool.kept.Close()
	x.calls.Wait() // their records are written last
	x.outcomes.Retry(ctx)
}

// own returns the records as Cove itself sees them, for recovery, reaping and pruning.
func (x *Executions) own() store.Records { return x.o.Store.For(cove.System("")) }
