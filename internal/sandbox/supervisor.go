package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/lent"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// supervisor makes, adopts and ends the running part of sandboxes.
type supervisor struct {
	*records
	looking sync.WaitGroup // for the ends of sandboxes
	// halt stops the services of a sandbox, whose turn its caller holds.
	halt func(ctx context.Context, owner store.Sandbox) error
}

// adoptTimeout bounds the hand-over of a sandbox from an engine and a guest to this server.
const adoptTimeout = 30 * time.Second

// stopGrace is the time that programs have to end when they are asked to.
const stopGrace = 3 * time.Second

// stopPoll is the interval of looking whether they have ended.
const stopPoll = 20 * time.Millisecond

// bring makes the engine's sandbox for a record, with its route and services.
func (v *supervisor) bring(ctx context.Context, r *resident, record *store.Sandbox,
	ws workspace.Workspace) (err error) {
	eng, err := v.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	root, release, err := v.rootfs(ctx, eng, *record, ws)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	n, err := v.networkOf(*record)
	if err != nil {
		return err
	}
	err = v.change(ctx, record, func(s *store.SandboxSpec) {
		s.Digest, s.ImageEnv, s.Mode = root.Digest,
			root.Env, n.Mode
	})
	if err == nil && ws.Layer != "" && root.Digest != "" { // after the record, by which it is unpinned
		err = v.host.Pins.Pin(root.Digest, record.ID)
	}
	if err != nil {
		return err
	}
	b, err := v.binding(*record, ws)
	defer func() { b.Close() }()
	if err != nil {
		return err
	}
	if b.Throughput, err = v.throughput(*record); err != nil {
		return err
	}
	if err := showVolumes(&b, *record, ws, root); err != nil {
		return err
	}
	services, err := v.services(ctx, *record, ws, &b)
	if err != nil {
		return err
	}
	for _, s := range services {
		b.Listeners = append(b.Listeners, s.listen)
	}
	plan := provision.Plan{
		ID: record.ID, Rootfs: root, Layer: ws.Layer, Shape: record.Spec.Shape, Network: n.Mode, Binding: b,
	}
	var route egress.Route
	if n.Mode != cove.NetworkNone {
		plan.OpenRoute = func(cove.SandboxID) (_ provision.Route, err error) {
			route, err = v.host.Routes.OpenRoute(record.Owner, record.ID, record.Name, n)
			return keptRoute{route, ws, v.o.Log}, err
		}
	}
	sb, err := provision.New(ctx, eng, plan)
	if err != nil {
		return err
	}
	if err := keepMarks(v.dirOf(record.ID), sb); err != nil {
		return errors.Join(err, sb.TearDown())
	}
	makeVolumes(ctx, sb, *record, ws, root)
	v.occupy(r, sb, *record, v.newCPUMeter(record.Owner, 0), route, services, sb.Sockets, release)
	return nil
}

// rootfs returns the root filesystem of a sandbox, and holds it until release is called. Changes that a workspace keeps
// are changes to one image, whatever its name stands for by now.
func (rd *records) rootfs(ctx context.Context, eng engine.Engine, record store.Sandbox,
	ws workspace.Workspace) (root engine.Rootfs, release func(), err error) {
	image := record.Spec.Image
	if ws.Layer != "" {
		image = cmp.Or(record.Spec.Digest, image)
	}
	return provision.Rootfs(ctx, rd.o.Images, eng, image)
}

// networkOf returns the network of a sandbox: of its repository, of its request, and of later changes.
func (v *supervisor) networkOf(record store.Sandbox) (egress.Network, error) {
	spec, n := record.Spec, egress.Network{Mode: cove.NetworkNone}
	asked := spec.Network
	if spec.Repository != nil && spec.Repository.Remote != "" && (asked == nil || asked.Enabled) {
		needs, err := v.host.Routes.RepositoryNetwork(record.Owner, *spec.Repository, spec.AllowPR)
		if err != nil {
			return n, err
		}
		n = n.With(needs)
	}
	if asked != nil && asked.Enabled {
		more, err := egress.NetworkOf(asked)
		if err != nil {
			return n, err
		}
		n = n.With(more)
	}
	more, err := v.policyOfCheckouts(record)
	if err != nil {
		return n, err
	}
	n.Policy = append(n.Policy, more...)
	for _, c := range spec.Changes {
		documents, err := policy.Changes(c.Network())
		if err != nil {
			return n, err
		}
		n.Policy = append(n.Policy, documents...)
		n.Mode = cmp.Or(c.Mode, n.Mode)
	}
	return withNeighbours(v.residents, record, n), nil
}

// binding returns everything of the host that a sandbox is shown: its workspace and home, the workspace's other files,
// its agent's layers, and the mounts of its request. The caller closes it, also on error.
func (v *supervisor) binding(record store.Sandbox, ws workspace.Workspace) (b engine.Binding, err error) {
	if b.Hostname = record.Name; record.Spec.Service != nil {
		b.Hostname = record.Spec.Service.Name
	}
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
		place, err := v.host.Layers.Place(l.Name)
		if err != nil {
			return b, err
		}
		if err := b.Attach(place, engine.Attachment{Target: l.Target, ReadOnly: true}); err != nil {
			return b, err
		}
	}
	if err := makeMountPoints(ws, record.Spec.User.Home, record.Spec.Mounts); err != nil {
		return b, err
	}
	b.Mounts, b.Allow = slices.Concat(b.Mounts, record.Spec.Mounts), cove.MountAllowOf(record.Spec.MountsAllow)
	b.Again = record.State != cove.StatePreparing // a later socket, as of a program inside, does not keep it from starting
	config, err := v.writeGitConfig(record)
	if err != nil {
		return b, err
	}
	return b, b.Show(config, engine.File{Target: gitConfigPlace})
}

// throughput returns the limit of a sandbox's disk. Errors: Unsupported when others use the disk, too.
func (v *supervisor) throughput(record store.Sandbox) (engine.Throughput, error) {
	t := v.host.Throughput
	if t == (engine.Throughput{}) {
		return t, nil
	}
	var err error
	t.Device, err = v.host.Disks.Device(record.ID)
	if cove.ErrorCode(err) == cove.Unsupported {
		err = cove.Errorf(cove.Unsupported, "sandbox.lasting.throughput cannot be enforced: %w", err).
			WithHint("remove the setting, or see \"cove doctor\" (limit.workspaces) and make the sandbox anew")
	}
	return t, err
}

// newCPUMeter makes the meter of a sandbox whose CPU time has been counted up to some.
func (v *supervisor) newCPUMeter(owner cove.Principal, counted time.Duration) *cpuMeter {
	g := v.o.Grants.Of(owner)
	return &cpuMeter{quota: g.CountsCPU(), own: v.o.Store.For(owner), clock: v.o.Clock, log: v.o.Log,
		counted: counted}
}

// occupy records in the resident that a sandbox runs, and watches for its end.
func (v *supervisor) occupy(r *resident, sb *provision.Sandbox, record store.Sandbox, cpu *cpuMeter, route egress.Route,
	services []service, sockets []*os.File, release func()) {
	env := append(rootfs.Env(record.Spec.User), record.Spec.ImageEnv...)
	env = append(env, gitEnv...)
	if route != nil {
		env = rootfs.WithVariables(env, route.Env())
	}
	env = rootfs.InFront(env, record.Spec.Path)
	ctx, cancel := context.WithCancel(cpu.git.In(context.Background()))
	var serving sync.WaitGroup
	var git workGit
	var listeners []syscall.Conn
	for i, s := range services {
		env = rootfs.InFront(rootfs.WithVariables(env, s.env), s.front)
		ln, err := net.FileListener(sockets[i])
		sockets[i].Close()
		if err != nil {
			v.o.Log.Error("a service of a sandbox is not available", "sandbox", r.id, "address", s.listen.Address, "error", err)
			continue
		}
		listeners = append(listeners, ln.(syscall.Conn))
		serving.Go(func() { s.serve(ctx, ln) })
		if s.git != nil {
			git = s.git
		}
	}
	o := opened{
		route: route, git: git, cpu: cpu,
		env:  rootfs.LastWins(rootfs.WithVariables(env, record.Spec.Env)),
		ttys: v.newTerminals(sb, record.Spec.Limits.CPUs), left: make(chan struct{}),
	}
	o.close = sync.OnceFunc(func() {
		close(o.left)
		o.ttys.Detach(v.whyLeft())
		if gone(sb) {
			back := lent.Take(listeners...) // what serves them closes them
			cancel()
			back.End()
			serving.Wait()
			back.Free()
			if route != nil {
				route.Close()
			}
		} else {
			within(leavePatience, func() {
				cancel()
				serving.Wait()
				if route != nil {
					egress.Leave(route)
				}
			})
		}
		release()
	})
	v.mu.Lock()
	r.box, r.open = sb, o
	v.mu.Unlock()
	v.looking.Go(func() { v.watch(r, sb, o) })
}

// leavePatience is how long a sandbox that goes on may keep this process from closing its sockets: PID 1, which has
// them, too, can let them block.
const leavePatience = 5 * time.Second

// gone reports whether PID 1 of a sandbox has gone.
func gone(sb engine.Sandbox) bool {
	select {
	case <-sb.Done():
		return true
	default:
		return false
	}
}

// within calls f and returns with it, or without it when its time is up.
func within(patience time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

func (v *supervisor) newTerminals(sb engine.Sandbox, cpus float64) *terminals.Set {
	return terminals.New(terminals.Options{Sandbox: sb, CPUs: cpus, Recorders: v.host.Recorders, Clock: v.o.Clock,
		Log: v.o.Log, Serving: &v.serving})
}

// askToEnd asks every program to end, as a closing terminal and a machine's shutdown do, and gives them time.
func (v *supervisor) askToEnd(ctx context.Context, sb engine.Sandbox) {
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
		case <-v.o.Clock.After(stopPoll):
		case <-sb.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// vacate ends the running part of a sandbox. Its turn must be held.
func (v *supervisor) vacate(r *resident) error {
	bx, open := v.running(r)
	if bx == nil {
		return nil
	}
	open.cpu.count(context.Background(), bx)
	made := v.lookAtMounts(bx)
	if err := bx.TearDown(); err != nil {
		return err
	}
	open.close()
	v.mu.Lock()
	r.box, r.open, r.made = nil, opened{}, made
	v.mu.Unlock()
	return nil
}

// watch waits for a sandbox to end by itself, records that, and stops its services.
func (v *supervisor) watch(r *resident, sb *provision.Sandbox, o opened) {
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
	defer v.giveTurn(r)
	if now, _ := v.running(r); now != sb {
		return
	}
	ctx := context.Background()
	why := "its processes have ended: PID 1 of the sandbox has gone"
	if stats, err := sb.Stats(ctx); err == nil && stats.OOMKills > 0 {
		why = "its processes have ended: it was out of memory"
	}
	err := v.vacate(r)
	record, rerr := v.own().Sandbox(ctx, r.id)
	if err = errors.Join(err, rerr); err == nil && (record.State == cove.StateRunning ||
		record.State == cove.StatePaused) {
		err = v.own().MoveSandbox(ctx, r.id, record.State, cove.StateStopped, why)
	}
	if rerr == nil {
		err = errors.Join(err, v.halt(ctx, record))
	}
	v.o.Log.Warn("a sandbox has ended", "sandbox", r.id, "name", record.Name, "reason", why, "error", err)
}

// leave lets go of the sandboxes, which run on.
func (v *supervisor) leave() {
	v.mu.Lock()
	var all []opened
	for _, r := range v.held {
		if r.box != nil {
			all = append(all, r.open)
		}
	}
	v.mu.Unlock()
	for _, o := range all {
		o.close()
	}
	v.looking.Wait()
}

func (v *supervisor) dirOf(id cove.SandboxID) string { return filepath.Join(v.host.Dir, string(id)) }

// destroyLeft destroys an engine's sandbox that no process holds, and returns what came into being in its mounts.
func (v *supervisor) destroyLeft(ctx context.Context, engineName string, id cove.SandboxID) ([]hostpath.Made, error) {
	eng, err := v.o.Engines.Get(engineName)
	if err != nil {
		return nil, err
	}
	adopter, ok := eng.(engine.Adopter)
	if !ok {
		return nil, nil
	}
	sb, err := adopter.Adopt(ctx, id)
	if cove.ErrorCode(err) == cove.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, f := range sb.Listeners() {
		f.Close()
	}
	left := provision.Adopted(sb, readMarks(v.dirOf(id), v.o.Log))
	return v.lookAtMounts(left), left.TearDown()
}

// policyOfCheckouts returns the policy that the checkouts in a sandbox need for their branches.
func (v *supervisor) policyOfCheckouts(in store.Sandbox) (documents []*policy.Document, err error) {
	if asked := in.Spec.Network; asked != nil && !asked.Enabled {
		return nil, nil
	}
	for _, c := range in.Spec.Checkouts {
		if c.State != cove.StateRunning || c.Repository == nil || c.Repository.Remote == "" {
			continue
		}
		needs, err := v.host.Routes.RepositoryNetwork(in.Owner, *c.Repository, in.Spec.AllowPR)
		if err != nil {
			return nil, err
		}
		documents = append(documents, needs.Policy...)
	}
	return documents, nil
}

// writeGitConfig writes the configuration of git inside, and returns its place.
func (v *supervisor) writeGitConfig(record store.Sandbox) (hostpath.Own, error) {
	place := hostpath.Own{Dir: v.dirOf(record.ID), Name: "gitconfig"}
	err := os.MkdirAll(place.Dir, 0o755)
	if err == nil {
		err = atomicfile.Write(filepath.Join(place.Dir, place.Name), []byte(gitConfig(record.Spec)), 0o644)
	}
	if err != nil {
		return place, cove.Errorf(cove.StorageFull, "cannot write what a sandbox is shown: %w", err).
			WithHint("free some space, or choose another home with COVE_HOME")
	}
	return place, nil
}

// services returns the services of a sandbox, always in the same order, by which another process finds their sockets.
// The services add their files to b, which is nil for a running sandbox.
func (v *supervisor) services(ctx context.Context, record store.Sandbox, ws workspace.Workspace,
	b *engine.Binding) ([]service, error) {
	all := servicesOf(record.Spec)
	if ws.Hidden == "" {
		return all, nil
	}
	git, err := v.openGit(ctx, record, ws)
	if err != nil {
		return nil, err
	}
	if b != nil {
		if err := git.Bind(b); err != nil {
			git.Close()
			return nil, err
		}
	}
	return append(all, service{listen: git.Listen(), front: git.Programs(), serve: git.Serve, git: git}), nil
}

// openGit makes git for a sandbox whose repository stays outside.
func (v *supervisor) openGit(ctx context.Context, record store.Sandbox, ws workspace.Workspace) (GitService, error) {
	if v.host.Git == nil {
		return nil, cove.Errorf(cove.Unsupported, "a worktree needs git beside the sandbox, which is not available here").
			WithHint("leave out --worktree")
	}
	return v.host.Git.OpenGit(ctx, HiddenGit{
		ID: record.ID, Name: record.Name, Owner: record.Owner, Workspace: ws, Dir: filepath.Join(v.dirOf(record.ID), "git"),
		Network: func(ctx context.Context) (egress.Network, error) {
			now, err := v.o.Store.For(record.Owner).Sandbox(ctx, record.ID)
			if err != nil {
				return egress.Network{}, err
			}
			return v.networkOf(now)
		},
		Audit: func(args []string, err error) {
			r := auditRecord("git", record.ID, fmt.Sprintf("a program in %s: %.500q", record.Name, args), err)
			if cove.ErrorCode(err) == cove.Forbidden {
				r.Verdict = "deny"
			}
			v.Audit(context.Background(), record.Owner, r)
		},
		NewMeter: func() func(context.Context, engine.Sandbox) { return v.newCPUMeter(record.Owner, 0).count },
	})
}
