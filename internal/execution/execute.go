package execution

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// MaxCode is the most code of one request, in bytes.
const MaxCode = 1 << 20

// snippetDefaults are the least specific layer of a snippet's spec.
var snippetDefaults = cove.Spec{Shape: cove.Shape{User: cove.CodeUser}}

const (
	endNone   ending = iota
	endItself        // nothing else can be the reason any more
	endTimeout
	endKilled
	endShutdown
)

// end asks for the execution's end; the first reason stays.
func (e *execution) end(why ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why == endNone {
		e.why = why
		e.cancel()
	}
}

func (e *execution) reason() ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// Execute runs one snippet of the principal's in a sandbox of its own. started, which may be nil, is told the id once
// the execution is recorded, and before anything runs; out, which may be nil, receives the output as it comes. A
// program that fails, or is ended by a limit, by Kill or by the end of ctx, is a Result, whose Output the caller
// releases; an error means that Cove could not run it.
func (x *Executions) Execute(ctx context.Context, who cove.Principal, r Request, started func(cove.ExecutionID),
	out process.Output) (Result, error) {
	if err := x.call(); err != nil {
		return Result{}, err
	}
	defer x.calls.Done()
	e, err := x.admit(ctx, who, r, out)
	if err != nil {
		return Result{Events: e.events}, err
	}
	defer x.dismiss(e)
	result, err := x.runRecorded(ctx, e, started)
	if err != nil {
		e.output.kept.Release()
	}
	return result, err
}

// call counts a caller of Execute, whom Close waits for.
func (x *Executions) call() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return cove.ShuttingDown()
	}
	x.calls.Add(1)
	return nil
}

// admit checks the request and waits for a place. When it fails, nothing has been made, and nothing recorded except
// refused code; the execution then only says what was noticed.
func (x *Executions) admit(ctx context.Context, who cove.Principal, r Request, out process.Output) (*execution, error) {
	e, err := resolve(x, who, r)
	if err != nil {
		return e, err
	}
	if err := check(e.request); err != nil {
		return e, err
	}
	if err := checkPlaces(e.files(), r.Mounts); err != nil {
		return e, err
	}
	if e.turn, err = x.enter(ctx, who, e.limits.Timeout); err != nil {
		return e, err
	}
	x.clean.Go(func() { x.queue.watch(e.turn, e.cpuTime) })
	// A refusal is recorded, so it takes a place as others do.
	if err := x.inspect(ctx, e); err != nil {
		x.queue.leave(e.turn)
		return e, err
	}
	if err := x.equip(ctx, e); err != nil {
		x.queue.leave(e.turn)
		return e, err
	}
	e.output = newCollector(x.o.Spool, who, out, e.limits.Stdout, e.limits.Stderr)
	e.register()
	return e, nil
}

// resolve makes an execution of a request, with its runtime, its limits and its network.
func resolve(x *Executions, who cove.Principal, r Request) (*execution, error) {
	r.Spec = r.Over(x.o.Defaults).Over(snippetDefaults)
	e := &execution{executions: x, id: cove.NewExecutionID(), who: who, request: r, dismissed: make(chan struct{}),
		cancel: func() {}}
	var err error
	if e.runtime, err = runtime.Lookup(r.Language); err != nil {
		return e, err
	}
	bounds := x.o.Bounds
	if who.IsOwner() {
		bounds = bounds.ForOwner()
	}
	if e.limits, err = bounds.Resolve(e.runtime, r.Limits); err != nil {
		return e, err
	}
	e.limits = r.Own.Over(e.limits)
	e.network, err = egress.NetworkOf(r.Network)
	return e, err
}

// register makes e known as running. One that comes after Close has ended the others is ended at once.
func (e *execution) register() {
	x := e.executions
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running[e.id] = e
	if x.ending {
		e.end(endShutdown)
	}
}

// equip finds the engine and the root filesystem.
func (x *Executions) equip(ctx context.Context, e *execution) (err error) {
	if e.engine, err = x.o.Engines.Get(e.request.Engine); err != nil {
		return err
	}
	if e.rootfs, e.release, err = provision.Rootfs(ctx, x.o.Images, e.engine, e.request.Image); err != nil {
		return err
	}
	e.request.User, err = provision.User(e.engine, e.rootfs, e.request.Spec)
	if err == nil && e.runtime.OfImage() && len(e.command()) == 0 {
		err = cove.Errorf(cove.InvalidArgument, "the image %.200q does not say which program it runs", e.request.Image).
			WithHint("name one: --entrypoint PROGRAM, or arguments after --")
	}
	if err != nil {
		e.release()
	}
	return err
}

func (x *Executions) dismiss(e *execution) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.running, e.id)
	close(e.dismissed)
}

// check refuses a malformed request.
func check(r Request) error {
	invalid := func(format string, args ...any) error { return cove.Errorf(cove.InvalidArgument, format, args...) }
	ofImage := strings.EqualFold(r.Language, runtime.Image)
	switch {
	case ofImage && len(r.Code) > 0:
		return cove.Errorf(cove.InvalidArgument, "the program of an image takes no code").
			WithHint("name a language, or give arguments after --")
	case !ofImage && len(r.Entrypoint) > 0:
		return cove.Errorf(cove.InvalidArgument, "an entrypoint is for the program of an image, not for %.64s", r.Language).
			WithHint("name no language, or leave the entrypoint out")
	case ofImage && (slices.Contains(r.Entrypoint, "") || r.Image == "" || r.Image == "host"):
		return cove.Errorf(cove.InvalidArgument, "no image is named whose program could be run").
			WithHint("name one: --image IMAGE, and its program with --entrypoint PROGRAM if not its own")
	case len(r.Code) == 0 && !ofImage:
		return cove.Errorf(cove.InvalidArgument, "there is no code").WithHint("give a file, -c CODE, or the field \"code\"")
	case len(r.Code) > MaxCode:
		return cove.Errorf(cove.TooLarge, "the code has %d bytes, at most %d are allowed", len(r.Code), MaxCode).
			WithHint("put data into files or standard input")
	case !utf8.Valid(r.Code):
		return invalid("the code is not valid UTF-8")
	}
	if err := runtime.CheckArgs(slices.Concat(r.Entrypoint, r.Args)); err != nil {
		return err
	}
	if err := provision.CheckFiles(r.Files, provision.MaxFiles); err != nil {
		return err
	}
	if err := cove.CheckLabels(r.Labels); err != nil {
		return err
	}
	for _, m := range r.Mounts {
		if err := rootfs.ValidateTarget(m.Target); err != nil {
			return err
		}
	}
	return runtime.CheckEnv(r.Env)
}

// checkPlaces refuses files that would be written into a mount, which is to say
// over what the caller has on the host, and two different ones in one place.
func checkPlaces(files []provision.File, mounts []cove.Mount) error {
	for i, f := range files {
		code := files[0]
		if i > 0 && f.Path == code.Path && !bytes.Equal(f.Data, code.Data) {
			return cove.Errorf(cove.InvalidArgument, "the file %q has the name under which the code is placed", f.Path).
				WithHint("give it another name, or run it as the code")
		}
		for _, m := range mounts {
			place, target := cove.WorkDir+"/"+f.Path, path.Clean(m.Target)
			if place == target || strings.HasPrefix(place, target+"/") {
				return cove.Errorf(cove.InvalidArgument,
					"a mount at %q is not possible: the file %q would be written into it, over what is on the host", m.Target, f.Path).
					WithHint("mount it somewhere else, such as %s", cove.Workspace)
			}
		}
	}
	return nil
}

// run makes the sandbox, runs the program and returns how it ended. begun is
// waited for before anything of the user's runs.
func (e *execution) run(ctx context.Context, begun func() error) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	e.cancel = cancel
	if e.why != endNone {
		cancel()
	}
	e.mu.Unlock()

	sb, prepared, err := e.open(ctx)
	if err != nil {
		e.release()
		e.executions.queue.leave(e.turn)
		return Result{}, e.excuse(err)
	}
	defer func() { e.executions.discard(e.turn, sb, e.release) }()
	if err := begun(); err != nil {
		return Result{}, err
	}
	p, start, err := e.start(ctx, sb, prepared)
	if err != nil && ctx.Err() == nil && prepared.Failed() {
		sb, p, start, err = e.replace(ctx, sb, err)
	}
	if err != nil {
		return Result{}, e.excuse(err)
	}
	e.executions.trials.worked(e.engine, e.executions.o.Clock.Monotonic())
	next := e.executions.o.Clock.AfterFunc(refillAfter, e.executions.Pool.kept.Wake)
	defer next.Stop() // discard does it
	outcome := e.attend(ctx, p)
	if route := e.currentRoute(); route != nil {
		route.Shut() // all that became of its connections is recorded before the result
	}
	took := e.executions.o.Clock.Since(start)
	stats, err := sb.Stats(context.WithoutCancel(ctx))
	if err != nil {
		return Result{}, err
	}
	e.turn.cpu = stats.CPUTime
	e.events = append(slices.Clip(e.events), made(sb.Made(ctx))...)
	return e.conclude(outcome, stats, took)
}

// refillAfter is how long a program runs until what it has claimed is made up for, beside it. That takes as long as a
// short program, which would wait for a processor.
const refillAfter = 20 * time.Millisecond

// made returns the events about what came into being in mounts.
func made(all []hostpath.Made) (events []detect.Event) {
	for _, m := range all {
		event := detect.Event{Rule: detect.MadeInMount, Severity: detect.Medium, Detail: m.Text(), Paths: m.Paths()}
		if len(m.Git) > 0 {
			event.Severity = detect.High
		}
		events = append(events, event)
	}
	return events
}

// answerPatience is how long a guest may take to take the files and to start the program. It does not depend on the
// program's own time: a guest with little of a busy processor is slow, and honest.
const answerPatience = 60 * time.Second

// start delivers the files, starts the program unless it is parked, and returns when it was asked for.
func (e *execution) start(ctx context.Context, sb *provision.Sandbox, prepared *pool.Prepared) (p *process.Process,
	at clock.Instant, err error) {
	late := cove.Errorf(cove.Unavailable, "the sandbox's guest does not answer").
		WithHint("see the log; run \"cove doctor\"")
	ctx, cancel := context.WithTimeoutCause(ctx, answerPatience, late)
	defer cancel()
	if prepared != nil && prepared.Process != nil {
		at = e.executions.o.Clock.Monotonic()
		return prepared.Process, at, guest.Release(ctx, sb.Guest(), e.codePath(), codeMode, e.request.Code)
	}
	if err := provision.Deliver(ctx, sb.Guest(), cove.WorkDir, e.files()); err != nil {
		if context.Cause(ctx) == error(late) {
			return nil, 0, late
		}
		return nil, 0, err
	}
	at = e.executions.o.Clock.Monotonic()
	if p, err = process.Start(ctx, sb, e.executions.o.Clock, e.program()); err != nil {
		return nil, 0, e.startError(err)
	}
	return p, at, nil
}

// plain returns the recipe of prepared sandboxes for plain executions.
func plain(ctx context.Context, x *Executions, p Plain) (r pool.Recipe, err error) {
	e, err := resolve(x, cove.System(""), Request{Language: p.Language, Spec: cove.Spec{Image: p.Image, Engine: p.Engine,
		Shape: cove.Shape{Limits: p.Limits}}})
	if err != nil {
		return r, err
	}
	if err := x.equip(ctx, e); err != nil {
		return r, err
	}
	defer e.release()
	r, ok := e.recipe()
	if !ok {
		err = cove.Errorf(cove.Unsupported, "no sandbox can be prepared for %s: each has a network", p.Language).
			WithHint("see \"prepared sandboxes\" in docs/running.md")
	}
	return r, err
}

// open claims a prepared sandbox, or makes one: prepared is nil then, unless its interpreter comes from a zygote.
func (e *execution) open(ctx context.Context) (sb *provision.Sandbox, prepared *pool.Prepared, err error) {
	if r, ok := e.recipe(); ok {
		kept := e.executions.Pool.kept
		if prepared = kept.Claim(ctx, r); prepared == nil {
			prepared = kept.Make(ctx, r)
		}
		if prepared != nil {
			e.mu.Lock()
			e.sandbox = prepared.Sandbox
			e.mu.Unlock()
			return prepared.Sandbox, prepared, nil
		}
	}
	sb, err = e.make(ctx)
	return sb, nil, err
}

// make makes the sandbox and, with a network, its way out, which is open before
// anything runs and closed when the sandbox has gone.
func (e *execution) make(ctx context.Context) (*provision.Sandbox, error) {
	shape := e.request.Shape
	shape.Limits = e.limits
	plan := provision.Plan{Rootfs: e.rootfs, Shape: shape, Network: e.network.Mode, Binding: e.binding()}
	var route egress.Route
	if cmp.Or(plan.Network, cove.NetworkNone) != cove.NetworkNone {
		if e.executions.o.NextRoute != nil {
			plan.ID = e.executions.o.NextRoute()
		}
		plan.OpenRoute = func(id cove.SandboxID) (_ provision.Route, err error) {
			route, err = e.executions.o.OpenRoute(e.who, id, e.id, e.network)
			return route, err
		}
	}
	sb, err := provision.New(ctx, e.engine, plan)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.sandbox, e.route = sb, route
	e.mu.Unlock()
	if route == nil {
		return sb, nil
	}
	release := e.release
	e.release = func() { route.Close(); release() }
	return sb, nil
}

// replace makes another sandbox in the place of a prepared one that has failed, and starts the program in that. On
// error sb is the one that is left.
func (e *execution) replace(ctx context.Context, failed *provision.Sandbox, why error) (sb *provision.Sandbox,
	p *process.Process, at clock.Instant, err error) {
	x := e.executions
	x.o.Log.Warn("a prepared sandbox has failed, and another one takes its place", "sandbox", failed.ID(), "error", why)
	if sb, err = e.make(ctx); err != nil {
		return failed, nil, 0, err
	}
	x.clean.Go(func() { tearDown(failed, x.o.Log) })
	p, at, err = e.start(ctx, sb, nil)
	return sb, p, at, err
}

// cpuTime returns the CPU time that e has used; 0 without a sandbox.
func (e *execution) cpuTime() time.Duration {
	e.mu.Lock()
	sb := e.sandbox
	e.mu.Unlock()
	if sb == nil {
		return 0
	}
	stats, err := sb.Stats(context.Background())
	if err != nil {
		return 0 // it is being torn down
	}
	return stats.CPUTime
}

// excuse turns an error that Kill or the caller's leaving has caused into that.
func (e *execution) excuse(err error) error {
	if why := e.reason(); why == endKilled || why == endShutdown || errors.Is(err, context.Canceled) {
		return errEnded
	}
	return err
}

// markEnded notes in the result of an execution which Cove has ended by whom.
func (e *execution) markEnded(r *Result) {
	r.Killed, r.ExitCode = true, -1
	if e.reason() == endShutdown {
		r.Shutdown, r.Failure = true, cmp.Or(r.Failure, shutdownText)
	}
}

// shutdownText is why an execution ended with its server.
const shutdownText = "the server was told to stop while it ran; run it again"

// errEnded: the execution was ended before its program began.
var errEnded = errors.New("ended before it began")

// discard destroys a sandbox off the caller's path. Its image and its place are
// free only then, so that the number of sandboxes stays bounded.
func (x *Executions) discard(t *turn, sb *provision.Sandbox, release func()) {
	x.clean.Go(func() {
		defer x.Pool.kept.Wake()
		defer x.queue.leave(t)
		defer release()
		tearDown(sb, x.o.Log)
	})
}

func tearDown(sb *provision.Sandbox, log *slog.Logger) {
	if err := sb.TearDown(); err != nil {
		log.Error("cannot destroy a sandbox; the reaper will try again", "sandbox", sb.ID(), "error", err)
	}
}

func (e *execution) binding() engine.Binding {
	b := engine.Binding{Hostname: rootfs.Hostname, Attachments: e.request.Attachments,
		Mounts: slices.Clone(e.request.Mounts), Allow: cove.MountAllowOf(e.request.MountsAllow)}
	if e.request.Bind != "" {
		b.Mounts = append(b.Mounts, cove.Mount{Source: e.request.Bind, Target: cove.Workspace})
	}
	return b
}

// settle says that the program has ended by itself. Neither what comes later nor a shutdown that it has forestalled is
// the reason then.
func (e *execution) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why == endNone || e.why == endShutdown {
		e.why = endItself
	}
}

// attend moves the streams and waits for the program, its time, Kill, or the caller's leaving.
func (e *execution) attend(ctx context.Context, p *process.Process) process.Outcome {
	p.Copy(process.Sink(e.output.writeStdout), process.Sink(e.output.writeStderr), func() { e.end(endKilled) })
	p.Feed(e.request.Stdin)
	e.mayTake(e.limits.Timeout)
	defer e.tellHolds()()
	if err := p.Await(ctx, e.limits.Timeout); err != nil {
		if errors.Is(err, process.ErrTimeout) {
			e.end(endTimeout)
		}
		e.end(endKilled) // the first reason stays
		p.KillAll()
	} else {
		e.settle()
	}
	return p.Wait()
}

// conclude says how the execution ended.
func (e *execution) conclude(o process.Outcome, stats engine.Stats, took time.Duration) (Result, error) {
	r := Result{
		ID: e.id, Language: e.runtime.Name, Engine: e.engine.Name(), ExitCode: o.Code, Events: e.events,
		Truncated: o.StdoutDropped > 0 || o.StderrDropped > 0 || e.output.overrun(),
		Duration:  took,
		Usage: cove.Usage{
			CPUTime: stats.CPUTime, MemoryPeak: stats.MemoryPeak, PIDsPeak: stats.PIDsPeak,
			BytesWritten: o.Stats.BytesWritten, DiskUsed: o.Stats.DiskUsed,
		},
	}
	if route := e.currentRoute(); route != nil {
		r.Models = route.Models()
		for _, d := range route.Denied() {
			event := detect.Event{Rule: detect.NetworkDenied, Severity: detect.Low, Detail: d.Place, Remedy: d.Flag}
			if d.Untrusted {
				event.Rule = detect.NetworkUntrusted
			}
			r.Events = append(slices.Clip(r.Events), event)
		}
	}
	switch e.reason() {
	case endTimeout:
		r.Limit, r.ExitCode = cove.LimitTimeout, -1
	case endKilled, endShutdown:
		e.markEnded(&r)
	default:
		r.Limit = o.Limit(stats)
		if o.Lost != nil && r.Limit == "" {
			return Result{}, cove.Errorf(cove.Internal, "the sandbox died under the program: %w", o.Lost).
				WithHint("see the log; run \"cove doctor\"")
		}
		if o.Lost != nil {
			r.ExitCode = 128 + int(syscall.SIGKILL)
		}
	}
	return r, nil
}

// runRecorded runs e between its two records. The first is written while the sandbox is being made; started is called
// when it is complete, and the program begins after that.
func (x *Executions) runRecorded(ctx context.Context, e *execution, started func(cove.ExecutionID)) (Result, error) {
	entry := x.entry(e, x.o.Clock.Now().UTC().Truncate(time.Microsecond)) // as the store keeps it
	begun := make(chan error, 1)
	go func() {
		err := x.o.Store.For(e.who).Begin(context.WithoutCancel(ctx), entry)
		if err == nil && started != nil {
			started(e.id)
		}
		begun <- err
	}()
	var beginErr error
	wait := func() error {
		if begun != nil {
			beginErr, begun = <-begun, nil
		}
		return beginErr
	}
	r, err := e.run(ctx, wait)
	wait()
	if errors.Is(err, errEnded) {
		r, err = Result{ID: e.id, Language: e.runtime.Name, Engine: e.engine.Name(), Events: e.events}, nil
		e.markEnded(&r)
	}
	if beginErr != nil {
		return Result{}, beginErr
	}
	r.Started, r.Labels, r.Limits = entry.CreatedAt, e.request.Labels, e.limits
	if err == nil {
		r.Output = e.output.kept
	}
	r.Unrecorded = !x.finish(ctx, e, entry, r, err)
	return r, err
}
