package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
)

// records are the recorded part of sandboxes.
type records struct{ *residents }

// change changes the spec of a record, here and in the store.
func (rd *records) change(ctx context.Context, record *store.Sandbox, f func(*store.SandboxSpec)) error {
	return rd.o.Store.For(record.Owner).ChangeSandbox(ctx, record.ID, func(b *store.Sandbox) error {
		f(&b.Spec)
		record.Spec = b.Spec
		return nil
	})
}

// current returns a sandbox of a principal as it is recorded, corrected where a full disk kept a change from the
// record.
func (rd *records) current(ctx context.Context, who cove.Principal, id cove.SandboxID) (store.Sandbox, error) {
	record, err := rd.o.Store.For(who).Sandbox(ctx, id)
	if err != nil {
		return record, err
	}
	rd.correct(&record)
	if record.Spec.Within != "" {
		if host, err := rd.o.Store.For(who).Sandbox(ctx, record.Spec.Within); err == nil {
			rd.correct(&host)
			record.State = stateWithin(record, host)
		}
	}
	return record, nil
}

// all returns the sandboxes of a principal, newest first.
func (rd *records) all(ctx context.Context, who cove.Principal) ([]store.Sandbox, error) {
	all, err := rd.o.Store.For(who).Sandboxes(ctx)
	hosts := map[cove.SandboxID]store.Sandbox{}
	for i := range all {
		rd.correct(&all[i])
		if all[i].Spec.Shared != "" {
			hosts[all[i].ID] = all[i]
		}
	}
	for i := range all {
		if host, ok := hosts[all[i].Spec.Within]; ok {
			all[i].State = stateWithin(all[i], host)
		}
	}
	return all, err
}

// find returns a sandbox by its id, its name (the caller's own first), or an unambiguous beginning of either.
func (rd *records) find(ctx context.Context, who cove.Principal, ref string) (store.Sandbox, error) {
	all, err := rd.all(ctx, who)
	if err != nil {
		return store.Sandbox{}, err
	}
	return pick(who, all, ref)
}

// settle records that a new sandbox is ready, and that it runs.
func (rd *records) settle(ctx context.Context, record store.Sandbox) error {
	own := rd.o.Store.For(record.Owner)
	if err := own.MoveSandbox(ctx, record.ID, cove.StatePreparing, cove.StateReady, ""); err != nil {
		return err
	}
	return own.MoveSandbox(ctx, record.ID, cove.StateReady, cove.StateRunning, "")
}

// enroll records a new sandbox, with a free name if it has none.
func (rd *records) enroll(ctx context.Context, record *store.Sandbox, unnamed bool) error {
	for try := 0; ; try++ {
		if unnamed {
			record.Name = madeUpName(try)
		}
		err := rd.o.Store.For(record.Owner).AddSandbox(ctx, *record, rd.host.Most)
		if err == nil || !unnamed || cove.ErrorCode(err) != cove.Conflict || try == 20 {
			return err
		}
		if all, lerr := rd.o.Store.For(record.Owner).Sandboxes(ctx); lerr != nil || !slices.ContainsFunc(all, func(b store.Sandbox) bool { return b.Owner == record.Owner && b.Name == record.Name }) {
			return err // it was not about the name
		}
	}
}

// stopped records that a sandbox has ended by itself.
func (rd *records) stopped(ctx context.Context, record *store.Sandbox) error {
	err := rd.own().MoveSandbox(ctx, record.ID, record.State, cove.StateStopped, reasonGone)
	if err == nil {
		record.State = cove.StateStopped
	}
	return err
}

// touch records the use of a sandbox. Its failure does not prevent the use.
func (rd *records) touch(ctx context.Context, id cove.SandboxID) {
	if err := rd.own().TouchSandbox(context.WithoutCancel(ctx), id, rd.o.Clock.Now()); err != nil {
		rd.o.Log.Warn("cannot note that a sandbox is used", "sandbox", id, "error", err)
	}
}

// inside returns a running sandbox, without recording a use.
func (rd *records) inside(ctx context.Context, who cove.Principal, ref string) (Inside, error) {
	record, err := rd.find(ctx, who, ref)
	if err != nil {
		return Inside{}, err
	}
	if err := rd.owns(); err != nil {
		return Inside{}, err
	}
	rd.mu.Lock()
	r := rd.held[cmp.Or(record.Spec.Within, record.ID)]
	var sb *provision.Sandbox
	var open opened
	if r != nil {
		sb, open = r.box, r.open
	}
	rd.mu.Unlock()
	if record.State != cove.StateRunning || sb == nil {
		return Inside{}, wrongState(record, "enter")
	}
	return Inside{Sandbox: record, Guest: sb, Env: open.env, Dir: record.Spec.WorkDir, Stopped: sb.Done(), terminals: open.ttys, git: open.git, way: open.way}, nil
}

// Enter returns a running sandbox, and records its use. Errors: NotFound, Conflict when it does not run.
func (rd *records) Enter(ctx context.Context, who cove.Principal, ref string) (Inside, error) {
	in, err := rd.inside(ctx, who, ref)
	if err == nil {
		rd.touch(ctx, in.ID)
		if in.Spec.Within != "" {
			rd.touch(ctx, in.Spec.Within)
		}
	}
	return in, err
}

// auditLife records a change of a sandbox's life.
func (rd *records) auditLife(ctx context.Context, who cove.Principal, action string, record store.Sandbox, err error) {
	r := store.Record{Action: "sandbox-" + action, Object: string(record.ID), Verdict: "ok", Detail: record.Name}
	if err != nil {
		r.Verdict, r.Detail = "error", record.Name+": "+err.Error()
	}
	rd.Audit(ctx, who, r)
}

// pick is find's choice among the sandboxes that the caller sees. It is pure.
func pick(who cove.Principal, all []store.Sandbox, ref string) (store.Sandbox, error) {
	for _, fits := range []func(store.Sandbox) bool{
		func(b store.Sandbox) bool { return string(b.ID) == ref },
		func(b store.Sandbox) bool { return b.Name == ref && b.Owner == who },
		func(b store.Sandbox) bool { return b.Name == ref },
		func(b store.Sandbox) bool {
			return ref != "" && (strings.HasPrefix(b.Name, ref) || strings.HasPrefix(string(b.ID), ref) || strings.HasPrefix(string(b.ID), "sb_"+ref))
		},
	} {
		var found []store.Sandbox
		for _, b := range all {
			if fits(b) {
				found = append(found, b)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			var names []string
			for _, b := range found {
				names = append(names, fmt.Sprintf("%s (%s)", b.Name, b.ID))
			}
			return store.Sandbox{}, cove.Errorf(cove.Conflict, "%.80q may be %s", ref, strings.Join(names, ", ")).WithHint("say more of the name, or give the id")
		}
	}
	return store.Sandbox{}, cove.Errorf(cove.NotFound, "there is no sandbox %.80q", ref).WithHint("\"cove list\" shows those that there are")
}

// Inside is a running sandbox, for starting processes in it.
type Inside struct {
	store.Sandbox
	Guest   engine.Sandbox
	Env     []string        // of every process, before what it asks for itself
	Dir     string          // where processes begin
	Stopped <-chan struct{} // closed when it does not run any more

	terminals *terminals.Set
	git       workGit
	way       egress.Route // nil without a network
}
