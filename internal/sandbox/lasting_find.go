package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
)

// Sandboxes lists those that a caller has, newest first, and for the machine's
// owner what belongs to none.
func (m *Manager) Sandboxes(ctx context.Context, who cove.Principal) (api.SandboxList, error) {
	list := api.SandboxList{Sandboxes: []api.Sandbox{}}
	all, err := m.records(ctx, who)
	if err != nil {
		return list, err
	}
	for _, record := range all {
		list.Sandboxes = append(list.Sandboxes, m.show(who, record))
	}
	if who.IsOwner() && m.owns() == nil {
		list.Orphans, err = m.orphans(ctx, all)
	}
	return list, err
}

// FindSandbox returns one, with how much it has on disk. Errors: NotFound,
// Conflict when ref could be several.
func (m *Manager) FindSandbox(ctx context.Context, who cove.Principal, ref string) (api.Sandbox, error) {
	record, err := m.findRecord(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	shown := m.show(who, record)
	if in, err := m.inside(ctx, who, string(record.ID)); err == nil {
		shown.Terminals = terminalsShown(in.terminals)
	}
	if m.owns() == nil {
		if shown.DiskUsed, err = m.lasting.Workspaces.Used(ctx, record.ID); cove.ErrorCode(err) == cove.NotFound {
			err = nil
		}
	}
	return shown, err
}

// findRecord finds a sandbox by its id, its name (the caller's own first), or the
// beginning of either that no other has.
func (m *Manager) findRecord(ctx context.Context, who cove.Principal, ref string) (store.Sandbox, error) {
	all, err := m.records(ctx, who)
	if err != nil {
		return store.Sandbox{}, err
	}
	return pick(who, all, ref)
}

// pick is findRecord's choice of those that the caller sees. It is pure.
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

// show is a record as the API shows it to a caller.
func (m *Manager) show(who cove.Principal, b store.Sandbox) api.Sandbox {
	spec, shown := b.Spec, apispec.SpecOf(b.Spec.Spec)
	s := api.Sandbox{
		ID: string(b.ID), Name: b.Name, State: string(b.State), Error: b.Reason, Engine: spec.Engine, Isolation: shown.Isolation, Image: cmp.Or(spec.Image, "host"),
		Profile: spec.Profile, Agent: spec.Agent, Directory: spec.Directory, WorkDir: spec.WorkDir, Network: string(cmp.Or(spec.Mode, cove.NetworkNone)),
		AllowPR: spec.AllowPR, SSHAgent: spec.SSHAgent != "", Limits: *shown.Limits, Mounts: shown.Mounts, Exposes: Exposed(spec.Mounts), Labels: spec.Labels,
		Within: string(spec.Within), CreatedBy: b.Owner.String(), CreatedAt: b.CreatedAt, LastUsedAt: b.LastUsedAt,
	}
	if !who.IsOwner() {
		s.Directory = "" // where the owner keeps things is the owner's
	}
	if spec.Repository != nil {
		s.Repository = new(spec.Repository.SandboxRepository)
	}
	return s
}

// Exposed are the variables whose real tokens are in a sandbox with these mounts.
func Exposed(mounts []cove.Mount) (variables []string) {
	for _, m := range mounts {
		if path.Dir(m.Target) == cove.Tokens {
			variables = append(variables, path.Base(m.Target))
		}
	}
	return variables
}

// Inside is a lasting sandbox that runs, for whoever starts processes in it.
type Inside struct {
	store.Sandbox
	Guest   engine.Sandbox
	Env     []string        // of every process, before what it asks for itself
	Dir     string          // where processes begin
	Stopped <-chan struct{} // closed when it does not run any more

	terminals *terminals.Set
	git       workGit
	way       Way // nil without a network
}

// EnterSandbox finds one that runs, and notes that it is used. Errors: NotFound,
// Conflict when it does not run.
func (m *Manager) EnterSandbox(ctx context.Context, who cove.Principal, ref string) (Inside, error) {
	in, err := m.inside(ctx, who, ref)
	if err == nil {
		m.touch(ctx, in.ID)
		if in.Spec.Within != "" {
			m.touch(ctx, in.Spec.Within)
		}
	}
	return in, err
}

// inside is EnterSandbox for who only looks.
func (m *Manager) inside(ctx context.Context, who cove.Principal, ref string) (Inside, error) {
	record, err := m.findRecord(ctx, who, ref)
	if err != nil {
		return Inside{}, err
	}
	if err := m.owns(); err != nil {
		return Inside{}, err
	}
	m.mu.Lock()
	r := m.residents[cmp.Or(record.Spec.Within, record.ID)]
	var sb *provision.Sandbox
	var open opened
	if r != nil {
		sb, open = r.box, r.open
	}
	m.mu.Unlock()
	if record.State != cove.StateRunning || sb == nil {
		return Inside{}, wrongState(record, "enter")
	}
	return Inside{Sandbox: record, Guest: sb, Env: open.env, Dir: record.Spec.WorkDir, Stopped: sb.Done(), terminals: open.ttys, git: open.git, way: open.way}, nil
}

// touch notes that a sandbox is used. That this fails is no reason not to.
func (m *Manager) touch(ctx context.Context, id cove.SandboxID) {
	if err := m.own().TouchSandbox(context.WithoutCancel(ctx), id, m.o.Clock.Now()); err != nil {
		m.o.Log.Warn("cannot note that a sandbox is used", "sandbox", id, "error", err)
	}
}

// ExtendSandbox adds to what one may reach: at once, and each time that it is
// started. documents are those of change. Errors: NotFound, InvalidArgument,
// Conflict when it has no network.
func (m *Manager) ExtendSandbox(ctx context.Context, who cove.Principal, ref string, change api.NetworkChange, documents []*policy.Document) (cut int, err error) {
	_, err = m.live(ctx, who, ref, "network", func(r *resident, record *store.Sandbox) error {
		if cmp.Or(record.Spec.Mode, cove.NetworkNone) == cove.NetworkNone {
			return cove.Errorf(cove.Conflict, "the sandbox %s has no network", record.Name).WithHint("make one with --network or --allow")
		}
		if _, open := m.runningOf(r); open.way != nil {
			if cut, err = open.way.Extend(documents...); err != nil {
				return err
			}
		}
		return m.change(ctx, record, func(s *store.SandboxSpec) { s.Changes = append(s.Changes, change) })
	})
	return cut, err
}

// SandboxCertificate is that of the authority which one trusts, as PEM. Errors:
// NotFound, Conflict when it does not run or has no network.
func (m *Manager) SandboxCertificate(ctx context.Context, who cove.Principal, ref string) ([]byte, error) {
	record, err := m.findRecord(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.residents[record.ID]; r != nil && r.open.way != nil {
		return r.open.way.Certificate(), nil
	}
	return nil, cove.Errorf(cove.Conflict, "the sandbox %s has no network, or does not run", record.Name)
}
