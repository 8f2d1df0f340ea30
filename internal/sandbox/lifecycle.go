package sandbox

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/store"
)

// Start starts a stopped sandbox. A running one stays as it is. Errors: NotFound, Conflict, and those of Create.
func (s *Sandboxes) Start(ctx context.Context, who cove.Principal, ref string) (View, error) {
	found, err := s.find(ctx, who, ref)
	if err != nil {
		return View{}, err
	}
	started, err := s.start(ctx, who, found.box())
	if err == nil && found.Within != "" {
		return s.Find(ctx, who, string(found.ID))
	}
	return started, err
}

// Destroy removes a sandbox in whatever state; with keepWork its checkout stays in place. ref may also be the id of an
// orphan. The id of a sandbox of the principal's that is destroyed already is no error. It returns what came into being
// in writable mounts, of which no caller has been told. Errors: NotFound, Unavailable.
func (s *Sandboxes) Destroy(ctx context.Context, who cove.Principal, ref string, keepWork bool) (made []hostpath.Made,
	err error) {
	found, err := s.find(ctx, who, ref)
	if err == nil {
		ref = string(found.ID)
		made, err = s.destroy(ctx, who, found, keepWork)
	} else if cove.ErrorCode(err) == cove.NotFound && who.IsOwner() {
		err = s.destroyOrphan(ctx, who, ref, keepWork, err)
	}
	if cove.ErrorCode(err) == cove.NotFound && s.destroyed(ctx, who, ref) {
		return nil, nil
	}
	return made, err
}

func (s *Sandboxes) destroy(ctx context.Context, who cove.Principal, found View, keepWork bool) ([]hostpath.Made,
	error) {
	if found.Spec.Group != "" {
		return nil, found.alone("destroy")
	}
	if keepWork && found.shared() {
		return nil, cove.Errorf(cove.Unsupported, "the work of %s is in a sandbox that is shared, and goes with it",
			found.Name).
			WithHint("push or apply it first, then destroy it without keeping it")
	}
	r, leave, err := s.enter(ctx, found.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	if found.Within != "" {
		return nil, s.destroyCheckout(ctx, who, r, found)
	}
	record, err := s.o.Store.For(who).Sandbox(ctx, found.ID)
	if err != nil {
		s.drop(r)
		return nil, err
	}
	err = s.dismantle(context.WithoutCancel(ctx), r, record.ID, keepWork)
	for _, v := range append(checkoutsOf(record), View{Sandbox: record}) {
		s.auditLife(ctx, who, "destroy", v.Sandbox, err)
	}
	if err != nil {
		return nil, err
	}
	made := s.tell(r)
	if keepWork && strings.Contains(record.Spec.Directory, string(record.ID)) { // no directory of a person's that it had
		if kept := hostpath.Kept(ctx, record.Spec.Directory); kept.Any() {
			made = append(made, kept)
		}
	}
	return made, nil
}

// List returns the sandboxes of a principal, newest first, and to the machine's owner the orphans, which belong to no
// sandbox.
func (s *Sandboxes) List(ctx context.Context, who cove.Principal) (Listing, error) {
	all, err := s.all(ctx, who)
	list := Listing{Sandboxes: slices.DeleteFunc(slices.Clone(all), func(v View) bool { return v.Spec.Group != "" })}
	if err == nil && who.IsOwner() && s.owns() == nil {
		list.Orphans, err = s.orphans(ctx, all)
	}
	return list, err
}

// Find returns a sandbox with its use of the disk. Errors: NotFound, Conflict when ref fits several.
func (s *Sandboxes) Find(ctx context.Context, who cove.Principal, ref string) (View, error) {
	shown, err := s.find(ctx, who, ref)
	if err != nil {
		return View{}, err
	}
	if in, err := s.inside(ctx, who, string(shown.ID)); err == nil {
		shown.Terminals = infosOf(in.terminals)
	}
	if s.owns() == nil {
		switch shown.Disk, err = s.host.Disks.Used(ctx, shown.ID); cove.ErrorCode(err) {
		case cove.NotFound:
			err = nil
		case cove.Corrupt, cove.Unavailable:
			shown.Reason, err = cmp.Or(shown.Reason, err.Error()), nil
		}
	}
	return shown, err
}

// ChangeNetwork changes the network of a sandbox, at once and for each start; with reset, earlier changes are taken
// back first. Its services have the same change. cut counts the connections that it has cut. Errors: NotFound,
// InvalidArgument, Conflict when it has no network.
func (s *Sandboxes) ChangeNetwork(ctx context.Context, who cove.Principal, ref string, change store.NetworkChange,
	reset bool) (cut int, err error) {
	found, err := s.find(ctx, who, ref)
	if err != nil {
		return 0, err
	}
	for _, of := range append([]View{found}, found.Services...) {
		more, err := changeNetwork(ctx, s, who, string(of.ID), change, reset)
		if cut += more; err != nil {
			return cut, err
		}
	}
	return cut, nil
}

func changeNetwork(ctx context.Context, s *Sandboxes, who cove.Principal, ref string, change store.NetworkChange,
	reset bool) (cut int, err error) {
	_, err = s.live(ctx, who, ref, "network", func(r *resident, record *store.Sandbox) error {
		changed := *record
		if reset {
			changed.Spec.Changes = nil
		}
		if n := change.Network(); n.Opens() || len(n.Deny) > 0 || n.Mode != "" {
			changed.Spec.Changes = append(slices.Clip(changed.Spec.Changes), change)
		}
		n, err := s.networkOf(changed)
		if err != nil {
			return err
		}
		_, open := s.running(r)
		none := cmp.Or(n.Mode, cove.NetworkNone) == cove.NetworkNone
		switch {
		case open.route != nil:
			if cut, err = open.route.Replace(n.Policy...); err != nil {
				return err
			}
		case none && change.Mode == "" && !reset:
			return cove.Errorf(cove.Conflict, "the sandbox %s has no network", record.Name).
				WithHint("give it one: cove policy mode %s limited", record.Name)
		case !none && record.State != cove.StateStopped:
			return cove.Errorf(cove.Conflict, "the sandbox %s was started without a network", record.Name).
				WithHint("stop it, change its network, and start it again: cove stop %s", record.Name)
		}
		return s.change(ctx, record, func(s *store.SandboxSpec) {
			s.Changes = changed.Spec.Changes
			if open.route != nil {
				s.Mode = n.Mode
			}
		})
	})
	return cut, err
}

// NetworkOf returns the network of a sandbox, as it is or as it is when the sandbox is started again. Errors: NotFound.
func (s *Sandboxes) NetworkOf(ctx context.Context, who cove.Principal, ref string) (View, egress.Network, error) {
	found, err := s.find(ctx, who, ref)
	if err != nil {
		return View{}, egress.Network{}, err
	}
	n, err := s.networkOf(found.Sandbox)
	return found, n, err
}

// Certificate returns the certificate authority that a sandbox trusts, as PEM. Errors: NotFound, Conflict when it does
// not run or has no network.
func (s *Sandboxes) Certificate(ctx context.Context, who cove.Principal, ref string) ([]byte, error) {
	record, err := s.find(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.held[record.ID]; r != nil && r.open.route != nil {
		return r.open.route.Certificate(), nil
	}
	return nil, cove.Errorf(cove.Conflict, "the sandbox %s has no network, or does not run", record.Name)
}
