package run

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
)

// maxPatch bounds the text of a change-set that is kept, in bytes.
const maxPatch = 16 << 20

// concludeTimeout is how long what follows a run may take: git in a sandbox.
const concludeTimeout = 15 * time.Minute

// attend sees a run through to its end, unless this server lets go of it.
func (r *Runner) attend(l *live, record store.Run) {
	e, err := l.attend(record.Spec.Deadline)
	if err == nil && r.leaves() {
		err = errClosing
	}
	if err == nil {
		l.mu.Lock()
		said := l.record
		l.mu.Unlock()
		err = r.conclude(record, said, e, l.process)
	}
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	l.transcript.end(err != nil)
	r.leave(l) // before followers hear of it, which may look for leftovers
	close(l.done)
}

// conclude does what follows when a run has ended, and records how it has. It may have been begun by an earlier server.
// The guest forgets the process, which is nil where it is gone, after that: until then the next server has its end. The
// error is that this server leaves all of it to the next one.
func (r *Runner) conclude(record store.Run, said store.Run, e ending, process *sandbox.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), concludeTimeout)
	defer cancel()
	who := record.Owner()
	r.tidy(ctx, record, e)
	changes, err := r.changes(ctx, who, record)
	holds := len(changes) > 0
	if err == nil && !holds && goes(record.Spec, false) {
		holds, err = holdsAside(ctx, r.o.Work, record)
	}
	if err != nil && r.leaves() {
		return errClosing
	}
	if err != nil {
		r.o.Log.Warn("what a run has changed is not known", "run", record.ID, "error", err)
	}
	// The sandbox goes before the record: a server that dies in between leaves a run to conclude, and no stray sandbox.
	if goes(record.Spec, holds || err != nil) {
		if record.Made, err = r.o.Sandboxes.Destroy(ctx, who, record.Sandbox, false); err != nil &&
			cove.ErrorCode(err) != cove.NotFound {
			r.o.Log.Warn("the sandbox of a run cannot be destroyed", "run", record.ID, "sandbox", record.Sandbox, "error", err)
		}
	} else {
		record.Made = r.o.Sandboxes.MadeSoFar(ctx, who, record.Sandbox)
	}
	e.overdrawn = r.overdrawn(ctx, record)
	r.ends.record(end{r.concluded(record, e, said, changes), func() {
		if process != nil {
			process.Forget() // fails where the sandbox is gone
		}
	}})
	return nil
}

// goes reports whether the sandbox of a run that has ended goes with it; holds: it may have work. It is pure.
func goes(s store.RunSpec, holds bool) bool { return s.Own && !s.Keep && (s.Ends || !holds) }

// holdsAside reports whether the sandbox of a run has work although its files are as they were: on another branch, in a
// stash, or in commits that were taken back.
func holdsAside(ctx context.Context, work Work, record store.Run) (bool, error) {
	holds, err := work.Holds(ctx, record.Owner(), record.Sandbox)
	if cove.ErrorCode(err) == cove.InvalidArgument {
		return false, nil // without a repository there are files alone
	}
	return holds, err
}

// tidy removes what was placed for a run, and ends what it leaves behind when it
// was ended itself, in a sandbox of its own.
func (r *Runner) tidy(ctx context.Context, record store.Run, e ending) {
	in, err := r.o.Sandboxes.Enter(ctx, record.Owner(), record.Sandbox)
	if err != nil {
		return // it does not run: what was placed is gone
	}
	if record.Spec.Own && record.Spec.Box == "" && (e.asked == askedKill || e.limit != "") {
		in.Guest.Guest().SignalAll(ctx, 9)
	}
	if err := in.Guest.Guest().Remove(ctx, record.Spec.Dir); err != nil {
		r.o.Log.Debug("the files of a run cannot be removed", "run", record.ID, "error", err)
	}
}

// changes returns the changes of a run's sandbox, and keeps their text. Every file of a workspace without a repository
// is a change.
func (r *Runner) changes(ctx context.Context, who cove.Principal, record store.Run) ([]store.FileChange, error) {
	if record.Bind {
		return nil, nil
	}
	changes, err := r.o.Work.Changes(ctx, who, record.Sandbox)
	if cove.ErrorCode(err) == cove.InvalidArgument {
		return r.made(ctx, who, record)
	}
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(r.dirOf(record.ID), patchFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return changes, unwritable(err)
	}
	defer f.Close()
	err = r.o.Work.Patch(ctx, who, record.Sandbox, &bounded{to: f, left: maxPatch})
	if errors.Is(err, errTooMuch) {
		_, err = io.WriteString(f, "\n[cut: there is more]\n")
	}
	return changes, err
}

// made lists what is in a workspace that was empty.
func (r *Runner) made(ctx context.Context, who cove.Principal, record store.Run) ([]store.FileChange, error) {
	in, err := r.o.Sandboxes.Enter(ctx, who, record.Sandbox)
	if err != nil {
		return nil, err
	}
	files, err := in.Guest.Guest().List(ctx, cove.Workspace)
	var all []store.FileChange
	for _, f := range files {
		all = append(all, store.FileChange{Path: f.Name, Change: "added"})
	}
	return all, err
}

var errTooMuch = errors.New("there is more than is kept")

// bounded writes what is kept of a text.
type bounded struct {
	to   io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n, err := b.to.Write(p[:min(len(p), b.left)])
	if b.left -= n; err == nil && n < len(p) {
		err = errTooMuch
	}
	return n, err
}

// overdrawn returns the error about a budget of models that was used up during a run; nil: none was. It says whose
// budget that is.
func (r *Runner) overdrawn(ctx context.Context, record store.Run) error {
	r.o.Flush()
	q := store.DecisionQuery{Sandbox: boxOf(record), Verdict: decision.Deny, Since: record.StartedAt, Limit: store.MaxPage}
	page, err := r.o.Store.For(record.Owner()).ListDecisions(ctx, q)
	if err != nil {
		return nil
	}
	for _, d := range page.Decisions {
		if d.Stage == decision.StageBudget && d.Status == http.StatusTooManyRequests {
			return cove.Errorf(cove.LimitReached, "%s", d.Reason).
				WithHint("a larger one is given outside: --budget, or gateway.budget or a key's model_budget in the configuration")
		}
	}
	return nil
}

// concluded is the record of a run that has ended.
func (r *Runner) concluded(s store.Run, e ending, said store.Run, changes []store.FileChange) store.Run {
	status, limit, why := outcome(e)
	now := r.o.Clock.Now()
	s.Status, s.Limit, s.Error, s.ExitCode, s.EndedAt = status, limit, failureOf(why), e.exit, &now
	s.Result, s.Usage, s.Changes = said.Result, said.Usage, changes
	s.Session, s.Model, s.Spec.Input = said.Session, said.Model, nil
	if s.Spec.Own && s.Spec.Box == "" {
		s.Spec.Used, s.Spec.Models = e.used, e.models
	}
	return s
}
