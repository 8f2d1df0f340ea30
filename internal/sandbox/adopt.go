package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

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
	return v.connect(r, provision.Adopted(sb, readMarks(v.dirOf(record.ID), v.o.Log)), *record, release)
}

// connect opens the route and the services of a sandbox that runs already. When that fails, the sandbox runs on, and
// nothing leaves it.
func (v *supervisor) connect(r *resident, sb *provision.Sandbox, record store.Sandbox, release func()) error {
	services, unserved := v.servicesAgain(record)
	route, own, err := v.openAgain(record, sb.Listeners(), len(services))
	if err != nil {
		services = nil
	}
	err = errors.Join(err, unserved)
	ctx, cancel := context.WithTimeout(context.Background(), adoptTimeout)
	defer cancel()
	cpu := v.newCPUMeter(record.Owner, -1) // an earlier server has counted what it has used
	cpu.count(ctx, sb)
	v.occupy(r, sb, record, cpu, route, services, own, release)
	_, open := v.running(r)
	err = errors.Join(err, v.adoptPrograms(ctx, record.Owner, sb, open.ttys))
	if record.Spec.Service == nil {
		return err
	}
	return errors.Join(err, serviceRunner{v}.check(r))
}

// openAgain opens a sandbox's route on the sockets that it holds, and takes them over except the first ones, which it
// returns.
func (v *supervisor) openAgain(record store.Sandbox, sockets []*os.File, first int) (route egress.Route,
	own []*os.File, err error) {
	if record.Spec.Mode != cove.NetworkNone {
		var n egress.Network
		if n, err = v.networkOf(record); err == nil {
			route, err = v.host.Routes.OpenRoute(record.Owner, record.ID, record.Name, n)
		}
		if err != nil {
			for _, f := range sockets {
				f.Close()
			}
			return nil, nil, err
		}
	}
	if own, err = provision.Serve(sockets, first, route); err != nil && route != nil {
		egress.Leave(route)
		route = nil
	}
	return route, own, err
}

// detachedLabel marks, in the guest, a command that outlives the server.
const detachedLabel = "detached"

// adoptPrograms takes over the programs of an earlier server in a sandbox of an owner's: terminals, detached commands,
// and processes with a name. Other programs, for which no server waits any more, are ended. Terminals and detached
// commands are among what the owner has at once, as only the guest could tell which caller has started them.
func (v *supervisor) adoptPrograms(ctx context.Context, owner cove.Principal, sb engine.Sandbox,
	ttys *terminals.Set) error {
	programs, err := sb.Guest().Listed(ctx)
	if err != nil {
		if to := successorOf(v); to != nil {
			to.Unlisted(sb.ID())
		}
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, info := range programs {
		if err := v.adoptProgram(ctx, owner, sb, ttys, info); err != nil {
			v.o.Log.Warn("a process of a sandbox cannot be adopted", "sandbox", sb.ID(), "process", info.ID, "error", err)
		}
	}
	return nil
}

func (v *supervisor) adoptProgram(ctx context.Context, owner cove.Principal, sb engine.Sandbox, ttys *terminals.Set,
	info guest.ProcessInfo) error {
	if string(info.Label) == serviceLabel {
		return serviceRunner{v}.adopt(ctx, sb, info)
	}
	if terminals.Is(info) || string(info.Label) == detachedLabel {
		release, err := v.o.Places.Hold(ctx, owner, true)
		if err != nil {
			return err
		}
		if terminals.Is(info) {
			err = ttys.Adopt(ctx, info, release)
		} else {
			err = v.readOn(ctx, sb, info, release)
		}
		if err != nil {
			release()
		}
		return err
	}
	left := LeftProcess{Sandbox: sb.ID(), Name: processName(info.Label), From: info.Stdout, To: info.StdoutEnd,
		takeUp: func(ctx context.Context, from uint64, input *string) (*Process, error) {
			return v.takeUp(ctx, sb, info, from, input)
		},
		end: func(ctx context.Context) error { return v.endProgram(ctx, sb, info) }}
	to := successorOf(v)
	if left.Name == "" || info.TTY || to == nil {
		return left.End(ctx)
	}
	to.TakeUp(left)
	return nil
}

// successorOf returns who receives the processes of an earlier server, or nil.
func successorOf(v *supervisor) Successor {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.host == nil {
		return nil
	}
	return v.host.Successor
}

// servicesAgain returns the services of a sandbox that runs already. A service that cannot be opened answers nothing.
func (v *supervisor) servicesAgain(record store.Sandbox) ([]service, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adoptTimeout)
	defer cancel()
	ws, err := v.host.Workspaces.Open(ctx, record.ID)
	var all []service
	if err == nil {
		all, err = v.services(ctx, record, ws, nil)
	}
	if err != nil {
		all = servicesOf(record.Spec)
		if ws.Hidden != "" {
			all = append(all, service{serve: func(_ context.Context, ln net.Listener) { ln.Close() }})
		}
	}
	return all, err
}

// takeUp continues a program of an earlier server from an offset of its standard output, and sends the rest of an input
// that is not nil.
func (v *supervisor) takeUp(ctx context.Context, sb engine.Sandbox, info guest.ProcessInfo, from uint64,
	input *string) (*Process, error) {
	select {
	case <-sb.Done():
		return nil, cove.Errorf(cove.Conflict, "the sandbox %s has ended, and the program with it", sb.ID())
	default:
	}
	in, err := v.inside(ctx, cove.System(""), string(sb.ID()))
	if err != nil {
		return nil, err
	}
	stats, err := in.Guest.Stats(ctx)
	if err != nil {
		return nil, err
	}
	p, err := process.AdoptKept(ctx, sb, v.o.Clock, info.ID, from, info.Stderr)
	if err != nil {
		return nil, err
	}
	if input != nil {
		if p.Sent() > uint64(len(*input)) {
			return nil, cove.Errorf(cove.Corrupt, "a program is said to have %d bytes of an input of %d", p.Sent(), len(*input))
		}
		p.Feed(strings.NewReader((*input)[p.Sent():]))
	}
	return newProcess(in, p, stats, func() error { return v.whyLost(in.Guest) }), nil
}

// readOn reads a detached command of an earlier server to its end, and drops what it prints. Its input ends. release is
// called at its end; after an error the caller calls it.
func (v *supervisor) readOn(ctx context.Context, sb engine.Sandbox, info guest.ProcessInfo, release func()) error {
	p, err := process.Adopt(ctx, sb, v.o.Clock, info.ID, info.Stdout, info.Stderr)
	if err != nil {
		return err
	}
	p.Copy(nil, nil, nil)
	v.serving.Go(func() {
		p.Copied()
		<-p.Exited()
		release()
	})
	return p.Stdin().Close()
}

// endProgram drops the output of a program of an earlier server, and kills it.
func (v *supervisor) endProgram(ctx context.Context, sb engine.Sandbox, info guest.ProcessInfo) error {
	p, err := process.Adopt(ctx, sb, v.o.Clock, info.ID, info.Stdout, info.Stderr)
	if err != nil {
		return err
	}
	p.Copy(nil, nil, nil)
	v.serving.Go(p.Copied)
	return p.Kill()
}
