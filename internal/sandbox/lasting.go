package sandbox

import (
	"cmp"
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Lasting is what a Manager needs beside Options to have sandboxes that last.
// All are required.
type Lasting struct {
	Workspaces workspace.Workspaces
	Layers     Layers
	// OpenWay opens a way out that the next process can open again: with the
	// authority that the sandbox trusts. ForgetWay removes what is kept for that.
	OpenWay   func(who cove.Principal, id cove.SandboxID, name string, n Network) (Way, error)
	ForgetWay func(cove.SandboxID) error
	// Repository is what a sandbox needs of the network to work on a repository that
	// has a remote, with the machine's credentials for the machine's owner.
	Repository func(who cove.Principal, of store.SandboxRepository, allowPR bool) (Network, error)
	// OpenGit makes git for a sandbox whose repository is not inside; nil where
	// none of them has such a one.
	OpenGit func(context.Context, HiddenGit) (GitService, error)
	// TakeUp is told of each Process that an earlier server has left, when its
	// sandbox is had again, and must not wait; nil ends them.
	TakeUp    func(LeftProcess)
	Recorders terminals.Recorders // nil records no terminal
	Dir       string              // for files that sandboxes are shown; made when it is needed
	Most      int                 // sandboxes at a time; 0 is no bound
}

// Layers has the installed programs of agents.
type Layers interface {
	// Place is where the layer of a name is (cove.Layer). Errors: NotFound,
	// RuntimeMissing.
	Place(layer string) (hostpath.Own, error)
}

// LastingRequest is a sandbox that lasts, to be made.
type LastingRequest struct {
	Name string // made up when empty
	// Spec is what it must be. Host paths in it have been checked; WorkDir is relative
	// to the workspace; without a network it reaches what its repository needs.
	cove.Spec
	Repository *workspace.Repository
	Files      []File // below the workspace
	Home       []File // below the home
	// Shared asks for a checkout of its own in a sandbox that others of the same
	// request work in, too, which is made where there is none; see share.
	Shared bool
}

// lastingDefaults are what a place to work in is where nothing else is said. The
// limits of the disk are of what is writable beside workspace and home.
var lastingDefaults = cove.Spec{Shape: cove.Shape{
	User: cove.AgentUser, Lifetime: cove.LifetimeDetached,
	Limits: cove.Limits{Memory: 4 << 30, CPUs: 4, PIDs: 2048, Disk: 4 << 30, Inodes: 500_000, OpenFiles: 1 << 16},
}}

// resident is a sandbox that lasts, as this process has it.
type resident struct {
	id   cove.SandboxID
	turn chan struct{} // holds one value: who takes it may change its life

	// What follows is guarded by Manager.mu; box is nil in one that has no
	// processes, or that this process has not.
	box  *provision.Sandbox
	open opened

	doomed   bool // it is to be removed, for which its record lacks room
	keepWork bool // when it is doomed: its work stays
	retried  bool // it is looked soon whether there is room
}

// opened is what a running sandbox has on the host beside the engine's.
type opened struct {
	of    cove.Principal // whose it is
	name  string         // as its way has it
	way   Way            // nil without a network
	git   workGit        // of a repository that is not inside
	env   []string
	ttys  *terminals.Set
	left  chan struct{} // closed when nobody is to look for its end any more
	close func()        // the way and services, and lets go of the image
}

// owns says that this process is the one that has the lasting sandboxes.
func (m *Manager) owns() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ownsLocked()
}

func (m *Manager) ownsLocked() error {
	switch {
	case m.closed:
		return cove.Errorf(cove.Unavailable, "Cove is shutting down")
	case !m.owner:
		return cove.Errorf(cove.Unavailable, "only a server has sandboxes that last").WithHint("start one with \"cove serve\"")
	}
	return nil
}

// residentLocked is the sandbox of an id, which may be nowhere else.
func (m *Manager) residentLocked(id cove.SandboxID) *resident {
	r := m.residents[id]
	if r == nil {
		r = &resident{id: id, turn: make(chan struct{}, 1)}
		m.residents[id] = r
	}
	return r
}

// dropResident forgets one that is not there. Its turn must be held.
func (m *Manager) dropResident(r *resident) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.residents[r.id] == r && r.box == nil {
		delete(m.residents, r.id)
	}
}

// enterLife waits until nobody else changes the life of a sandbox; leave must
// be called.
func (m *Manager) enterLife(ctx context.Context, id cove.SandboxID) (r *resident, leave func(), err error) {
	m.mu.Lock()
	if err := m.ownsLocked(); err != nil {
		m.mu.Unlock()
		return nil, nil, err
	}
	r = m.residentLocked(id)
	m.calls.Add(1)
	m.mu.Unlock()
	select {
	case r.turn <- struct{}{}:
		return r, func() { <-r.turn; m.calls.Done() }, nil
	case <-ctx.Done():
		m.calls.Done()
		return nil, nil, cove.Errorf(cove.Canceled, "the caller went away while something else was done with the sandbox: %w", ctx.Err())
	}
}

// running is what r has on this host, if it runs or is paused.
func (m *Manager) runningOf(r *resident) (*provision.Sandbox, opened) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.box, r.open
}

// CreateSandbox makes a sandbox of the principal's that lasts, and starts it. progress is told its
// steps. On error, and when ctx ends before, nothing of it is left. Errors:
// InvalidArgument, NotFound, Forbidden, Conflict, Unsupported, ImageMissing,
// StorageFull, Unavailable.
func (m *Manager) CreateSandbox(ctx context.Context, who cove.Principal, q LastingRequest, progress func(workspace.Step)) (made api.Sandbox, err error) {
	if progress == nil {
		progress = func(workspace.Step) {}
	}
	if err := m.owns(); err != nil {
		return made, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ending, cancel)()
	record, err := m.plan(who, q)
	if err != nil {
		return made, err
	}
	if q.Shared {
		if record.Spec.Within, err = m.share(ctx, who, q, progress); err != nil {
			return made, err
		}
	}
	return m.create(ctx, record, q, progress)
}

// create makes a sandbox that is planned.
func (m *Manager) create(ctx context.Context, record store.Sandbox, q LastingRequest, progress func(workspace.Step)) (made api.Sandbox, err error) {
	r, leave, err := m.enterLife(ctx, record.ID)
	if err != nil {
		return made, err
	}
	defer leave()
	if err := m.enroll(ctx, &record, q.Name == ""); err != nil {
		m.dropResident(r)
		return made, err
	}
	if record.Spec.Within != "" {
		err = m.furnishWithin(ctx, &record, q, progress)
	} else {
		err = m.furnish(ctx, r, &record, q, progress)
	}
	if err == nil {
		err = m.settle(ctx, record)
	}
	if err == nil && record.Spec.Within != "" {
		err = m.regrant(ctx, record.Spec.Within)
	}
	if err != nil {
		err = errors.Join(err, m.dismantle(context.WithoutCancel(ctx), r, record.ID, false))
	}
	m.auditSandbox(ctx, record.Owner, "create", record, err)
	if err != nil {
		return made, err
	}
	record, err = m.o.Store.For(record.Owner).Sandbox(ctx, record.ID)
	return m.show(record.Owner, record), err
}

// plan is the record of what q asks for, or says why that cannot be.
func (m *Manager) plan(who cove.Principal, q LastingRequest) (store.Sandbox, error) {
	if err := q.check(); err != nil {
		return store.Sandbox{}, err
	}
	eng, err := m.o.Engines.Get(q.Engine)
	if err != nil {
		return store.Sandbox{}, err
	}
	if c := eng.Capabilities(); !c.Lasting || !c.MountOwners { // without owners, nothing could be written in a workspace
		return store.Sandbox{}, cove.Errorf(cove.Unsupported, "the engine %s has no sandboxes that last here", eng.Name()).
			WithHint("%s", cmp.Or(c.Missing["lasting"], c.Missing["mount_owners"], "use the engine native"))
	}
	limits, err := m.o.Bounds.Resolve(runtime.Runtime{Limits: lastingDefaults.Limits}, q.Limits)
	if err != nil {
		return store.Sandbox{}, err
	}
	spec := q.Over(m.o.Defaults).Over(lastingDefaults)
	spec.Engine, spec.Limits, spec.WorkDir = eng.Name(), limits, path.Join(cove.Workspace, q.WorkDir)
	if err := eng.Capabilities().Check(engine.Template{Shape: spec.Shape, Network: cove.NetworkNone}); err != nil {
		return store.Sandbox{}, err
	}
	now := m.o.Clock.Now().UTC().Truncate(time.Microsecond)
	return store.Sandbox{
		ID: cove.NewSandboxID(), Name: q.Name, Owner: who, State: cove.StatePreparing, CreatedAt: now, LastUsedAt: now,
		Spec: store.SandboxSpec{Spec: spec},
	}, nil
}

var sandboxName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckSandboxName refuses what is not the name of a sandbox.
func CheckSandboxName(name string) error {
	if !sandboxName.MatchString(name) || strings.HasPrefix(name, "sb-") {
		return cove.Errorf(cove.InvalidArgument, "%.80q is not a name for a sandbox", name).
			WithHint("use small letters, digits and hyphens within, at most 63")
	}
	return nil
}

// check refuses a malformed request.
func (q *LastingRequest) check() error {
	if q.Name != "" {
		if err := CheckSandboxName(q.Name); err != nil {
			return err
		}
	}
	if strings.IndexByte(q.WorkDir, 0) >= 0 || len(q.WorkDir) > 1024 {
		return cove.Errorf(cove.InvalidArgument, "%.100q is not a directory", q.WorkDir)
	}
	for _, files := range [][]File{q.Files, q.Home} {
		if err := checkFiles(files); err != nil {
			return err
		}
	}
	for _, mount := range q.Mounts {
		if err := rootfs.ValidateTarget(mount.Target); err != nil {
			return err
		}
		for _, own := range []string{cove.Workspace, cove.Home} {
			if target := path.Clean(mount.Target); target == own || strings.HasPrefix(own, target+"/") {
				return cove.Errorf(cove.InvalidArgument, "a mount at %q is not possible: it would hide %s", mount.Target, own).
					WithHint("mount below %s, or at a directory of your own such as /data", own)
			}
		}
	}
	if err := cove.CheckLabels(q.Labels); err != nil {
		return err
	}
	if q.Git != nil && strings.ContainsFunc(q.Git.Name+q.Git.Email, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return cove.Errorf(cove.InvalidArgument, "the name or address for commits has control characters")
	}
	return runtime.CheckEnv(q.Env)
}

// enroll records a new sandbox; one without a name gets one that is free.
func (m *Manager) enroll(ctx context.Context, record *store.Sandbox, unnamed bool) error {
	for try := 0; ; try++ {
		if unnamed {
			record.Name = madeUpName(try)
		}
		err := m.o.Store.For(record.Owner).AddSandbox(ctx, *record, m.lasting.Most)
		if err == nil || !unnamed || cove.ErrorCode(err) != cove.Conflict || try == 20 {
			return err
		}
		if all, lerr := m.o.Store.For(record.Owner).Sandboxes(ctx); lerr != nil || !slices.ContainsFunc(all, func(b store.Sandbox) bool { return b.Owner == record.Owner && b.Name == record.Name }) {
			return err // it was not about the name
		}
	}
}

// furnish makes the workspace, starts the sandbox and places the files.
func (m *Manager) furnish(ctx context.Context, r *resident, record *store.Sandbox, q LastingRequest, progress func(workspace.Step)) error {
	ws, err := m.lasting.Workspaces.Create(ctx, workspace.Spec{
		ID: record.ID, Name: record.Name, User: record.Spec.User, Repository: q.Repository, Bind: q.Bind, Owner: record.Owner,
	}, progress)
	if err != nil {
		return err
	}
	if err := m.change(ctx, record, func(s *store.SandboxSpec) { s.Directory, s.Repository = ws.Directory, repositoryOf(ws, q.Repository) }); err != nil {
		return err
	}
	progress(workspace.Step{Text: "starting the sandbox"})
	if err := m.bring(ctx, r, record, ws); err != nil {
		return err
	}
	bx, _ := m.runningOf(r)
	if err := deliver(ctx, bx.Guest(), record.Spec.User.Home, q.Home); err != nil {
		return err
	}
	// A directory that a repository does not have, since there is nothing in it, or
	// nothing that is to be had. Where it cannot be made, who begins there is told.
	if dir := record.Spec.WorkDir; q.Bind == "" && strings.HasPrefix(dir, cove.Workspace+"/") {
		_ = bx.Guest().Mkdir(ctx, dir, 0o755)
	}
	return deliver(ctx, bx.Guest(), cove.Workspace, q.Files)
}

// repositoryOf is what is to be remembered of a workspace's repository.
func repositoryOf(ws workspace.Workspace, asked *workspace.Repository) *store.SandboxRepository {
	if asked == nil {
		return nil
	}
	return &store.SandboxRepository{
		SandboxRepository: api.SandboxRepository{
			Source: ws.Source, Remote: ws.Remote, Branch: ws.Branch, From: ws.From, Base: ws.Base, Worktree: asked.Worktree,
		},
		Shared: ws.Shared,
	}
}

// settle notes that a new sandbox is ready, and that it runs.
func (m *Manager) settle(ctx context.Context, record store.Sandbox) error {
	own := m.o.Store.For(record.Owner)
	if err := own.MoveSandbox(ctx, record.ID, cove.StatePreparing, cove.StateReady, ""); err != nil {
		return err
	}
	return own.MoveSandbox(ctx, record.ID, cove.StateReady, cove.StateRunning, "")
}

// change changes the spec of a record, here and in the store.
func (m *Manager) change(ctx context.Context, record *store.Sandbox, f func(*store.SandboxSpec)) error {
	return m.o.Store.For(record.Owner).ChangeSandbox(ctx, record.ID, func(b *store.Sandbox) error {
		f(&b.Spec)
		record.Spec = b.Spec
		return nil
	})
}

// StartSandbox starts one that is stopped. One that runs stays as it is. Errors:
// NotFound, Conflict, and those of CreateSandbox.
func (m *Manager) StartSandbox(ctx context.Context, who cove.Principal, ref string) (api.Sandbox, error) {
	if record, err := m.findRecord(ctx, who, ref); err == nil && record.Spec.Within != "" {
		if _, err := m.StartSandbox(ctx, who, string(record.Spec.Within)); err != nil {
			return api.Sandbox{}, err
		}
		return m.FindSandbox(ctx, who, string(record.ID))
	}
	return m.live(ctx, who, ref, "start", func(r *resident, record *store.Sandbox) error {
		switch bx, _ := m.runningOf(r); {
		case record.State == cove.StateRunning && bx != nil:
			return errAlready
		case record.State == cove.StateRunning:
			return m.adoptOne(ctx, r, record)
		case record.State != cove.StateStopped:
			return wrongState(*record, "start")
		}
		ws, err := m.lasting.Workspaces.Open(ctx, record.ID)
		if err != nil {
			return err
		}
		if err := m.bring(ctx, r, record, ws); err != nil {
			return err
		}
		if err := m.o.Store.For(who).MoveSandbox(ctx, record.ID, cove.StateStopped, cove.StateRunning, ""); err != nil {
			return errors.Join(err, m.vacate(r))
		}
		return nil
	})
}

// StopSandbox ends the processes of one. Its workspace and home stay; the rest
// of its files go. One that is stopped stays as it is. Errors: NotFound,
// Conflict.
func (m *Manager) StopSandbox(ctx context.Context, who cove.Principal, ref string) (api.Sandbox, error) {
	return m.live(ctx, who, ref, "stop", func(r *resident, record *store.Sandbox) error {
		switch record.State {
		case cove.StateStopped:
			return errAlready
		case cove.StateRunning, cove.StatePaused:
		default:
			return wrongState(*record, "stop")
		}
		if bx, _ := m.runningOf(r); bx == nil {
			if err := m.adoptOne(ctx, r, record); err != nil && cove.ErrorCode(err) != cove.NotFound {
				return err
			}
			if record.State == cove.StateStopped {
				return nil
			}
		}
		bx, _ := m.runningOf(r)
		if bx == nil {
			return m.o.Store.For(who).MoveSandbox(ctx, record.ID, record.State, cove.StateStopped, "")
		}
		if record.State == cove.StateRunning {
			m.askToEnd(ctx, bx)
		}
		if err := m.vacate(r); err != nil {
			return err
		}
		return m.o.Store.For(who).MoveSandbox(context.WithoutCancel(ctx), record.ID, record.State, cove.StateStopped, "")
	})
}

// PauseSandbox freezes one: nothing in it runs, and its memory is kept. Errors:
// NotFound, Conflict, Unsupported.
func (m *Manager) PauseSandbox(ctx context.Context, who cove.Principal, ref string) (api.Sandbox, error) {
	return m.live(ctx, who, ref, "pause", func(r *resident, record *store.Sandbox) error {
		bx, _ := m.runningOf(r)
		switch {
		case record.State == cove.StatePaused:
			return errAlready
		case record.State != cove.StateRunning || bx == nil:
			return wrongState(*record, "pause")
		}
		pauser, ok := bx.Sandbox.(engine.Pauser)
		if !ok {
			return cove.Errorf(cove.Unsupported, "the engine %s cannot pause", record.Spec.Engine).WithHint("stop the sandbox instead")
		}
		// Frozen first: whoever finds one that is frozen and recorded as running
		// lets it run.
		if err := pauser.Pause(ctx); err != nil {
			return err
		}
		if err := m.o.Store.For(who).MoveSandbox(ctx, record.ID, cove.StateRunning, cove.StatePaused, ""); err != nil {
			return errors.Join(err, pauser.Resume(context.WithoutCancel(ctx)))
		}
		bx.Become(cove.StatePaused)
		return nil
	})
}

// ResumeSandbox lets one that is paused go on. Errors: NotFound, Conflict.
func (m *Manager) ResumeSandbox(ctx context.Context, who cove.Principal, ref string) (api.Sandbox, error) {
	return m.live(ctx, who, ref, "resume", func(r *resident, record *store.Sandbox) error {
		switch record.State {
		case cove.StateRunning:
			return errAlready
		case cove.StatePaused:
		default:
			return wrongState(*record, "resume")
		}
		bx, _ := m.runningOf(r)
		if bx == nil {
			return m.adoptOne(ctx, r, record)
		}
		if err := m.o.Store.For(who).MoveSandbox(ctx, record.ID, cove.StatePaused, cove.StateRunning, ""); err != nil {
			return err
		}
		bx.Become(cove.StateRunning)
		if err := bx.Sandbox.(engine.Pauser).Resume(ctx); err != nil {
			bx.Become(cove.StatePaused)
			return errors.Join(err, m.o.Store.For(who).MoveSandbox(context.WithoutCancel(ctx), record.ID, cove.StateRunning, cove.StatePaused, ""))
		}
		return nil
	})
}

// RenameSandbox gives one another name. What is recorded of its network has the
// old one until it is started again. Errors: NotFound, InvalidArgument,
// Conflict.
func (m *Manager) RenameSandbox(ctx context.Context, who cove.Principal, ref, name string) (api.Sandbox, error) {
	if err := CheckSandboxName(name); err != nil {
		return api.Sandbox{}, err
	}
	return m.live(ctx, who, ref, "rename", func(r *resident, record *store.Sandbox) error {
		if err := m.o.Store.For(who).ChangeSandbox(ctx, record.ID, func(b *store.Sandbox) error { b.Name = name; return nil }); err != nil {
			return err
		}
		m.mu.Lock()
		r.open.name = name
		way := r.open.way
		m.mu.Unlock()
		if way != nil {
			way.Rename(name)
		}
		return nil
	})
}

// DestroySandbox removes one, whatever state it is in; with keepWork its
// checkout stays where it is. ref may also be the id of an orphan. Errors:
// NotFound, Unavailable.
func (m *Manager) DestroySandbox(ctx context.Context, who cove.Principal, ref string, keepWork bool) error {
	record, err := m.findRecord(ctx, who, ref)
	if cove.ErrorCode(err) == cove.NotFound && who.IsOwner() {
		return m.destroyOrphan(ctx, who, ref, keepWork, err)
	}
	if err != nil {
		return err
	}
	if keepWork && (record.Spec.Within != "" || record.Spec.Shared != "") {
		return cove.Errorf(cove.Unsupported, "the work of %s is in a sandbox that is shared, and goes with it", record.Name).WithHint("push or apply it first, then destroy it without keeping it")
	}
	if err := m.destroy(ctx, who, record.ID, keepWork); err != nil || record.Spec.Shared == "" {
		return err
	}
	return m.destroyWithin(ctx, who, record.ID)
}

func (m *Manager) destroy(ctx context.Context, who cove.Principal, id cove.SandboxID, keepWork bool) error {
	r, leave, err := m.enterLife(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	record, err := m.o.Store.For(who).Sandbox(ctx, id)
	if err != nil {
		m.dropResident(r)
		return err
	}
	err = m.dismantle(context.WithoutCancel(ctx), r, record.ID, keepWork)
	m.auditSandbox(ctx, who, "destroy", record, err)
	return err
}

// errAlready: there is nothing to do, and nothing to record.
var errAlready = errors.New("it is so already")

// live finds a sandbox, waits for its turn, does something with its life and
// says what it is then.
func (m *Manager) live(ctx context.Context, who cove.Principal, ref string, action string, f func(*resident, *store.Sandbox) error) (api.Sandbox, error) {
	record, err := m.findRecord(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	r, leave, err := m.enterLife(ctx, record.ID)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer leave()
	if record, err = m.recordOf(ctx, who, record.ID); err != nil { // as it is now
		m.dropResident(r)
		return api.Sandbox{}, err
	}
	if record.Spec.Within != "" && action != "rename" {
		return api.Sandbox{}, cove.Errorf(cove.Conflict, "%s is a checkout in a sandbox that others work in, too: it is not possible to %s it alone", record.Name, action).
			WithHint("that sandbox is %s", record.Spec.Within)
	}
	if err = f(r, &record); !errors.Is(err, errAlready) {
		m.auditSandbox(ctx, who, action, record, err)
		if err != nil {
			return api.Sandbox{}, err
		}
		m.touch(ctx, record.ID)
	}
	record, err = m.o.Store.For(who).Sandbox(ctx, record.ID)
	return m.show(who, record), err
}

// wrongState says what can be done with a sandbox instead.
func wrongState(record store.Sandbox, doing string) error {
	e := cove.Errorf(cove.Conflict, "the sandbox %s is %s: it is not possible to %s it", record.Name, record.State, doing)
	switch record.State {
	case cove.StateStopped:
		return e.WithHint("start it with \"cove start %s\"", record.Name)
	case cove.StatePaused:
		return e.WithHint("resume it with \"cove resume %s\"", record.Name)
	case cove.StateFailed:
		return e.WithHint("%s; remove it with \"cove destroy %s\"", cmp.Or(record.Reason, "it has failed"), record.Name)
	}
	return e.WithHint("try again in a moment")
}

// auditSandbox records what was done with the life of a sandbox.
func (m *Manager) auditSandbox(ctx context.Context, who cove.Principal, action string, record store.Sandbox, err error) {
	r := store.Record{Action: "sandbox-" + action, Object: string(record.ID), Verdict: "ok", Detail: record.Name}
	if err != nil {
		r.Verdict, r.Detail = "error", record.Name+": "+err.Error()
	}
	m.audit(ctx, who, r)
}
