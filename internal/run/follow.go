package run

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/message"
)

// Event is something that happens in a run. One field but Seq is set.
type Event struct {
	Seq      int // messages and logs so far
	Message  *message.Message
	Log      string
	Decision *decision.Decision
	Holds    []approval.Hold // all that waits now; nothing, where something has
	Asked    bool            // Holds is set
}

// newsInterval is how often the store is asked for what became of attempts to leave the sandbox.
const newsInterval = 250 * time.Millisecond

// Follow hands out the events of a run, those after a message or log of a number, and returns the run when it has ended
// and everything is handed out. begun is told of the run first. Who follows neither slows a run nor ends it. Errors:
// NotFound; Shutdown when this server lets go of the run; those of begun, take and ctx.
func (r *Runner) Follow(ctx context.Context, who cove.Principal, ref string, after int, begun func(store.Run) error,
	take func(Event) error) (store.Run, error) {
	record, err := r.find(ctx, who, ref)
	if err != nil {
		return store.Run{}, err
	}
	l := r.liveOf(record.ID)
	if l == nil { // it may have ended since the record was read
		if record, err = r.o.Store.For(who).Run(ctx, record.ID); err != nil {
			return store.Run{}, err
		}
		record = r.ends.known(record)
	}
	if record.Interactive && record.Status == store.RunRunning {
		return store.Run{}, cove.Errorf(cove.Conflict, "the run %s is in a terminal, and has no messages", record.ID).
			WithHint("look at it: cove attach %s", record.SandboxName)
	}
	if err := checkFiles(record); err != nil {
		return store.Run{}, err
	}
	if err := begun(show(who, r.current(record))); err != nil {
		return store.Run{}, err
	}
	f := &follower{r: r, record: record, l: l, take: take, since: record.StartedAt, at: after}
	if f.entries, err = openReader(r.dirOf(record.ID), after); err != nil {
		return store.Run{}, err
	}
	defer f.entries.close()
	if err := f.follow(ctx); err != nil {
		return store.Run{}, err
	}
	if record, err = r.o.Store.For(who).Run(ctx, record.ID); err != nil {
		return store.Run{}, err
	}
	run := r.ends.known(record)
	run.Recordings, err = r.recordings(run.ID)
	return show(who, run), err
}

// follower hands out the events of a run to one caller.
type follower struct {
	r       *Runner
	record  store.Run
	l       *live // nil of one that has ended, or is not here
	take    func(Event) error
	entries *reader
	since   time.Time
	at      int             // messages and logs that have been handed out
	caught  bool            // what was decided before has been handed out
	seen    int64           // number of the last decision
	told    []approval.Hold // what waits, as it was handed out
}

func (f *follower) follow(ctx context.Context) error {
	for {
		var news, holds <-chan struct{}
		over := true
		if f.l != nil {
			news, over = f.l.transcript.heard()
			var err error
			if holds, err = f.tellHolds(); err != nil {
				return err
			}
		}
		if err := f.batch(ctx); err != nil {
			return err
		}
		if over {
			return f.rest(ctx)
		}
		select {
		case <-news:
		case <-holds:
		case <-f.r.o.Clock.After(newsInterval):
		case <-ctx.Done():
			return cove.Errorf(cove.Canceled, "the follower went away: %w", ctx.Err())
		}
	}
}

// rest waits for what follows the last message: the run's record.
func (f *follower) rest(ctx context.Context) error {
	if f.l == nil {
		if f.record.Status == store.RunRunning {
			return cove.Errorf(cove.Conflict,
				"the run %s is not to be followed now: its sandbox is paused, or another process has it",
				f.record.ID).WithHint("resume it: cove resume %s", f.record.SandboxName)
		}
		return nil
	}
	select {
	case <-f.l.done:
	case <-ctx.Done():
		return cove.Errorf(cove.Canceled, "the follower went away: %w", ctx.Err())
	}
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	return f.l.err
}

// batch hands out what is there by now, in the order of time.
func (f *follower) batch(ctx context.Context) error {
	decisions, err := f.decided(ctx)
	if err != nil {
		return err
	}
	before := func(at time.Time) error { // hands out decisions of before a time
		for len(decisions) > 0 && (at.IsZero() || decisions[0].Time.Before(at)) {
			if err := f.take(Event{Seq: f.at, Decision: &decisions[0]}); err != nil {
				return err
			}
			decisions = decisions[1:]
		}
		return nil
	}
	for {
		e, err := f.entries.next()
		if errors.Is(err, io.EOF) {
			return before(time.Time{})
		}
		if err == nil {
			err = before(e.at())
		}
		if err == nil {
			f.at = f.entries.seq
			err = f.take(Event{Seq: f.at, Message: e.Message, Log: e.Log})
		}
		if err != nil {
			return err
		}
	}
}

// decided are decisions that were recorded since the last time, oldest first.
func (f *follower) decided(ctx context.Context) (all []decision.Decision, err error) {
	if !f.caught {
		newest, err := f.r.o.Store.For(f.record.Owner()).ListDecisions(ctx, store.DecisionQuery{Limit: 1})
		if err != nil {
			return nil, err
		}
		if f.caught = true; len(newest.Decisions) > 0 {
			f.seen = newest.Decisions[0].Seq
		}
		all, err = f.r.decisions(ctx, f.record)
		return slices.DeleteFunc(all, func(d decision.Decision) bool { return f.l != nil && d.Seq > f.seen }), err
	}
	q := store.DecisionQuery{Sandbox: boxOf(f.record), Since: f.since}
	if f.l == nil {
		return nil, nil
	}
	for {
		page, err := f.r.o.Store.For(f.record.Owner()).DecisionsAfter(ctx, f.seen, store.MaxPage)
		if err != nil {
			return all, err
		}
		for _, d := range page {
			if f.seen = d.Seq; q.Selects(d) {
				all = append(all, d)
			}
		}
		if len(page) < store.MaxPage {
			slices.SortStableFunc(all, byTime)
			return all, nil
		}
	}
}

// tellHolds hands out what waits for an answer, and says how a change shows.
func (f *follower) tellHolds() (<-chan struct{}, error) {
	all, changed := f.l.holds()
	if slices.EqualFunc(all, f.told, func(a, b approval.Hold) bool { return a.ID == b.ID }) {
		return changed, nil
	}
	f.told = all
	return changed, f.take(Event{Seq: f.at, Holds: all, Asked: true})
}
