package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/provision"
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
	return record, nil
}

// all returns the sandboxes of a principal and the checkouts in them, newest first.
func (rd *records) all(ctx context.Context, who cove.Principal) ([]View, error) {
	all, err := rd.o.Store.For(who).Sandboxes(ctx)
	var views []View
	there := map[cove.SandboxID]store.Sandbox{}
	for _, record := range all {
		if rd.correct(&record); record.Spec.Group != "" {
			there[record.ID] = record
		}
	}
	for _, record := range all {
		rd.correct(&record)
		checkouts := checkoutsOf(record)
		for i := range checkouts {
			rd.correct(&checkouts[i].Sandbox)
		}
		views = append(append(views, checkouts...), View{Sandbox: record, Services: servicesIn(record, there)})
	}
	slices.SortStableFunc(views, func(a, b View) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return views, err
}

// view returns a sandbox of a principal's, with its services.
func (rd *records) view(ctx context.Context, who cove.Principal, id cove.SandboxID) (View, error) {
	record, err := rd.o.Store.For(who).Sandbox(ctx, id)
	there := map[cove.SandboxID]store.Sandbox{}
	for _, service := range record.Spec.Services {
		of, err := rd.own().Sandbox(ctx, service.ID)
		if err == nil {
			there[of.ID] = of
		} else if cove.ErrorCode(err) != cove.NotFound {
			return View{}, err
		}
	}
	return View{Sandbox: record, Services: servicesIn(record, there)}, err
}

// servicesIn returns the services of a sandbox, of those that are there. It is pure.
func servicesIn(of store.Sandbox, there map[cove.SandboxID]store.Sandbox) (views []View) {
	if of.Spec.Group != "" {
		return nil
	}
	for _, service := range of.Spec.Services {
		if record, ok := there[service.ID]; ok {
			views = append(views, View{Sandbox: record})
		}
	}
	return views
}

// find returns a sandbox or checkout by its id, its name, or an unambiguous beginning of either, the caller's own
// first.
func (rd *records) find(ctx context.Context, who cove.Principal, ref string) (View, error) {
	all, err := rd.all(ctx, who)
	if err != nil {
		return View{}, err
	}
	return pick(who, all, ref)
}

// named returns the principal's own sandbox of a name. Errors: NotFound.
func (rd *records) named(ctx context.Context, who cove.Principal, name string) (View, error) {
	all, err := rd.all(ctx, who)
	if err != nil {
		return View{}, err
	}
	i := slices.IndexFunc(all, func(v View) bool { return v.Name == name && v.Owner == who })
	if i < 0 {
		return View{}, cove.Errorf(cove.NotFound, "there is no sandbox %q", name)
	}
	return all[i], nil
}

// destroyed reports whether an id that names no sandbox now is that of one of the principal's, by the audit log.
func (rd *records) destroyed(ctx context.Context, who cove.Principal, ref string) bool {
	id, err := cove.ParseSandboxID(ref)
	if err != nil {
		return false
	}
	page, err := rd.o.Store.For(who).Audit(ctx, store.AuditQuery{Action: auditRecord("create", id, "", nil).Action,
		Object: string(id), Limit: 1})
	return err == nil && len(page.Records) > 0
}

// settle records that a new sandbox is ready, and that it runs.
func (rd *records) settle(ctx context.Context, record store.Sandbox) error {
	own := rd.o.Store.For(record.Owner)
	if err := own.MoveSandbox(ctx, record.ID, cove.StatePreparing, cove.StateReady, ""); err != nil {
		return err
	}
	return own.MoveSandbox(ctx, record.ID, cove.StateReady, cove.StateRunning, "")
}

// enroll records a new sandbox or checkout by add, and sets a free name if it has none.
func (rd *records) enroll(ctx context.Context, owner cove.Principal, name *string, add func() error) error {
	rd.enrolling.Lock()
	defer rd.enrolling.Unlock()
	unnamed := *name == ""
	for try := 0; ; try++ {
		if unnamed {
			*name = madeUpName(try)
		}
		err := add()
		if err == nil || !unnamed || cove.ErrorCode(err) != cove.Conflict || try == 20 {
			return err
		}
		all, lerr := rd.all(ctx, owner)
		if lerr != nil || !slices.ContainsFunc(all, func(v View) bool { return v.Owner == owner && v.Name == *name }) {
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
func (rd *records) touch(ctx context.Context, v View) {
	ctx = context.WithoutCancel(ctx)
	err := rd.own().TouchSandbox(ctx, v.box(), rd.o.Clock.Now())
	if err = errors.Join(err, rd.touchCheckout(ctx, v)); err != nil {
		rd.o.Log.Warn("cannot note that a sandbox is used", "sandbox", v.ID, "error", err)
	}
}

// inside returns a running sandbox, without recording a use.
func (rd *records) inside(ctx context.Context, who cove.Principal, ref string) (Inside, error) {
	found, err := rd.find(ctx, who, ref)
	if err != nil {
		return Inside{}, err
	}
	if err := rd.owns(); err != nil {
		return Inside{}, err
	}
	rd.mu.Lock()
	r := rd.held[found.box()]
	var sb *provision.Sandbox
	var open opened
	if r != nil {
		sb, open = r.box, r.open
	}
	rd.mu.Unlock()
	if found.State != cove.StateRunning || sb == nil {
		return Inside{}, wrongState(found.Sandbox, "enter")
	}
	return Inside{
		Sandbox: found.Sandbox, Within: found.Within, Place: found.Place, Guest: sb, Env: open.env, Dir: found.Spec.WorkDir,
		Stopped: sb.Done(), terminals: open.ttys, git: open.git, route: open.route, cpu: open.cpu,
		disks: rd.host.Disks,
	}, nil
}

// Enter returns a running sandbox, and records its use. Errors: NotFound, Conflict when it does not run.
func (rd *records) Enter(ctx context.Context, who cove.Principal, ref string) (Inside, error) {
	in, err := rd.inside(ctx, who, ref)
	if err == nil {
		rd.touch(ctx, View{Sandbox: in.Sandbox, Within: in.Within})
	}
	return in, err
}

// auditRecord returns the audit record of an action on a sandbox; err is its failure or refusal.
func auditRecord(action string, on cove.SandboxID, detail string, err error) store.Record {
	r := store.Record{Action: "sandbox-" + action, Object: string(on), Verdict: "ok", Detail: detail}
	if err != nil {
		r.Verdict, r.Detail = "error", detail+": "+err.Error()
	}
	return r
}

// auditLife records a change of a sandbox's life.
func (rd *records) auditLife(ctx context.Context, who cove.Principal, action string, record store.Sandbox, err error) {
	rd.Audit(ctx, who, auditRecord(action, record.ID, record.Name, err))
}

// pick is find's choice among the sandboxes that the caller sees. A name that another caller has given takes no
// beginning of a name away from the caller's own. It is pure.
func pick(who cove.Principal, all []View, ref string) (View, error) {
	named := func(b View) bool { return b.Name == ref }
	begins := func(b View) bool {
		if b.Spec.Group != "" && !strings.Contains(ref, ".") { // of which the sandbox's own name is the beginning
			return false
		}
		return ref != "" && (strings.HasPrefix(b.Name, ref) || strings.HasPrefix(string(b.ID), ref) ||
			strings.HasPrefix(string(b.ID), "sb_"+ref))
	}
	for _, fits := range []func(View) bool{
		func(b View) bool { return string(b.ID) == ref },
		func(b View) bool { return b.Owner == who && named(b) },
		func(b View) bool { return b.Owner == who && begins(b) },
		named, begins,
	} {
		var found []View
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
			return View{}, cove.Errorf(cove.Conflict, "%.80q may be %s", ref, strings.Join(names, ", ")).
				WithHint("say more of the name, or give the id")
		}
	}
	return View{}, cove.Errorf(cove.NotFound, "there is no sandbox %.80q", ref).
		WithHint("\"cove list\" shows those that there are")
}

// checkoutsOf returns the checkouts in a sandbox as callers see them, the newest first. It is pure.
func checkoutsOf(in store.Sandbox) (views []View) {
	for _, c := range slices.Backward(in.Spec.Checkouts) {
		v := View{Sandbox: in, Within: in.ID, Place: c.Place}
		v.ID, v.Name, v.Reason, v.CreatedAt, v.LastUsedAt = c.ID, c.Name, c.Reason, c.CreatedAt, c.LastUsedAt
		if c.State != cove.StateRunning {
			v.State = c.State
		}
		v.Spec.WorkDir, v.Spec.Labels = c.WorkDir, c.Labels
		v.Spec = store.SandboxSpec{Spec: v.Spec.Spec, Repository: c.Repository, GitBeside: in.Spec.GitBeside}
		views = append(views, v)
	}
	return views
}

// alone returns an error for a checkout, which cannot be started, stopped or paused without the others in its sandbox.
func (v View) alone(action string) error {
	if v.Spec.Group != "" && action != "network" && action != "resize" {
		of, _, _ := strings.Cut(v.Name, ".")
		return cove.Errorf(cove.Conflict, "%s is a service of %s: it is not possible to %s it alone", v.Name, of, action).
			WithHint("its sandbox is %s", of)
	}
	if v.Within == "" {
		return nil
	}
	return cove.Errorf(cove.Conflict,
		"%s is a checkout in a sandbox that others work in, too: it is not possible to %s it alone",
		v.Name, action).
		WithHint("that sandbox is %s", v.Within)
}

// shared reports whether the view is a shared sandbox or a checkout in one.
func (v View) shared() bool { return v.Within != "" || v.Spec.Shared != "" }

// changeCheckout changes the record of a checkout. Errors: NotFound.
func (rd *records) changeCheckout(ctx context.Context, v View, f func(*store.Checkout)) error {
	return rd.o.Store.For(v.Owner).ChangeSandbox(ctx, v.Within, func(b *store.Sandbox) error {
		for i := range b.Spec.Checkouts {
			if c := &b.Spec.Checkouts[i]; c.ID == v.ID {
				f(c)
				return nil
			}
		}
		return store.NoSandbox(v.ID)
	})
}

// touchCheckout records the use of a checkout; a sandbox has none to record.
func (rd *records) touchCheckout(ctx context.Context, v View) error {
	if v.Within == "" {
		return nil
	}
	return rd.changeCheckout(ctx, v, func(c *store.Checkout) {
		c.LastUsedAt = rd.o.Clock.Now().UTC().Truncate(time.Microsecond)
	})
}

// reasonGone is the reason in the record of a sandbox that ended while no server ran.
const reasonGone = "it ended while no server ran, as in a restart of the machine"
