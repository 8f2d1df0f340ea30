// Package provision makes sandboxes of an engine, and tears them down: from a plan to a sandbox that runs, with its
// egress route open before any program, each step within a deadline. It knows no kind of sandbox: executions,
// long-lived sandboxes and jobs are all provisioned here.
package provision

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Every transition of a sandbox has a deadline.
const (
	prepareTimeout = 60 * time.Second // an engine may import an image first
	bindTimeout    = 30 * time.Second
	destroyTimeout = 30 * time.Second
	lookTimeout    = 15 * time.Second // for what was made in mounts
)

// Route is the egress route of one sandbox, as far as it is provisioned.
type Route interface {
	// Bind adds what the route needs inside a root filesystem to a binding.
	Bind(*engine.Binding, engine.Rootfs) error
	// Serve opens the route on the sockets that Bind has asked for, in their order. It takes them over.
	Serve(sockets []*os.File) error
	Close()
}

// Plan describes a sandbox to make.
type Plan struct {
	ID     cove.SandboxID // a new one when empty
	Rootfs engine.Rootfs  // the host's when zero
	Layer  string         // keeps what changes in it, see engine.Template
	Bare   bool           // likewise
	cove.Shape
	Network cove.NetworkMode // none when empty
	// Binding is closed by New, also on error.
	Binding engine.Binding
	// OpenRoute opens the egress route, beside the engine's work and once; nil where the network is none. The route is
	// closed when the sandbox cannot be made, and the caller's to close otherwise.
	OpenRoute func(cove.SandboxID) (Route, error)
}

// Template returns the generic part of the sandbox, for engine.Prepare.
func (p Plan) Template() engine.Template {
	t := engine.Template{ID: p.ID, Shape: p.Shape, Rootfs: p.Rootfs, Layer: p.Layer, Bare: p.Bare,
		Network: cmp.Or(p.Network, cove.NetworkNone), Alone: !p.Binding.Shares()}
	t.Rootfs.Kind = cmp.Or(t.Rootfs.Kind, engine.RootfsHost)
	if t.ID == "" {
		t.ID = cove.NewSandboxID()
	}
	return t
}

// Sandbox is a sandbox of an engine that was provisioned, and where it is in its life. Only the transitions of cove's
// table happen.
type Sandbox struct {
	engine.Sandbox            // nil until prepared
	Sockets        []*os.File // of Plan.Binding, in its order; the caller owns them
	// Marks are of its writable mounts, for Made.
	Marks []hostpath.Mark

	id    cove.SandboxID
	mu    sync.Mutex
	state cove.State
}

// New makes a sandbox, or leaves nothing. Errors: those of the engine and of the route; Unavailable after a deadline.
func New(ctx context.Context, eng engine.Engine, p Plan) (*Sandbox, error) {
	t := p.Template()
	s := &Sandbox{id: t.ID, state: cove.StatePreparing}
	route, err := s.bring(ctx, eng, t, p)
	if err == nil {
		s.Sockets, err = Serve(s.Listeners(), len(p.Binding.Listeners), route)
	}
	if err == nil {
		return s, nil
	}
	s.Become(cove.StateFailed)
	s.TearDown()
	if route != nil {
		route.Close()
	}
	return nil, cove.OutOfFiles(err)
}

// Adopted is a sandbox that runs, and that an engine has adopted, with the marks that it was made with.
func Adopted(sb engine.Sandbox, marks []hostpath.Mark) *Sandbox {
	return &Sandbox{Sandbox: sb, Marks: marks, id: sb.ID(), state: cove.StateRunning}
}

// bring prepares a sandbox and binds it. It returns the route also on error, if it was opened.
func (s *Sandbox) bring(ctx context.Context, eng engine.Engine, t engine.Template, p Plan) (route Route, err error) {
	prepare, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	binding := p.Binding
	var refused error
	routed := make(chan struct{})
	go func() { // and not Prepare, which takes longer: a goroutine may have to wait for its thread
		defer close(routed)
		if p.OpenRoute == nil {
			return
		}
		var opened Route
		if opened, refused = p.OpenRoute(t.ID); refused == nil {
			route = opened // with an error it may be a nil pointer in an interface
			refused = route.Bind(&binding, t.Rootfs)
		}
		if refused != nil {
			cancel()
		}
	}()
	s.Sandbox, err = eng.Prepare(prepare, t)
	<-routed
	defer binding.Close()
	if refused != nil {
		return route, refused
	}
	if err != nil {
		return route, late(ctx, err, "preparing the sandbox", prepareTimeout)
	}
	if err := s.Become(cove.StateReady); err != nil {
		return route, err
	}
	bind, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	binding.Marks = &s.Marks
	if !eng.Capabilities().Overlay {
		binding.Overlay.Close() // it makes nothing but speed
		binding.Overlay = nil
	}
	if err := s.Bind(bind, binding); err != nil {
		return route, late(ctx, err, "binding the sandbox", bindTimeout)
	}
	return route, s.Become(cove.StateRunning)
}

// Serve opens a route, which may be nil, on the sockets of a sandbox that come after its own; those it returns. On
// error all are closed.
func Serve(sockets []*os.File, own int, route Route) ([]*os.File, error) {
	var err error
	if len(sockets) < own {
		err = cove.Errorf(cove.Internal, "%d sockets of a sandbox, want %d and those of its egress route", len(sockets), own)
	} else if route != nil {
		err = route.Serve(sockets[own:])
		sockets = sockets[:own]
	}
	if err != nil {
		for _, f := range sockets {
			f.Close()
		}
		return nil, err
	}
	return sockets, nil
}

// late names the deadline that was missed, unless the caller's own was.
func late(ctx context.Context, err error, doing string, limit time.Duration) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return cove.Errorf(cove.Unavailable, "%s took longer than %s", doing, limit).
			WithHint("the machine may be overloaded; run \"cove doctor\"")
	}
	return err
}

// State returns where the sandbox is in its life.
func (s *Sandbox) State() cove.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Become moves to the next state of the sandbox's life. Errors: Conflict where there is no such transition.
func (s *Sandbox) Become(next cove.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.state.CanBecome(next) {
		return cove.Errorf(cove.Conflict, "sandbox %s is %s and cannot become %s", s.id, s.state, next)
	}
	s.state = next
	return nil
}

var _ engine.Reacher = (*Sandbox)(nil)

// Reach implements engine.Reacher. Errors: those of the engine; Unsupported where nothing connects into its sandboxes.
func (s *Sandbox) Reach(ctx context.Context, port uint16) (net.Conn, error) {
	to, ok := s.Sandbox.(engine.Reacher)
	if !ok {
		return nil, cove.Errorf(cove.Unsupported, "nothing connects into sandboxes of this engine").
			WithHint("use the native engine: --engine native")
	}
	return to.Reach(ctx, port)
}

// Made ends every process of the sandbox, and returns the places that came into being in its writable mounts and decide
// what programs of their owner run.
func (s *Sandbox) Made(ctx context.Context) []hostpath.Made {
	if len(s.Marks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	unended := s.Kill()
	select {
	case <-s.Done():
		unended = nil
	case <-ctx.Done():
		unended = errors.Join(unended, ctx.Err())
	}
	kept := map[string]error{}
	if to, ok := s.Sandbox.(engine.Giver); ok && unended == nil {
		for _, m := range s.Marks {
			kept[m.Source] = to.GiveBack(ctx, m.Source)
		}
	}
	all := madeIn(ctx, s.Marks)
	for i := range all {
		if kept[all[i].Source] != nil {
			all[i].Beyond = "files that root inside gave away are not yours again"
		}
		if unended != nil {
			all[i].Beyond = "programs of the sandbox may still run"
		}
	}
	return slices.DeleteFunc(all, func(m hostpath.Made) bool { return !m.Any() })
}

// MadeSoFar is Made of a sandbox that goes on, whose programs may make more meanwhile.
func (s *Sandbox) MadeSoFar(ctx context.Context) []hostpath.Made {
	if len(s.Marks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return slices.DeleteFunc(madeIn(ctx, s.Marks), func(m hostpath.Made) bool { return !m.Any() })
}

func madeIn(ctx context.Context, marks []hostpath.Mark) (all []hostpath.Made) {
	for _, mark := range marks {
		all = append(all, mark.Made(ctx))
	}
	return all
}

// TearDown destroys the sandbox. Errors: those of the engine; Conflict when it is being torn down already.
func (s *Sandbox) TearDown() error {
	if err := s.Become(cove.StateDestroying); err != nil {
		return err
	}
	if s.Sandbox != nil {
		ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
		defer cancel()
		if err := s.Destroy(ctx); err != nil {
			s.Become(cove.StateFailed)
			return err
		}
	}
	return s.Become(cove.StateDestroyed)
}
