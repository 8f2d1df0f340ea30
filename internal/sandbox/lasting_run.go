package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// service is something that this process does for a sandbox, on a socket inside
// that it holds.
type service struct {
	listen guest.Listen
	env    map[string]string
	front  string                                     // a directory inside, to be the first of PATH
	serve  func(ctx context.Context, ln net.Listener) // until ctx ends; closes ln
	git    workGit                                    // nil but for git of a repository that is not inside
}

// bring makes the engine's sandbox for a record, with its way out and services.
func (m *Manager) bring(ctx context.Context, r *resident, record *store.Sandbox, ws workspace.Workspace) (err error) {
	eng, err := m.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	root, release, err := m.rootfs(ctx, eng, record.Spec.Image)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	n, err := m.networkOf(*record)
	if err != nil {
		return err
	}
	err = m.change(ctx, record, func(s *store.SandboxSpec) { s.Digest, s.ImageEnv, s.Mode = root.Digest, root.Env, n.Mode })
	if err != nil {
		return err
	}
	b, err := m.lastingBinding(*record, ws)
	defer func() { b.Close() }()
	if err != nil {
		return err
	}
	services, err := m.services(ctx, *record, ws, &b)
	if err != nil {
		return err
	}
	for _, s := range services {
		b.Listeners = append(b.Listeners, s.listen)
	}
	plan := provision.Plan{
		ID: record.ID, Rootfs: root, Shape: record.Spec.Shape, Network: n.Mode, Binding: b,
	}
	var way Way
	if n.Mode != cove.NetworkNone {
		plan.OpenRoute = func(cove.SandboxID) (_ provision.Route, err error) {
			way, err = m.lasting.OpenWay(record.Owner, record.ID, record.Name, n)
			return way, err
		}
	}
	sb, err := provision.New(ctx, eng, plan)
	if err != nil {
		return err
	}
	m.occupy(r, sb, *record, way, services, sb.Sockets, release)
	return nil
}

// networkOf is what a sandbox may reach: what its repository needs, what was
// asked for, and what was added since.
func (m *Manager) networkOf(record store.Sandbox) (Network, error) {
	spec, n := record.Spec, Network{Mode: cove.NetworkNone}
	asked := spec.Network
	if spec.Repository != nil && spec.Repository.Remote != "" && (asked == nil || asked.Enabled) {
		needs, err := m.lasting.Repository(record.Owner, *spec.Repository, spec.AllowPR)
		if err != nil {
			return n, err
		}
		n = n.with(needs)
	}
	if asked != nil && asked.Enabled {
		more, err := NetworkOf(asked)
		if err != nil {
			return n, err
		}
		n = n.with(more)
	}
	within, err := m.networkWithin(record)
	if err != nil {
		return n, err
	}
	n.Policy = append(n.Policy, within...)
	for _, c := range spec.Changes {
		documents, err := policy.Documents(apispec.Change(c))
		if err != nil {
			return n, err
		}
		n.Policy = append(n.Policy, documents...)
	}
	return n, nil
}

// lastingBinding is what a sandbox is shown of the host: its workspace and home,
// what the workspace needs beside them, its agent's layers, and what was asked
// for. The caller closes it, also on error.
func (m *Manager) lastingBinding(record store.Sandbox, ws workspace.Workspace) (b engine.Binding, err error) {
	b.Hostname = record.Name
	if ws.Bound {
		b.Mounts = append(b.Mounts, cove.Mount{Source: ws.Directory, Target: cove.Workspace})
	} else if err := b.Attach(ws.Own(ws.Directory), engine.Attachment{Target: cove.Workspace}); err != nil {
		return b, err
	}
	if err := b.Attach(ws.Own(ws.Home), engine.Attachment{Target: record.Spec.User.Home}); err != nil {
		return b, err
	}
	if ws.Borrowed != "" {
		err := b.Attach(ws.Own(ws.Borrowed), engine.Attachment{Target: workspace.BorrowedPlace, ReadOnly: true})
		if err != nil {
			return b, err
		}
	}
	for _, l := range record.Spec.Layers {
		place, err := m.lasting.Layers.Place(l.Name)
		if err != nil {
			return b, err
		}
		if err := b.Attach(place, engine.Attachment{Target: l.Target, ReadOnly: true}); err != nil {
			return b, err
		}
	}
	b.Mounts = slices.Concat(b.Mounts, ws.Mounts, record.Spec.Mounts)
	config, err := m.writeGitConfig(record)
	if err != nil {
		return b, err
	}
	return b, b.Show(config, engine.File{Target: gitConfigPlace})
}

// occupy notes that a sandbox runs, and looks for its end.
func (m *Manager) occupy(r *resident, sb *provision.Sandbox, record store.Sandbox, way Way, services []service, sockets []*os.File, release func()) {
	env := append(rootfs.Env(record.Spec.User), record.Spec.ImageEnv...)
	env = append(env, gitEnv...)
	if way != nil {
		env = appendVariables(env, way.Env())
	}
	env = inFront(env, record.Spec.Path)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	var git workGit
	for i, s := range services {
		env = inFront(appendVariables(env, s.env), s.front)
		ln, err := net.FileListener(sockets[i])
		sockets[i].Close()
		if err != nil {
			m.o.Log.Error("a service of a sandbox cannot be had", "sandbox", r.id, "address", s.listen.Address, "error", err)
			continue
		}
		serving.Go(func() { s.serve(ctx, ln) })
		if s.git != nil {
			git = s.git
		}
	}
	o := opened{
		of: record.Owner, name: record.Name, way: way, git: git,
		env:  lastWins(appendVariables(env, record.Spec.Env)),
		ttys: m.newTerminals(sb), left: make(chan struct{}),
	}
	o.close = sync.OnceFunc(func() {
		close(o.left)
		o.ttys.Detach(m.whyLeft())
		cancel()
		serving.Wait()
		if way != nil {
			way.Close()
		}
		release()
	})
	m.mu.Lock()
	r.box, r.open = sb, o
	m.mu.Unlock()
	m.looking.Go(func() { m.lookForEnd(r, sb, o) })
}

func (m *Manager) newTerminals(sb engine.Sandbox) *terminals.Set {
	return terminals.New(terminals.Options{Sandbox: sb, Recorders: m.lasting.Recorders, Clock: m.o.Clock, Log: m.o.Log, Serving: &m.serving})
}

func appendVariables(env []string, more map[string]string) []string {
	for k, v := range more {
		env = append(env, k+"="+v)
	}
	return env
}

// adoptTimeout is how long an engine and a guest may take to give a sandbox to this
// server.
const adoptTimeout = 30 * time.Second

// stopGrace is how long programs may take to end when they are asked to.
const stopGrace = 3 * time.Second

// stopPoll is how often it is looked whether they have.
const stopPoll = 20 * time.Millisecond

// askToEnd tells every program to end, as a terminal that goes away and a
// machine that goes down do, and gives them time.
func (m *Manager) askToEnd(ctx context.Context, sb engine.Sandbox) {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGCONT} {
		if sb.Guest().SignalAll(ctx, int(s)) != nil {
			return
		}
	}
	for {
		stats, err := sb.Stats(ctx)
		if err != nil || stats.PIDs == 0 {
			return
		}
		select {
		case <-m.o.Clock.After(stopPoll):
		case <-sb.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// vacate ends what runs of a sandbox. Its turn must be held.
func (m *Manager) vacate(r *resident) error {
	bx, open := m.runningOf(r)
	if bx == nil {
		return nil
	}
	if err := bx.TearDown(); err != nil {
		return err
	}
	open.close()
	m.mu.Lock()
	r.box, r.open = nil, opened{}
	m.mu.Unlock()
	return nil
}

// lookForEnd waits for a sandbox to end by itself, and puts that down.
func (m *Manager) lookForEnd(r *resident, sb *provision.Sandbox, o opened) {
	select {
	case <-o.left:
		return
	case <-sb.Done():
	}
	select {
	case <-o.left:
		return
	case r.turn <- struct{}{}:
	}
	defer func() { <-r.turn }()
	if now, _ := m.runningOf(r); now != sb {
		return
	}
	ctx := context.Background()
	why := "its processes have ended: PID 1 of the sandbox has gone"
	if stats, err := sb.Stats(ctx); err == nil && stats.OOMKills > 0 {
		why = "its processes have ended: it was out of memory"
	}
	err := m.vacate(r)
	record, rerr := m.own().Sandbox(ctx, r.id)
	if err = errors.Join(err, rerr); err == nil && (record.State == cove.StateRunning || record.State == cove.StatePaused) {
		err = m.own().MoveSandbox(ctx, r.id, record.State, cove.StateStopped, why)
	}
	m.o.Log.Warn("a sandbox has ended", "sandbox", r.id, "name", record.Name, "reason", why, "error", err)
}

// leaveResidents lets go of the sandboxes that last, which go on.
func (m *Manager) leaveResidents() {
	m.mu.Lock()
	var all []opened
	for _, r := range m.residents {
		if r.box != nil {
			all = append(all, r.open)
		}
	}
	m.mu.Unlock()
	for _, o := range all {
		o.close()
	}
	m.looking.Wait()
}

// roomPoll is how often it is looked whether there is room again for a record
// that could not be written.
const roomPoll = 2 * time.Second

// dismantle removes a sandbox with everything that belongs to it. What cannot be
// removed stays recorded, as failed; where there is no room to record what has
// become of it, that is tried again until there is. Its turn must be held.
func (m *Manager) dismantle(ctx context.Context, r *resident, id cove.SandboxID, keepWork bool) error {
	record, err := m.own().Sandbox(ctx, id)
	if err != nil {
		return err
	}
	if record.State != cove.StateDestroying {
		record.Spec.KeepWork = keepWork
	}
	// Noted first: it may be somebody else who ends what is begun here. On a full
	// disk it is begun all the same, since what goes makes room.
	noted := m.condemn(ctx, &record)
	if noted != nil && cove.ErrorCode(noted) != cove.StorageFull {
		return noted
	}
	cleared := m.clear(ctx, r, record)
	if noted != nil {
		noted = m.condemn(ctx, &record)
	}
	switch {
	case noted != nil:
	case cleared != nil:
		noted = m.own().MoveSandbox(ctx, id, cove.StateDestroying, cove.StateFailed, "it cannot be removed: "+cleared.Error())
	default:
		noted = m.own().RemoveSandbox(ctx, id)
	}
	m.doom(r, cove.ErrorCode(noted) == cove.StorageFull, record.Spec.KeepWork)
	if err := errors.Join(cleared, noted); err != nil {
		return err
	}
	m.dropResident(r)
	return nil
}

// condemn notes that a sandbox is being removed, and whether its work stays.
func (m *Manager) condemn(ctx context.Context, record *store.Sandbox) error {
	if record.State == cove.StateDestroying {
		return nil
	}
	keepWork := record.Spec.KeepWork
	if err := m.change(ctx, record, func(s *store.SandboxSpec) { s.KeepWork = keepWork }); err != nil {
		return err
	}
	err := m.own().MoveSandbox(ctx, record.ID, record.State, cove.StateDestroying, record.Reason)
	if err == nil {
		record.State = cove.StateDestroying
	}
	return err
}

// clear removes all of a sandbox but its record.
func (m *Manager) clear(ctx context.Context, r *resident, record store.Sandbox) error {
	if err := m.vacate(r); err != nil {
		return err
	}
	if record.Spec.Within != "" {
		return m.clearWithin(ctx, record)
	}
	if err := m.destroyLeft(ctx, record.Spec.Engine, record.ID); err != nil {
		return err
	}
	return errors.Join(m.lasting.Workspaces.Remove(ctx, record.ID, record.Spec.KeepWork), m.lasting.ForgetWay(record.ID), os.RemoveAll(m.dirOf(record.ID)))
}

// doom remembers whether a sandbox is to be removed though its record does not
// say so, or stays for want of room, and then has that tried again.
func (m *Manager) doom(r *resident, doomed, keepWork bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.doomed, r.keepWork = doomed, keepWork
	if !doomed || r.retried {
		return
	}
	r.retried = true
	m.o.Clock.AfterFunc(roomPoll, func() {
		m.mu.Lock()
		r.retried = false
		m.mu.Unlock()
		m.reconcileOne(context.Background(), r.id) // whoever began it has been told why it is not done
	})
}

// recordOf is a sandbox of the principal's as it is recorded, but for what there was no room to
// record.
func (m *Manager) recordOf(ctx context.Context, who cove.Principal, id cove.SandboxID) (store.Sandbox, error) {
	record, err := m.o.Store.For(who).Sandbox(ctx, id)
	if err != nil {
		return record, err
	}
	m.correct(&record)
	if record.Spec.Within != "" {
		if host, err := m.o.Store.For(who).Sandbox(ctx, record.Spec.Within); err == nil {
			m.correct(&host)
			record.State = stateWithin(record, host)
		}
	}
	return record, nil
}

// records are all of the principal's, newest first.
func (m *Manager) records(ctx context.Context, who cove.Principal) ([]store.Sandbox, error) {
	all, err := m.o.Store.For(who).Sandboxes(ctx)
	hosts := map[cove.SandboxID]store.Sandbox{}
	for i := range all {
		m.correct(&all[i])
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

func (m *Manager) correct(record *store.Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.residents[record.ID]; r != nil && r.doomed {
		record.State, record.Spec.KeepWork = cove.StateDestroying, r.keepWork
	}
}

// destroyLeft destroys what an engine has of a sandbox that nobody has.
func (m *Manager) destroyLeft(ctx context.Context, engineName string, id cove.SandboxID) error {
	eng, err := m.o.Engines.Get(engineName)
	if err != nil {
		return err
	}
	adopter, ok := eng.(engine.Adopter)
	if !ok {
		return nil
	}
	sb, err := adopter.Adopt(ctx, id)
	if cove.ErrorCode(err) == cove.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range sb.Listeners() {
		f.Close()
	}
	return provision.Adopted(sb).TearDown()
}

func (m *Manager) dirOf(id cove.SandboxID) string { return filepath.Join(m.lasting.Dir, string(id)) }

// AdoptSandboxes makes this process the one that has the sandboxes that last:
// there may be one at a time, which the caller sees to, once. It puts the
// records right, takes over those that run, and ends what others have begun.
// An error says which could not be put right: the others are had.
func (m *Manager) AdoptSandboxes(ctx context.Context, with Lasting) error {
	m.mu.Lock()
	m.lasting = &with
	m.mu.Unlock()
	err := m.reconcile(ctx)
	m.mu.Lock()
	m.owner = true
	m.mu.Unlock()
	return err
}

// reconcile makes records and sandboxes fit together. It leaves alone those that
// somebody is doing something with.
func (m *Manager) reconcile(ctx context.Context) error {
	all, err := m.own().Sandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, record := range all {
		if ctx.Err() != nil {
			break
		}
		if err := m.reconcileOne(ctx, record.ID); err != nil {
			errs = append(errs, err)
			m.o.Log.Error("a sandbox cannot be put right", "sandbox", record.ID, "name", record.Name, "error", err)
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) reconcileOne(ctx context.Context, id cove.SandboxID) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	r := m.residentLocked(id)
	m.calls.Add(1)
	m.mu.Unlock()
	defer m.calls.Done()
	select {
	case r.turn <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-r.turn }()
	record, err := m.recordOf(ctx, cove.System(""), id)
	if err != nil {
		m.dropResident(r)
		if cove.ErrorCode(err) == cove.NotFound {
			return nil // it has gone meanwhile
		}
		return err
	}
	bx, _ := m.runningOf(r)
	if record.Spec.Within != "" {
		gone, err := m.goneWithin(ctx, record)
		if err != nil || !gone {
			return err
		}
		record.State = cove.StateDestroying
	}
	switch record.State {
	case cove.StatePreparing, cove.StateReady, cove.StateDestroying:
		err := m.dismantle(ctx, r, id, record.Spec.KeepWork)
		if err == nil {
			m.o.Log.Info("removed a sandbox that was half made, or half removed", "sandbox", id, "name", record.Name)
		}
		return err
	case cove.StateRunning:
		if bx == nil {
			if err := m.adoptOne(ctx, r, &record); cove.ErrorCode(err) != cove.NotFound {
				return err
			}
		}
	case cove.StatePaused:
		if bx == nil {
			return m.checkPaused(ctx, record)
		}
	case cove.StateStopped:
		if bx == nil { // one that is being started or stopped when its server dies
			return m.destroyLeft(ctx, record.Spec.Engine, id)
		}
	}
	return nil
}

// reasonGone is why a sandbox is stopped that was left running.
const reasonGone = "it ended while no server ran, as in a restart of the machine"

// adoptOne takes over a sandbox that runs and that no process has. One that has
// ended is then recorded as stopped, and the error is NotFound.
func (m *Manager) adoptOne(ctx context.Context, r *resident, record *store.Sandbox) error {
	if bx, _ := m.runningOf(r); bx != nil {
		return cove.Errorf(cove.Unavailable, "the sandbox %s has no way out", record.Name).WithHint("stop it and start it again")
	}
	eng, err := m.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	adopter, ok := eng.(engine.Adopter)
	if !ok {
		return cove.Errorf(cove.Unsupported, "the engine %s has no sandboxes that last", eng.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	sb, err := adopter.Adopt(ctx, record.ID)
	if cove.ErrorCode(err) == cove.NotFound {
		return errors.Join(err, m.markStopped(ctx, record))
	}
	if err != nil {
		return err
	}
	if record.State == cove.StatePaused { // it is not any more
		if err := m.own().MoveSandbox(ctx, record.ID, cove.StatePaused, cove.StateRunning, ""); err != nil {
			return err
		}
		record.State = cove.StateRunning
	}
	release := func() {}
	if record.Spec.Digest != "" {
		if release, err = m.o.Images.Hold(ctx, record.Spec.Digest); err != nil {
			m.o.Log.Warn("the image of a sandbox that runs is not there any more", "sandbox", record.ID, "error", err)
			release = func() {}
		}
	}
	return m.connect(r, provision.Adopted(sb), *record, release)
}

// connect opens the way and the services of a sandbox that runs already. Where
// that fails it runs on, and nothing leaves it.
func (m *Manager) connect(r *resident, sb *provision.Sandbox, record store.Sandbox, release func()) error {
	services, unserved := m.servicesAgain(record)
	way, own, err := m.openAgain(record, sb.Listeners(), len(services))
	if err != nil {
		services = nil
	}
	err = errors.Join(err, unserved)
	m.occupy(r, sb, record, way, services, own, release)
	_, open := m.runningOf(r)
	ctx, cancel := context.WithTimeout(context.Background(), adoptTimeout)
	defer cancel()
	return errors.Join(err, m.adoptPrograms(ctx, sb, open.ttys))
}

// openAgain opens a sandbox's way on the sockets that it has. It takes them
// over, but for the first, which it returns.
func (m *Manager) openAgain(record store.Sandbox, sockets []*os.File, first int) (way Way, own []*os.File, err error) {
	if record.Spec.Mode != cove.NetworkNone {
		var n Network
		if n, err = m.networkOf(record); err == nil {
			way, err = m.lasting.OpenWay(record.Owner, record.ID, record.Name, n)
		}
		if err != nil {
			for _, f := range sockets {
				f.Close()
			}
			return nil, nil, err
		}
	}
	if own, err = provision.Serve(sockets, first, way); err != nil && way != nil {
		way.Close()
		way = nil
	}
	return way, own, err
}

// markStopped records that one has ended by itself.
func (m *Manager) markStopped(ctx context.Context, record *store.Sandbox) error {
	err := m.own().MoveSandbox(ctx, record.ID, record.State, cove.StateStopped, reasonGone)
	if err == nil {
		record.State = cove.StateStopped
	}
	return err
}

// checkPaused records one that is paused and not there any more as stopped. One
// that is there stays paused until somebody resumes it, who adopts it then.
func (m *Manager) checkPaused(ctx context.Context, record store.Sandbox) error {
	eng, err := m.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	adopter, ok := eng.(engine.Adopter)
	if !ok {
		return nil
	}
	left, err := adopter.Left(ctx)
	if err != nil || slices.Contains(left, record.ID) {
		return err
	}
	return m.markStopped(ctx, &record)
}

// orphans are workspaces and sandboxes of engines in use that no record has.
func (m *Manager) orphans(ctx context.Context, records []store.Sandbox) ([]string, error) {
	known := func(id cove.SandboxID) bool {
		return slices.ContainsFunc(records, func(b store.Sandbox) bool { return b.ID == id })
	}
	var all []string
	add := func(ids []cove.SandboxID) {
		for _, id := range ids {
			if !known(id) && !slices.Contains(all, string(id)) {
				all = append(all, string(id))
			}
		}
	}
	ids, err := m.lasting.Workspaces.List(ctx)
	if err != nil {
		return nil, err
	}
	add(ids)
	for _, eng := range m.o.Engines.Opened() {
		if adopter, ok := eng.(engine.Adopter); ok {
			left, err := adopter.Left(ctx)
			if err != nil {
				return nil, err
			}
			add(left)
		}
	}
	slices.Sort(all)
	return all, nil
}

// destroyOrphan removes what belongs to no sandbox, or says otherwise that there
// is none.
func (m *Manager) destroyOrphan(ctx context.Context, who cove.Principal, ref string, keepWork bool, otherwise error) error {
	id, err := cove.ParseSandboxID(ref)
	if err != nil {
		return otherwise
	}
	r, leave, err := m.enterLife(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	defer m.dropResident(r)
	records, err := m.own().Sandboxes(ctx) // after its turn has come: it may have been recorded meanwhile
	if err != nil {
		return err
	}
	orphans, err := m.orphans(ctx, records)
	if err != nil {
		return err
	}
	if !slices.Contains(orphans, ref) {
		return otherwise
	}
	ctx = context.WithoutCancel(ctx)
	for _, eng := range m.o.Engines.Opened() {
		err = errors.Join(err, m.destroyLeft(ctx, eng.Name(), id))
	}
	err = errors.Join(err, m.lasting.Workspaces.Remove(ctx, id, keepWork), m.lasting.ForgetWay(id), os.RemoveAll(m.dirOf(id)))
	m.auditSandbox(ctx, who, "destroy", store.Sandbox{ID: id, Name: "of no sandbox"}, err)
	return err
}
