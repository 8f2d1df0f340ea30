// Package fake is an engine in memory: sandboxes without processes, kernel or privileges, for tests of everything above
// the engine contract.
//
// A sandbox is the real serving side of the guest protocol at the other end of a pipe, over programs that are Go
// functions and a tree of files in memory. What it does, it does like the others: it passes enginetest. What it cannot
// do is enforce anything against a program that does not cooperate.
//
// [Faults] make it go wrong in the ways real engines do.
package fake

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
)

// Options shape an Engine. The zero value is one that can do everything.
type Options struct {
	// Name is the engine's; empty means "fake".
	Name string
	// Capabilities replace the usual ones, in which everything is true.
	Capabilities *engine.Capabilities
	// Programs are added to the usual ones, or replace them, by name.
	Programs map[string]Program
	// Images are the references that RootfsImage finds.
	Images []string
	// Host is where long-lived sandboxes are when no engine has them; nil is one of the engine's own.
	Host *Host
}

// Host is the imaginary machine that engines share, one after the other or at the same time, as processes of Cove do.
type Host struct {
	mu      sync.Mutex
	lasting map[cove.SandboxID]*Sandbox // bound; had by their engine while it is open
}

// NewHost makes a Host with nothing on it.
func NewHost() *Host { return &Host{lasting: map[cove.SandboxID]*Sandbox{}} }

// Reboot ends whatever is on the host.
func (h *Host) Reboot() {
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.lasting))
	h.mu.Unlock()
	for _, sb := range all {
		sb.remove()
	}
}

// Faults are what goes wrong. The zero value is nothing.
type Faults struct {
	Prepare      error         // Prepare fails with it
	PrepareDelay time.Duration // Prepare takes this long, or until its context ends
	Bind         error         // Bind fails with it
	Adopt        error         // Adopt fails with it
	Pause        error         // Pause fails with it
	Destroy      error         // Destroy fails with it and removes nothing
	Sweep        error         // Sweep fails with it
	Stats        error         // Stats fails with it
	DieAfter     time.Duration // PID 1 dies this long after Bind
	Slow         time.Duration // every message to the guest takes this long
	Deaf         bool          // the guest hears nothing any more: calls hang
}

// Engine is an in-memory engine.
type Engine struct {
	name     string
	caps     engine.Capabilities
	programs map[string]Program
	images   []string
	host     *Host

	mu        sync.Mutex
	faults    Faults
	sandboxes map[cove.SandboxID]*Sandbox
	left      []string // what a dead instance left behind
	prepared  int
	closed    bool
}

var (
	_ engine.Engine  = (*Engine)(nil)
	_ engine.Adopter = (*Engine)(nil)
	_ engine.Pauser  = (*Sandbox)(nil)
)

// New makes an engine.
func New(o Options) *Engine {
	e := &Engine{
		name: o.Name, caps: everything(), programs: usualPrograms(), images: o.Images, host: o.Host,
		sandboxes: map[cove.SandboxID]*Sandbox{},
	}
	if e.name == "" {
		e.name = "fake"
	}
	if e.host == nil {
		e.host = NewHost()
	}
	if o.Capabilities != nil {
		e.caps = *o.Capabilities
	}
	maps.Copy(e.programs, o.Programs)
	return e
}

func everything() engine.Capabilities {
	return engine.Capabilities{
		Isolations: []cove.Isolation{cove.IsolationContainer}, Networks: []cove.NetworkMode{cove.NetworkNone},
		OwnImages: true, UserIDs: true, Root: true, HostIDRange: true, UserNamespace: true,
		LateMount: true, MountFlags: true, MountOwners: true,
		MemoryLimit: true, SwapLimit: true, SocketLimit: true, CPULimit: true, PIDsLimit: true, DiskLimit: true,
		Throughput: true,
		NoExec:     true, Lasting: true, Pause: true,
	}
}

// Inject replaces what goes wrong from now on.
func (e *Engine) Inject(f Faults) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = f
}

func (e *Engine) fault() Faults {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults
}

// LeaveBehind puts items on the imaginary host, as an instance that died would; Sweep removes them.
func (e *Engine) LeaveBehind(items ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = append(e.left, items...)
}

// Live lists the sandboxes that exist, sorted.
func (e *Engine) Live() []cove.SandboxID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.sandboxes))
}

// Prepared counts the successful calls of Prepare.
func (e *Engine) Prepared() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.prepared
}

// Sandbox finds a sandbox that exists; nil otherwise.
func (e *Engine) Sandbox(id cove.SandboxID) *Sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sandboxes[id]
}

// Name implements engine.Engine.
func (e *Engine) Name() string { return e.name }

// Capabilities implements engine.Engine.
func (e *Engine) Capabilities() engine.Capabilities { return e.caps }

// Prepare implements engine.Engine.
func (e *Engine) Prepare(ctx context.Context, t engine.Template) (engine.Sandbox, error) {
	if err := e.caps.Check(t); err != nil {
		return nil, err
	}
	if err := e.rootfs(t.Rootfs); err != nil {
		return nil, err
	}
	f := e.fault()
	if err := pause(ctx, f.PrepareDelay); err != nil {
		return nil, err
	}
	if f.Prepare != nil {
		return nil, f.Prepare
	}
	sb := newSandbox(e, t)
	if err := e.enter(sb); err != nil {
		sb.end()
		return nil, err
	}
	if err := sb.connect(ctx); err != nil {
		sb.remove()
		return nil, err
	}
	e.mu.Lock()
	e.prepared++
	e.mu.Unlock()
	return sb, nil
}

func (e *Engine) rootfs(r engine.Rootfs) error {
	switch r.Kind {
	case engine.RootfsDir:
		if info, err := os.Stat(r.Dir); err != nil || !info.IsDir() {
			return cove.Errorf(cove.ImageMissing, "there is no directory %s", r.Dir).
				WithHint("give the path of an unpacked root filesystem")
		}
	case engine.RootfsImage:
		if !slices.Contains(e.images, r.Image) {
			return cove.Errorf(cove.ImageMissing, "this engine has no image %s", r.Image).
				WithHint("name it in fake.Options.Images")
		}
	}
	return nil
}

func (e *Engine) enter(sb *Sandbox) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return cove.Errorf(cove.Unavailable, "the engine is closed")
	}
	if e.sandboxes[sb.tmpl.ID] != nil || e.host.has(sb.tmpl.ID) {
		return cove.Errorf(cove.Conflict, "sandbox %s exists", sb.tmpl.ID)
	}
	e.sandboxes[sb.tmpl.ID] = sb
	return nil
}

// leave takes sb out, unless its id belongs to a later sandbox already.
func (e *Engine) leave(sb *Sandbox) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sandboxes[sb.tmpl.ID] == sb {
		delete(e.sandboxes, sb.tmpl.ID)
	}
}

// Sweep implements engine.Engine.
func (e *Engine) Sweep(ctx context.Context) (engine.Swept, error) {
	if err := ctx.Err(); err != nil {
		return engine.Swept{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.faults.Sweep != nil {
		return engine.Swept{}, e.faults.Sweep
	}
	swept := engine.Swept{Sandboxes: len(e.left), Items: e.left}
	e.left = nil
	return swept, nil
}

// Close implements engine.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	all := slices.Collect(maps.Values(e.sandboxes))
	e.mu.Unlock()
	for _, sb := range all {
		if !sb.leave() {
			sb.remove()
		}
	}
	return nil
}

// pause waits, or not at all.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sandbox is one sandbox in memory.
type Sandbox struct {
	host   *Host
	tmpl   engine.Template
	files  *tree
	procs  *processes
	server *guestd.Server

	done    chan struct{} // closed when PID 1 has gone
	endOnce sync.Once
	serving sync.WaitGroup // connections

	mu        sync.Mutex
	engine    *Engine // that has it; nil when it goes on without
	guestConn net.Conn
	hostConn  net.Conn
	client    *guest.Client
	resumed   chan struct{} // closed when it goes on; nil while it is not paused
	bound     bool
	destroyed bool
	binding   engine.Binding
	die       *time.Timer
}

func newSandbox(e *Engine, t engine.Template) *Sandbox {
	files := newTree(t.User.UID, t.Limits.Disk, t.Limits.Inodes, slices.Sorted(maps.Keys(e.programs)))
	sb := &Sandbox{host: e.host, engine: e, tmpl: t, files: files, done: make(chan struct{})}
	sb.procs = newProcesses(files, e.programs, t.User.UID, t.Limits.PIDs)
	sb.server = guestd.New(guestd.World{Wall: wall{}, Spawner: sb.procs, Files: files}, true)
	sb.serve(e)
	return sb
}

// serve lets an engine connect.
func (sb *Sandbox) serve(e *Engine) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.engine = e
	sb.hostConn, sb.guestConn = net.Pipe()
	conn := &faultyConn{Conn: sb.guestConn, engine: e, sandbox: sb}
	sb.serving.Go(func() {
		sb.server.Serve(conn)
		if !sb.goesOn() {
			sb.end() // a guest without its host ends
		}
	})
}

// goesOn reports whether the sandbox outlives its engine.
func (sb *Sandbox) goesOn() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.engine == nil
}

func (sb *Sandbox) connect(ctx context.Context) error {
	sb.mu.Lock()
	conn := &faultyConn{Conn: sb.hostConn, engine: sb.engine, sandbox: sb, host: true}
	sb.mu.Unlock()
	client, err := guest.NewClient(ctx, conn)
	if err != nil {
		return err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.client = client
	return nil
}

// wall is what there is to build around a sandbox in memory.
type wall struct{}

func (wall) Begin(guest.Begin) error                         { return nil }
func (wall) Setup(guest.Setup, []*os.File) error             { return nil }
func (wall) Bind(guest.Bind, []*os.File) ([]*os.File, error) { return nil, nil }

// faultyConn is one end of the connection, with the faults of the moment.
type faultyConn struct {
	net.Conn
	engine  *Engine
	sandbox *Sandbox
	host    bool
}

func (c *faultyConn) Write(p []byte) (int, error) {
	if f := c.engine.fault(); c.host && f.Slow > 0 {
		select {
		case <-time.After(f.Slow):
		case <-c.sandbox.done:
		}
	}
	return c.Conn.Write(p)
}

func (c *faultyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.host && err == nil && c.engine.fault().Deaf {
		<-c.sandbox.done
		return 0, net.ErrClosed
	}
	if !c.host && err == nil {
		c.sandbox.whilePaused()
	}
	return n, err
}

// ID implements engine.Sandbox.
func (sb *Sandbox) ID() cove.SandboxID { return sb.tmpl.ID }

// Template is what the sandbox was prepared from.
func (sb *Sandbox) Template() engine.Template { return sb.tmpl }

// Binding is what the sandbox was bound to; the zero value before.
func (sb *Sandbox) Binding() engine.Binding {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.binding
}

// Bind implements engine.Sandbox.
func (sb *Sandbox) Bind(ctx context.Context, b engine.Binding) error {
	if err := sb.caps().CheckBinding(b); err != nil {
		return err
	}
	f := sb.fault()
	if f.Bind != nil {
		return f.Bind
	}
	sb.mu.Lock()
	if sb.bound || sb.destroyed {
		sb.mu.Unlock()
		return cove.Errorf(cove.Conflict, "sandbox %s has been bound already, or destroyed", sb.tmpl.ID)
	}
	sb.bound, sb.binding = true, b
	sb.mu.Unlock()
	if _, err := sb.Guest().Bind(ctx, guest.Bind{Hostname: b.Hostname}, nil); err != nil {
		return cove.Errorf(cove.Unavailable, "binding sandbox %s: %w", sb.tmpl.ID, err)
	}
	if sb.tmpl.Lifetime == cove.LifetimeDetached {
		sb.host.add(sb)
	}
	if f.DieAfter > 0 {
		sb.mu.Lock()
		sb.die = time.AfterFunc(f.DieAfter, sb.end)
		sb.mu.Unlock()
	}
	return nil
}

// Guest implements engine.Sandbox.
func (sb *Sandbox) Guest() *guest.Client {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.client
}

// Listeners implements engine.Sandbox.
func (sb *Sandbox) Listeners() []*os.File { return nil }

// Use adds CPU time to what the sandbox has used.
func (sb *Sandbox) Use(cpu time.Duration) {
	sb.procs.mu.Lock()
	defer sb.procs.mu.Unlock()
	sb.procs.stats.CPUTime += cpu
}

// Stats implements engine.Sandbox.
func (sb *Sandbox) Stats(ctx context.Context) (engine.Stats, error) {
	if err := sb.fault().Stats; err != nil {
		return engine.Stats{}, err
	}
	return sb.procs.account(), ctx.Err()
}

// Done implements engine.Sandbox.
func (sb *Sandbox) Done() <-chan struct{} { return sb.done }

// Kill implements engine.Sandbox.
func (sb *Sandbox) Kill() error {
	sb.end()
	return nil
}

// end is PID 1's: everything inside ends with it.
func (sb *Sandbox) end() {
	sb.endOnce.Do(func() {
		close(sb.done)
		sb.mu.Lock()
		sb.guestConn.Close()
		sb.mu.Unlock()
		sb.procs.end()
		sb.host.drop(sb)
	})
}

// Destroy implements engine.Sandbox.
func (sb *Sandbox) Destroy(context.Context) error {
	if err := sb.fault().Destroy; err != nil {
		return err
	}
	sb.remove()
	return nil
}

func (sb *Sandbox) remove() {
	sb.mu.Lock()
	sb.destroyed = true
	if sb.die != nil {
		sb.die.Stop()
	}
	sb.mu.Unlock()
	sb.end()
	sb.serving.Wait()
	sb.procs.wait()
	sb.mu.Lock()
	client, e := sb.client, sb.engine
	sb.hostConn.Close()
	sb.mu.Unlock()
	if client != nil {
		client.Close()
	}
	if e != nil {
		e.leave(sb)
	}
}

// fault is what goes wrong with the engine that has it.
func (sb *Sandbox) fault() Faults {
	sb.mu.Lock()
	e := sb.engine
	sb.mu.Unlock()
	if e == nil {
		return Faults{}
	}
	return e.fault()
}

func (sb *Sandbox) caps() engine.Capabilities {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.engine.caps
}
