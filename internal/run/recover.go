package run

import (
	"context"
	"errors"
	"maps"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
)

// TakeUp is told of programs that an earlier server has left; it is sandbox.Host's.
func (r *Runner) TakeUp(l sandbox.LeftProcess) {
	r.mu.Lock()
	r.left[cove.RunID(l.Name)] = l
	now := r.ready && !r.closed // of a sandbox that was paused
	if now {
		r.running.Add(1)
	}
	r.mu.Unlock()
	if now {
		go func() {
			defer r.running.Done()
			r.takeUp(context.Background(), l)
		}()
	}
}

// Recover goes on with runs that earlier servers have begun, and concludes those whose programs are not there any more.
// Sandboxes must have been adopted. It may be called again, for runs that could not be gone on with yet. An error says
// which could not be put right.
func (r *Runner) Recover(ctx context.Context) error {
	r.mu.Lock()
	left := maps.Clone(r.left)
	r.ready = true
	r.mu.Unlock()
	for _, l := range left {
		r.takeUp(ctx, l)
	}
	return r.Reconcile(ctx)
}

// Unlisted implements sandbox.Successor.
func (r *Runner) Unlisted(id cove.SandboxID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlisted[id] = true
}

// takeUpTimeout is how long a guest may take to hand over a program, or to end it.
const takeUpTimeout = 30 * time.Second

// takeUp goes on with a run, leaves it to the next attempt or the next server until its time is up, or ends its
// program.
func (r *Runner) takeUp(ctx context.Context, l sandbox.LeftProcess) {
	r.takingUp.Lock()
	defer r.takingUp.Unlock()
	r.mu.Lock()
	_, waits := r.left[cove.RunID(l.Name)]
	r.mu.Unlock()
	if !waits {
		return
	}
	leave := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.left, cove.RunID(l.Name))
	}
	record, err := r.o.Store.For(cove.System("")).Run(ctx, cove.RunID(l.Name))
	unknown := err != nil && cove.ErrorCode(err) != cove.NotFound
	its := err == nil && record.Status == store.RunRunning && boxOf(record) == string(l.Sandbox) // a guest says anything
	switch {
	case its:
		err = r.again(ctx, record, l)
	case err == nil:
		err = cove.Errorf(cove.NotFound, "no run %.64q runs in the sandbox %s", l.Name, l.Sandbox)
	}
	if err == nil {
		leave()
		return
	}
	overdue := its && ctx.Err() == nil && !r.leaves() && !r.o.Clock.Now().Before(record.Spec.Deadline)
	if unknown || !hopeless(err) && !overdue {
		r.o.Log.Warn("a run goes on without this server, which cannot take it up now", "run", l.Name, "sandbox",
			l.Sandbox, "error", err)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, takeUpTimeout)
	defer cancel()
	r.o.Log.Warn("a program of a run is ended, which cannot be gone on with", "run", l.Name, "sandbox",
		l.Sandbox, "error", err)
	if its {
		r.mu.Lock()
		r.ended[record.ID] = err
		r.mu.Unlock()
	}
	if err := l.End(ctx); err != nil {
		r.o.Log.Warn("a program of a run cannot be ended", "run", l.Name, "sandbox", l.Sandbox, "error", err)
	}
}

// hopeless reports whether an error says that a run can never be gone on with. Another error, such as the end of this
// server or a full disk, passes, and the run's program must live on meanwhile. It is pure.
func hopeless(err error) bool {
	if _, refused := errors.AsType[*guest.Failure](err); refused {
		return true
	}
	if _, lies := errors.AsType[*guest.ProtocolError](err); lies {
		return true
	}
	switch cove.ErrorCode(err) {
	case cove.NotFound, cove.Conflict, cove.Corrupt, cove.RuntimeMissing, cove.InvalidArgument, cove.Unsupported:
		return true
	}
	return false
}

// again goes on with a run whose program is there.
func (r *Runner) again(ctx context.Context, record store.Run, left sandbox.LeftProcess) error {
	l, err := r.reopen(ctx, record)
	if err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, takeUpTimeout) // the server does not listen before
	defer cancel()
	p, err := left.TakeUp(asked, l.transcript.size, record.Spec.Input)
	if err == nil {
		l.begin(p)
		l.release, err = r.o.Places.Hold(ctx, record.Owner(), true)
	}
	if err == nil {
		if err = r.enter(l); err == nil {
			go r.attendAgain(l, record)
			return nil
		}
		l.release()
	}
	l.transcript.end(true)
	return err
}

// attendAgain attends a run after what it has printed for an earlier server.
func (r *Runner) attendAgain(l *live, record store.Run) {
	if err := l.replay(); err != nil {
		l.broken = err
	}
	r.attend(l, record)
}

// reopen opens what an earlier server has written down.
func (r *Runner) reopen(ctx context.Context, record store.Run) (*live, error) {
	eq, err := r.o.Agents.Equip(fit.Want{Agent: record.Agent}, false)
	if err != nil {
		return nil, err
	}
	t, err := openTranscript(r.dirOf(record.ID), r.o.MaxOutput)
	if err != nil {
		return nil, err
	}
	return r.newLive(record, t, eq.Parser(record.Spec.Before)), nil
}

// Reconcile concludes runs whose server and program have died. It removes files of runs that the store does not know,
// such as those beyond their retention, and the oldest ones beyond the bounds.
func (r *Runner) Reconcile(ctx context.Context) error {
	errs := []error{r.ends.Retry(ctx)}
	q := store.RunQuery{Status: store.RunRunning, Limit: store.MaxPage}
	for more := true; more; more = q.Cursor != "" {
		page, err := r.o.Store.For(cove.System("")).Runs(ctx, q)
		if err != nil {
			return err
		}
		for _, record := range page.Runs {
			if err := r.reconcile(ctx, record); err != nil {
				errs = append(errs, err)
			}
		}
		q.Cursor = page.Next
	}
	return errors.Join(append(errs, r.sweep(ctx), makeRoom(ctx, r.o, r.has))...)
}

func (r *Runner) reconcile(ctx context.Context, record store.Run) error {
	if r.has(record.ID) {
		return nil
	}
	there, err := r.o.Sandboxes.Find(ctx, cove.System(""), record.Sandbox)
	if err == nil && there.State == cove.StatePaused {
		return nil // its program goes on when it is resumed
	}
	if now, err := r.o.Store.For(cove.System("")).Run(ctx, record.ID); err != nil || now.Status != store.RunRunning {
		return err // it has ended meanwhile
	}
	if record.Interactive {
		r.concludeScreen(record, -1)
		return nil
	}
	r.mu.Lock()
	lost := left{sandbox: there.Name, runs: err == nil && there.State == cove.StateRunning,
		unlisted: r.unlisted[there.ID], ended: r.ended[record.ID]}
	delete(r.ended, record.ID)
	r.mu.Unlock()
	said := record
	l, err := r.reopen(ctx, record)
	if err == nil {
		defer func() { l.transcript.end(cove.ErrorCode(err) == cove.Shutdown) }()
		err = errors.Join(l.replay(), l.recall())
	}
	var e ending
	if err == nil {
		e.result, said = l.result, l.record
		lost.silent = l.transcript.silent()
	} else {
		r.o.Log.Warn("what an agent has printed cannot be read", "run", record.ID, "error", err)
	}
	if e.result == nil { // else it had said what it had to say
		e.err, e.broken = lost.why(), true
	}
	err = r.conclude(record, said, e, nil)
	return err
}

// left describes a run whose server has died and whose program is not there.
type left struct {
	sandbox  string // its name; empty where it is gone
	runs     bool   // the sandbox does, whose guest remembers every program of a run until the run's end is recorded
	unlisted bool   // the guest has not told of its programs
	silent   bool   // nothing was printed
	ended    error  // why the next server has ended the program; nil where it has not
}

// why returns the error of the run. It is pure.
func (l left) why() error {
	if l.runs && l.unlisted {
		return cove.Errorf(cove.Unavailable, "the server went away while the agent worked, or before, and the next one was "+
			"not told whether the agent runs still").
			WithHint("the work is in the sandbox %s: cove diff %[1]s; \"cove stop %[1]s\" ends what runs there", l.sandbox)
	}
	if l.runs && l.silent && l.ended == nil {
		return cove.Errorf(cove.Shutdown, "the server went away before the agent was started").
			WithHint("nothing was done: ask for the same again")
	}
	lost := cove.Errorf(cove.Unavailable, "the server went away while the agent worked, and so has the agent")
	if l.ended != nil {
		lost = cove.Errorf(cove.Unavailable, "the server went away while the agent worked, and the next one has ended the "+
			"agent, which it could not go on with: %w", l.ended)
	}
	if l.sandbox == "" {
		return lost.WithHint("ask for the same again")
	}
	return lost.WithHint("the work is in the sandbox %s: cove diff %[1]s", l.sandbox)
}

// sweep removes directories of runs that the store does not know, and the sandboxes of those whose server died before
// it recorded them.
func (r *Runner) sweep(ctx context.Context) error {
	entries, err := os.ReadDir(r.o.Dir)
	if err != nil {
		return nil // there are none yet
	}
	here := func(id cove.RunID) bool { return r.begins.has(id) || r.liveOf(id) != nil }
	var errs []error
	for _, entry := range entries {
		id, err := cove.ParseRunID(entry.Name())
		if err != nil || here(id) {
			continue
		}
		left := r.begins.left(id)
		_, err = r.o.Store.For(cove.System("")).Run(ctx, id)
		switch {
		case err == nil && left:
			err = r.begins.forget(id)
		case cove.ErrorCode(err) != cove.NotFound || here(id):
			err = nil
		default:
			if err = nil; left {
				err = destroyOf(ctx, r.o, id)
			}
			if err == nil {
				err = os.RemoveAll(r.dirOf(id))
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// destroyOf destroys the sandbox that was made for a run.
func destroyOf(ctx context.Context, o Options, id cove.RunID) error {
	all, err := o.Sandboxes.List(ctx, cove.System(""))
	errs := []error{err}
	for _, there := range all.Sandboxes {
		if there.Spec.Labels[RunLabel] != string(id) {
			continue
		}
		o.Log.Warn("a sandbox is destroyed, whose run was never recorded", "run", id, "sandbox", there.ID)
		_, err := o.Sandboxes.Destroy(ctx, there.Owner, string(there.ID), false)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
