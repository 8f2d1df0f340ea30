package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
)

// adopt takes over a running sandbox that no process holds. One that has ended is recorded as stopped, and the error is
// NotFound.
func (v *supervisor) adopt(ctx context.Context, r *resident, record *store.Sandbox) error {
	if bx, _ := v.running(r); bx != nil {
		return cove.Errorf(cove.Unavailable, "the sandbox %s has no way out", record.Name).
			WithHint("stop it and start it again")
	}
	eng, err := v.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	adopter, ok := eng.(engine.Adopter)
	if !ok {
		return cove.Errorf(cove.Unsupported, "the engine %s has no long-lived sandboxes", eng.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	sb, err := adopter.Adopt(ctx, record.ID)
	if cove.ErrorCode(err) == cove.NotFound {
		return errors.Join(err, v.stopped(ctx, record))
	}
	if err != nil {
		return err
	}
	if record.State == cove.StatePaused { // it is not any more
		if err := v.own().MoveSandbox(ctx, record.ID, cove.StatePaused, cove.StateRunning, ""); err != nil {
			return err
		}
		record.State = cove.StateRunning
	}
	release := func() {}
	if record.Spec.Digest != "" {
		if release, err = v.o.Images.Hold(ctx, record.Spec.Digest); err != nil {
			v.o.Log.Warn("the image of a sandbox that runs is not there any more", "sandbox", record.ID, "error", err)
			release = func() {}
		}
	}
	return v.connect(r, provision.Adopted(sb), *record, release)
}

// connect opens the route and the services of a sandbox that runs already. When that fails, the sandbox runs on, and
// nothing leaves it.
func (v *supervisor) connect(r *resident, sb *provision.Sandbox, record store.Sandbox, release func()) error {
	services, unserved := v.servicesAgain(record)
	way, own, err := v.openAgain(record, sb.Listeners(), len(services))
	if err != nil {
		services = nil
	}
	err = errors.Join(err, unserved)
	v.occupy(r, sb, record, way, services, own, release)
	_, open := v.running(r)
	ctx, cancel := context.WithTimeout(context.Background(), adoptTimeout)
	defer cancel()
	return errors.Join(err, v.adoptPrograms(ctx, sb, open.ttys))
}

// openAgain opens a sandbox's route on the sockets that it holds, and takes them over except the first ones, which it
// returns.
func (v *supervisor) openAgain(record store.Sandbox, sockets []*os.File, first int) (way egress.Route,
	own []*os.File, err error) {
	if record.Spec.Mode != cove.NetworkNone {
		var n egress.Network
		if n, err = v.networkOf(record); err == nil {
			way, err = v.host.Routes.OpenRoute(record.Owner, record.ID, record.Name, n)
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

// detachedLabel marks, in the guest, a command that outlives the server.
const detachedLabel = "detached"

// adoptPrograms takes over the programs of an earlier server in a sandbox: terminals, and processes with a name. Other
// programs, for which no server waits any more, are ended.
func (v *supervisor) adoptPrograms(ctx context.Context, sb engine.Sandbox, ttys *terminals.Set) error {
	programs, err := sb.Guest().Listed(ctx)
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, info := range programs {
		if err := v.adoptProgram(ctx, sb, ttys, info); err != nil {
			v.o.Log.Warn("a process of a sandbox cannot be adopted", "sandbox", sb.ID(), "process", info.ID, "error", err)
		}
	}
	return nil
}

func (v *supervisor) adoptProgram(ctx context.Context, sb engine.Sandbox, ttys *terminals.Set,
	info guest.ProcessInfo) error {
	if ok, err := ttys.Adopt(ctx, info); ok {
		return err
	}
	left := LeftProcess{Sandbox: sb.ID(), Name: processName(info.Label), From: info.Stdout, To: info.StdoutEnd, v: v,
		engine: sb, info: info}
	v.mu.Lock()
	with := v.host
	v.mu.Unlock()
	if left.Name == "" || info.TTY || with == nil || with.Successor == nil {
		return left.End(ctx)
	}
	with.Successor.TakeUp(left)
	return nil
}

// LeftProcess is a process of an earlier server, to be taken up or ended. It stalls when its output is not read.
type LeftProcess struct {
	Sandbox  cove.SandboxID
	Name     string
	From, To uint64 // what is there of its standard output: offsets from its beginning

	v      *supervisor
	engine engine.Sandbox
	info   guest.ProcessInfo
}

// TakeUp continues a process, from an available offset of its standard output. Unread standard error comes first.
func (l LeftProcess) TakeUp(ctx context.Context, from uint64) (*Process, error) {
	if from < l.From || from > l.To {
		return nil, cove.Errorf(cove.Corrupt, "what a program has written up to %d is not there any more", l.From)
	}
	in, err := l.v.inside(ctx, cove.System(""), string(l.Sandbox))
	if err != nil {
		return nil, err
	}
	stats, err := in.Guest.Stats(ctx)
	if err != nil {
		return nil, err
	}
	p, err := process.Adopt(ctx, l.engine, l.v.o.Clock, l.info.ID, from, l.info.Stderr)
	if err != nil {
		return nil, err
	}
	return l.v.newProcess(in, p, stats), nil
}

// End kills a process that is not adopted, unless it is a detached command. Its output is dropped.
func (l LeftProcess) End(ctx context.Context) error {
	p, err := process.Adopt(ctx, l.engine, l.v.o.Clock, l.info.ID, l.info.Stdout, l.info.Stderr)
	if err != nil {
		return err
	}
	p.Copy(nil, nil, nil)
	l.v.serving.Go(p.Copied)
	if string(l.info.Label) == detachedLabel {
		return nil
	}
	return p.Kill()
}

// reasonGone is the reason in the record of a sandbox that ended while no server ran.
const reasonGone = "it ended while no server ran, as in a restart of the machine"
