package provision_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// route is an egress route that goes nowhere.
type route struct {
	bind, serve error
	of          cove.SandboxID
	sockets     int
	closed      bool
}

func (r *route) Bind(b *engine.Binding, _ engine.Rootfs) error {
	b.Listeners = append(b.Listeners, engine.RouteListeners()[:2]...)
	return r.bind
}

func (r *route) Serve(sockets []*os.File) error {
	r.sockets = len(sockets)
	for _, f := range sockets {
		f.Close()
	}
	return r.serve
}

func (r *route) Close() { r.closed = true }

// networked is an engine in memory whose sandboxes have files for sockets.
type networked struct{ *fake.Engine }

func (e networked) Prepare(ctx context.Context, t engine.Template) (engine.Sandbox, error) {
	sb, err := e.Engine.Prepare(ctx, t)
	if err != nil {
		return nil, err
	}
	return &socketed{Sandbox: sb}, nil
}

type socketed struct {
	engine.Sandbox
	sockets []*os.File
}

func (s *socketed) Bind(ctx context.Context, b engine.Binding) error {
	for range b.Listeners {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, f)
	}
	return s.Sandbox.Bind(ctx, b)
}

func (s *socketed) Listeners() []*os.File { return s.sockets }

func newEngine(t *testing.T) networked {
	t.Helper()
	caps := fake.New(fake.Options{}).Capabilities()
	caps.Listeners, caps.Networks = true, []cove.NetworkMode{cove.NetworkNone, cove.NetworkLimited}
	e := fake.New(fake.Options{Capabilities: &caps})
	t.Cleanup(func() { e.Close() })
	return networked{e}
}

// plan is one with a socket of the sandbox's own, and a route.
func (r *route) plan() provision.Plan {
	return provision.Plan{
		ID: r.of, Shape: cove.Shape{User: cove.CodeUser}, Network: cove.NetworkLimited,
		Binding: engine.Binding{Listeners: []guest.Listen{{Network: "tcp4", Address: "127.0.0.1:4040"}}},
		OpenRoute: func(id cove.SandboxID) (provision.Route, error) {
			r.of = id
			return r, nil
		},
	}
}

func TestNew(t *testing.T) {
	e, r := newEngine(t), &route{}
	sb, err := provision.New(t.Context(), e, r.plan())
	if err != nil {
		t.Fatal(err)
	}
	if r.of != sb.ID() || r.sockets != 2 || r.closed || len(sb.Sockets) != 1 {
		t.Errorf("the route is %+v; the sandbox has %d sockets", r, len(sb.Sockets))
	}
	sb.Sockets[0].Close()
	if err := errors.Join(sb.Become(cove.StatePaused), sb.Become(cove.StateRunning)); err != nil {
		t.Error(err)
	}
	if err := sb.Become(cove.StateReady); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("it goes back in its life: %v", err)
	}
	if err := sb.TearDown(); err != nil || len(e.Live()) != 0 {
		t.Errorf("%v; %d sandboxes are left", err, len(e.Live()))
	}
	if err := sb.TearDown(); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("it is torn down twice: %v", err)
	}
}

// TestNewFails, and leaves nothing.
func TestNewFails(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		faults fake.Faults
		route  *route
		open   error
	}{
		"prepare": {faults: fake.Faults{Prepare: broken}},
		"bind":    {faults: fake.Faults{Bind: broken}},
		"open":    {open: broken},
		"route":   {route: &route{bind: broken}},
		"serve":   {route: &route{serve: broken}},
	} {
		t.Run(name, func(t *testing.T) {
			e, r := newEngine(t), c.route
			e.Inject(c.faults)
			if r == nil {
				r = &route{}
			}
			plan := r.plan()
			if c.open != nil {
				plan.OpenRoute = func(cove.SandboxID) (provision.Route, error) { return nil, c.open }
			}
			if _, err := provision.New(t.Context(), e, plan); !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
			if r.closed != (c.open == nil) || len(e.Live()) != 0 {
				t.Errorf("the route is closed: %v; %d sandboxes are left", r.closed, len(e.Live()))
			}
		})
	}
}

// TestAdopted: what was adopted is torn down as what was made.
func TestAdopted(t *testing.T) {
	host := fake.NewHost()
	e := fake.New(fake.Options{Host: host})
	made, err := provision.New(t.Context(), e,
		provision.Plan{Shape: cove.Shape{User: cove.AgentUser, Lifetime: cove.LifetimeDetached}})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	e = fake.New(fake.Options{Host: host})
	defer e.Close()
	sb, err := e.Adopt(t.Context(), made.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := provision.Adopted(sb, nil).TearDown(); err != nil {
		t.Error(err)
	}
	if left, err := e.Left(t.Context()); err != nil || slices.Contains(left, made.ID()) {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestNoRoute: a route that cannot be opened is not closed, whatever comes with the error.
func TestNoRoute(t *testing.T) {
	e, r := newEngine(t), &route{}
	plan := r.plan()
	refused := errors.New("no such credential")
	plan.OpenRoute = func(cove.SandboxID) (provision.Route, error) {
		var none *route
		return none, refused
	}
	if _, err := provision.New(t.Context(), e, plan); !errors.Is(err, refused) {
		t.Errorf("%v, want %v", err, refused)
	}
}
