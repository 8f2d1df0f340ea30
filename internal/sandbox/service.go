package sandbox

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/store"
)

// serviceRunner runs the programs of services.
type serviceRunner struct{ *supervisor }

// serviceLabel marks the program of a service in the guest.
const serviceLabel = "service"

const (
	readyTime = 2 * time.Minute // for a service to be ready, beside the time that its image says
	mostStart = 10 * time.Minute
	readyPoll = 50 * time.Millisecond // between attempts to connect
	checkTime = 30 * time.Second      // of one check, if the image does not say
	// serviceGrace is the time that the program of a service has to end when it is asked to: it may have data to write.
	serviceGrace = 10 * time.Second
)

// imageDir returns the directory in which the program of an image begins.
func imageDir(root engine.Rootfs) string {
	dir := path.Join("/", root.WorkDir)
	if root.Kind == engine.RootfsDir && !rootfs.HasDir(root.Stack(), dir) {
		return "/"
	}
	return dir
}

// begin starts the program of a service that has been brought up, and waits until it is ready. Errors: RuntimeMissing,
// Unavailable with the end of its output.
func (v serviceRunner) begin(ctx context.Context, r *resident, record store.Sandbox) error {
	name := record.Spec.Service.Name
	eng, err := v.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	root, release, err := provision.Rootfs(ctx, v.o.Images, eng, cmp.Or(record.Spec.Digest, record.Spec.Image))
	if err != nil {
		return err
	}
	defer release()
	args := slices.Concat(root.Entrypoint, root.Cmd)
	if len(record.Spec.Service.Args) > 0 {
		args = slices.Concat(root.Entrypoint, record.Spec.Service.Args)
	}
	if len(args) == 0 {
		return cove.Errorf(cove.RuntimeMissing, "the image %s of the service %s has no program", record.Spec.Image, name).
			WithHint("use an image with an ENTRYPOINT or CMD, or give the service args")
	}
	sb, open := v.running(r)
	spec := guest.ProcessSpec{Args: args, Env: open.env, Dir: record.Spec.WorkDir, Label: []byte(serviceLabel)}
	p, err := process.Start(ctx, sb, v.o.Clock, spec)
	if err != nil {
		return startFailure(spec, err)
	}
	program := v.attend(r, sb, p)
	return v.awaitReady(ctx, readiness{sandbox: sb, root: root, service: *record.Spec.Service, env: open.env,
		dir: record.Spec.WorkDir}, program)
}

// attend keeps the end of a program's output, and stops its service when the program ends.
func (v serviceRunner) attend(r *resident, sb *provision.Sandbox, p *process.Process) *serviceProgram {
	program := &serviceProgram{p, new(tail)}
	p.Copy(program.said, program.said, nil)
	v.mu.Lock()
	r.open.runs = program
	left := r.open.left
	v.mu.Unlock()
	v.serving.Go(func() {
		<-p.Exited()
		p.Copied()
		o := p.Wait()
		if o.Lost != nil { // the sandbox has ended, or this server lets go of it
			return
		}
		select {
		case <-left:
			return
		case r.turn <- struct{}{}:
		}
		defer v.giveTurn(r)
		if now, _ := v.running(r); now != sb {
			return
		}
		err := errors.Join(v.vacate(r), v.noteEnd(r.id, program.ending(o)))
		v.o.Log.Warn("the program of a service has ended", "sandbox", r.id, "code", o.Code, "error", err)
	})
	return program
}

// end asks the program of a service to end, by the signal that its image states, and then all others, and gives them
// time.
func (v serviceRunner) end(ctx context.Context, r *resident, record store.Sandbox) {
	bx, open := v.running(r)
	if open.runs != nil {
		late, cancel := context.WithTimeout(ctx, serviceGrace)
		defer cancel()
		if open.runs.Signal(late, v.stopSignal(late, record)) == nil {
			_ = open.runs.Await(late, 0) // one that does not end is killed
		}
	}
	v.askToEnd(ctx, bx)
}

// stopSignal is the signal that asks the program of a service to end.
func (v serviceRunner) stopSignal(ctx context.Context, record store.Sandbox) syscall.Signal {
	eng, err := v.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return syscall.SIGTERM
	}
	root, release, err := provision.Rootfs(ctx, v.o.Images, eng, cmp.Or(record.Spec.Digest, record.Spec.Image))
	if err != nil {
		return syscall.SIGTERM
	}
	release()
	return signalOf(root.StopSignal)
}

// signalOf reads a signal of an image: a name with or without SIG, or a number. Others are SIGTERM.
func signalOf(text string) syscall.Signal {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n)
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return cmp.Or(unix.SignalNum(name), syscall.SIGTERM)
}

// noteEnd records that a service has stopped by itself.
func (v serviceRunner) noteEnd(id cove.SandboxID, why string) error {
	record, err := v.own().Sandbox(context.Background(), id)
	if err == nil && (record.State == cove.StateRunning || record.State == cove.StatePaused) {
		err = v.own().MoveSandbox(context.Background(), id, record.State, cove.StateStopped, why)
	}
	return err
}

// adopt takes over the program of a service, which an earlier server has started.
func (v serviceRunner) adopt(ctx context.Context, sb engine.Sandbox, info guest.ProcessInfo) error {
	v.mu.Lock()
	r := v.held[sb.ID()]
	v.mu.Unlock()
	if r == nil {
		return cove.Errorf(cove.NotFound, "no sandbox %s is held", sb.ID())
	}
	bx, _ := v.running(r)
	p, err := process.Adopt(ctx, sb, v.o.Clock, info.ID, info.Stdout, info.Stderr)
	if err == nil {
		v.attend(r, bx, p)
	}
	return err
}

// check stops a service that has been taken over without its program, which has ended meanwhile.
func (v serviceRunner) check(r *resident) error {
	if _, open := v.running(r); open.runs != nil {
		return nil
	}
	return errors.Join(v.vacate(r), v.noteEnd(r.id, "its program ended while no server ran"))
}

// readiness holds all that tells whether a service is ready.
type readiness struct {
	sandbox *provision.Sandbox
	root    engine.Rootfs
	service cove.Service
	env     []string
	dir     string
}

// awaitReady waits until a service is ready. Errors: Unavailable, the end of ctx.
func (v serviceRunner) awaitReady(ctx context.Context, of readiness, program *serviceProgram) error {
	late, cancel := context.WithTimeout(ctx, readyTime+min(of.root.Health.Start, mostStart))
	defer cancel()
	for {
		select {
		case <-program.Exited():
			program.Copied()
			return cove.Errorf(cove.Unavailable, "the service %s does not run: %s", of.service.Name,
				program.ending(program.Wait())).WithHint("see what its image needs, such as variables (--service-env)")
		default:
		}
		why := of.check(late, v.o.Clock)
		if why == nil {
			return nil
		}
		select {
		case <-program.Exited():
		case <-v.o.Clock.After(of.pause()):
		case <-late.Done():
			if program.Ended() {
				continue
			}
			if ctx.Err() != nil {
				return cove.Errorf(cove.Canceled, "the service %s was not ready yet: %w", of.service.Name, context.Cause(ctx))
			}
			said := program.said.lines(saidLines)
			if said != "" {
				said = "; its last output: " + said
			}
			return cove.Errorf(cove.Unavailable, "the service %s is not ready after %s: %w%s", of.service.Name,
				readyTime+min(of.root.Health.Start, mostStart), why, said).
				WithHint("see what its image needs, such as variables (--service-env)")
		}
	}
}

// pause returns the time between two checks.
func (of readiness) pause() time.Duration {
	if len(of.root.Health.Args) == 0 {
		return readyPoll
	}
	const least, most = 100 * time.Millisecond, time.Second // an image's own interval is for a program that runs for long
	if of.root.Health.Interval == 0 {
		return most
	}
	return min(max(of.root.Health.Interval, least), most)
}

// check returns why a service is not ready: the image's own check decides, or else that all of the service's ports
// accept connections, or one of those that the image names. A service without any is ready once it runs.
func (of readiness) check(ctx context.Context, c clock.Clock) error {
	if len(of.root.Health.Args) > 0 {
		return of.healthy(ctx, c)
	}
	for _, port := range of.service.Ports {
		if err := of.accepts(ctx, port); err != nil {
			return err
		}
	}
	if len(of.service.Ports) > 0 {
		return nil
	}
	var why error
	for _, port := range of.root.Ports {
		if why = of.accepts(ctx, port); why == nil {
			return nil
		}
	}
	return why
}

func (of readiness) accepts(ctx context.Context, port uint16) error {
	c, err := connect(ctx, of.sandbox, "the service "+of.service.Name, port)
	if err == nil {
		c.Close()
	}
	return err
}

// healthy runs the check of an image.
func (of readiness) healthy(ctx context.Context, c clock.Clock) error {
	limit := of.root.Health.Timeout
	if limit <= 0 {
		limit = checkTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var said tail
	spec := guest.ProcessSpec{Args: of.root.Health.Args, Env: of.env, Dir: of.dir}
	p, err := process.Start(ctx, of.sandbox, c, spec)
	if err != nil {
		return startFailure(spec, err)
	}
	o, err := p.Attend(ctx, process.Attendance{Stdout: &said, Stderr: &said})
	switch {
	case err != nil:
		return cove.Errorf(cove.Unavailable, "its check takes longer than %s: %w", limit, err)
	case o.Lost != nil:
		return cove.Errorf(cove.Unavailable, "its check was not run to its end: %w", o.Lost)
	case o.Code != 0:
		return cove.Errorf(cove.Unavailable, "its check ends with %d: %s", o.Code, escaped(said.text()))
	}
	return nil
}
