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
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/model"
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
	refusal := cove.Errorf(cove.Forbidden, "the code was refused: it looks like an attempt to escape: %s", strings.Join(found, "; ")).
		WithHint("this is a tripwire for known recipes; change the code if it means something else")
	now := x.o.Clock.Now().UTC()
	begun := x.entry(e, now)
	entry := begun
	entry.Status, entry.Error, entry.FinishedAt = api.StatusRefused, refusal.Message, &now
	if err := errors.Join(x.o.Store.For(e.who).Begin(ctx, begun), x.o.Store.For(e.who).Finish(ctx, entry)); err != nil {
		x.o.Log.Error("cannot record a refused execution", "execution", e.id, "error", err)
	}
	x.Audit(ctx, e.who, store.Record{Action: "execute", Object: string(e.id), Verdict: "deny", Detail: strings.Join(found, "; ")})
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
		Execution: api.Execution{
			ID: string(e.id), Language: e.runtime.Name, Engine: name, Status: api.StatusRunning, ExitCode: -1,
			CreatedAt: started, SecurityEvents: Events(e.events),
		},
		Instance: x.o.Instance, Owner: e.who, CodeHash: hex.EncodeToString(sum[:]), Spec: spec,
	}
}

// Events are security events as the API shows them.
func Events(events []detect.Event) []api.SecurityEvent {
	shown := make([]api.SecurityEvent, 0, len(events))
	for _, ev := range events {
		shown = append(shown, api.SecurityEvent{Rule: ev.Rule, Severity: string(ev.Severity), Line: ev.Line, Detail: ev.Detail})
	}
	return shown
}

// record runs e between its two records. The first is written while the
// sandbox is being made, and is there before the program begins.
func (x *Executions) record(ctx context.Context, e *execution) (Result, error) {
	started := x.o.Clock.Now().UTC().Truncate(time.Microsecond) // as the store keeps it
	entry := x.entry(e, started)
	begun := make(chan error, 1)
	go func() { begun <- x.o.Store.For(e.who).Begin(context.WithoutCancel(ctx), entry) }()
	var beginErr error
	wait := func() error {
		if begun != nil {
			beginErr, begun = <-begun, nil
		}
		return beginErr
	}
	r, err := e.run(ctx, wait)
	wait()
	if errors.Is(err, errEnded) {
		r, err = Result{ID: e.id, Language: e.runtime.Name, Engine: e.engine.Name(), ExitCode: -1, Killed: true, Events: e.events}, nil
	}
	r.Started, r.Labels = started, e.request.Labels
	if beginErr != nil {
		return Result{}, beginErr
	}
	x.finish(ctx, e, entry, r, err)
	return r, err
}

// finish writes the second record and the audit line.
func (x *Executions) finish(ctx context.Context, e *execution, entry store.Execution, r Result, err error) {
	if err == nil {
		entry.Execution = r.API()
	} else {
		now := x.o.Clock.Now().UTC()
		entry.Status, entry.Error, entry.FinishedAt = api.StatusFailed, err.Error(), &now
	}
	if err := x.o.Store.For(e.who).Finish(context.WithoutCancel(ctx), entry); err != nil {
		x.o.Log.Error("cannot record the end of an execution", "execution", e.id, "error", err)
	}
	verdict := "ok"
	if err != nil {
		verdict = "error"
	}
	x.Audit(ctx, e.who, store.Record{
		Action: "execute", Object: string(e.id), Verdict: verdict,
		Detail: fmt.Sprintf("%s on %s: %s, exit code %d", entry.Language, entry.Engine, entry.Status, entry.ExitCode),
	})
}

// Status is how an execution with this result is listed.
func (r Result) Status() api.Status {
	switch {
	case r.Killed:
		return api.StatusKilled
	case r.Limit == cove.LimitTimeout:
		return api.StatusTimeout
	case r.Limit != "":
		return api.StatusLimited
	}
	return api.StatusCompleted
}

// API is the result as the API shows it.
func (r Result) API() api.Execution {
	finished := r.Started.Add(r.Duration).Truncate(time.Microsecond)
	return api.Execution{
		ID: string(r.ID), Language: r.Language, Engine: r.Engine, Status: r.Status(),
		Output: text(r.Stdout), Stderr: text(r.Stderr),
		ExitCode: r.ExitCode, Duration: r.Duration.Seconds(), LimitHit: string(r.Limit), Truncated: r.Truncated,
		Usage: api.ResourceUsage{
			CPUTimeMS: float64(r.Usage.CPUTime.Microseconds()) / 1000, MemoryPeakMB: float64(r.Usage.MemoryPeak) / (1 << 20),
			PIDsUsed: r.Usage.PIDsPeak, BytesWritten: r.Usage.BytesWritten, DiskUsed: r.Usage.DiskUsed,
		},
		Models: model.API(r.Models), SecurityEvents: Events(r.Events), Labels: r.Labels, CreatedAt: r.Started, FinishedAt: &finished,
	}
}

// text is output as JSON can carry it.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
