package execution

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
)

// inspect looks for escape attempts. Critical ones are refused, with a record.
func (x *Executions) inspect(ctx context.Context, e *execution) error {
	e.events = detect.Scan(e.runtime.Name, e.request.Code)
	if !detect.IsCritical(e.events) {
		return nil
	}
	var found []string
	for _, ev := range e.events {
		if ev.Severity == detect.Critical {
			found = append(found, fmt.Sprintf("%s in line %d (%s)", ev.Rule, ev.Line, ev.Detail))
		}
	}
	refusal := cove.Errorf(cove.Forbidden, "the code was refused: it looks like an attempt to escape: %s",
		strings.Join(found, "; ")).
		WithHint("this is a tripwire for known recipes; change the code if it means something else")
	now := x.o.Clock.Now().UTC()
	begun := x.entry(e, now)
	begun.Spec = cove.Spec{} // what did not run needs no description, which may be long
	entry := begun
	entry.Status, entry.Error, entry.FinishedAt = cove.StatusRefused, refusal.Message, &now
	record := store.Record{Time: now, Action: "execute", Object: string(e.id), Verdict: "deny",
		Detail: strings.Join(found, "; ")}
	ctx = context.WithoutCancel(ctx)
	records := x.o.Store.For(e.who)
	if err := records.Begin(ctx, begun); err != nil { // on a full disk there is room for the line of the audit log
		err = errors.Join(err, records.Append(ctx, record))
		x.o.Log.Error("cannot record a refused execution", "execution", e.id, "error", err)
	} else {
		x.outcomes.record(ctx, outcome{entry, record}, x.calls.Go)
	}
	return refusal
}

// entry is the stored record of e at its beginning.
func (x *Executions) entry(e *execution, started time.Time) store.Execution {
	sum := sha256.Sum256(e.request.Code)
	name := ""
	if e.engine != nil {
		name = e.engine.Name()
	}
	spec := e.request.Spec
	spec.Engine, spec.Limits, spec.Env = name, e.limits, nil
	return store.Execution{
		ID: e.id, Instance: x.o.Instance, Owner: e.who, CodeHash: hex.EncodeToString(sum[:]), Language: e.runtime.Name,
		Engine: name, Spec: spec, Status: cove.StatusRunning, ExitCode: -1, Events: e.events, CreatedAt: started,
	}
}

// finish writes the second record and the audit line, and reports whether they are in the store.
func (x *Executions) finish(ctx context.Context, e *execution, entry store.Execution, r Result, err error) bool {
	verdict, now := "ok", x.o.Clock.Now().UTC()
	if err == nil {
		end := r.Record()
		release, unread := x.texts.add(ctx, &end, r.Output)
		defer release()
		if unread != nil {
			x.o.Log.Error("cannot read an execution's output again", "execution", e.id, "error", unread)
		}
		end.Instance, end.Owner, end.CodeHash, end.Spec = entry.Instance, entry.Owner, entry.CodeHash, entry.Spec
		entry = end
	} else {
		verdict = "error"
		entry.Status, entry.Error, entry.FinishedAt = cove.StatusFailed, err.Error(), &now
		entry.Events = e.events
	}
	detail := fmt.Sprintf("%s on %s: %s, exit code %d", entry.Language, entry.Engine, entry.Status, entry.ExitCode)
	for _, ev := range entry.Events {
		if ev.Rule == detect.MadeInMount {
			detail += "; " + ev.Detail
		}
	}
	return x.outcomes.record(ctx, outcome{entry, store.Record{
		Time: now, Action: "execute", Object: string(e.id), Verdict: verdict,
		Detail: detail,
	}}, x.calls.Go)
}

// Known returns a stored record as it is known here: one that is recorded as running, and has ended, with its end.
func (x *Executions) Known(e store.Execution) store.Execution {
	if e.Status == cove.StatusRunning {
		if o, ended := x.outcomes.Waiting(e.ID); ended {
			return o.end
		}
	}
	return e
}

// Recorded returns an execution of the principal's as it is known here, and apart from it the output that it has in the
// history. The caller releases the output. Errors: NotFound, Canceled, Overloaded.
func (x *Executions) Recorded(ctx context.Context, who cove.Principal,
	id cove.ExecutionID) (store.Execution, *spool.Output, error) {
	const n = 2 * store.MaxOutput
	if err := x.texts.room.Acquire(ctx, n); err != nil {
		return store.Execution{}, nil, cove.Errorf(cove.Canceled, "the caller went away: %w", err)
	}
	defer x.texts.room.Release(n)
	e, err := x.o.Store.For(who).Get(ctx, id)
	if err != nil {
		return e, nil, err
	}
	e = x.Known(e)
	o, err := x.o.Spool.Of(who, e.Output, e.Stderr)
	if err != nil {
		return store.Execution{}, nil, cove.Errorf(cove.Overloaded, "the output cannot be read now: %w", err).
			WithHint("try again when other outputs have been read")
	}
	e.Output, e.Stderr = "", ""
	return e, o, nil
}

// Status returns the state of an execution with this result.
func (r Result) Status() cove.Status {
	switch {
	case r.Shutdown:
		return cove.StatusShutdown
	case r.Killed:
		return cove.StatusKilled
	case r.Failure != "":
		return cove.StatusFailed
	case r.Limit == cove.LimitTimeout:
		return cove.StatusTimeout
	case r.Limit != "":
		return cove.StatusLimited
	}
	return cove.StatusCompleted
}

// Record returns the part of an execution's record that its result determines, without the output.
func (r Result) Record() store.Execution {
	finished := r.Started.Add(r.Duration).Truncate(time.Microsecond)
	return store.Execution{
		ID: r.ID, Language: r.Language, Engine: r.Engine, Status: r.Status(),
		Spec:     cove.Spec{Shape: cove.Shape{Limits: r.Limits}, Labels: r.Labels},
		ExitCode: r.ExitCode, Limit: r.Limit, Duration: r.Duration, Usage: r.Usage, Models: r.Models, Events: r.Events,
		Truncated: r.Truncated, Error: r.Failure,
		CreatedAt: r.Started, FinishedAt: &finished,
	}
}
