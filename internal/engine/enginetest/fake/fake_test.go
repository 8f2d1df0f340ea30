package fake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	host := fake.NewHost()
	open := func(*testing.T) engine.Engine { return fake.New(fake.Options{Host: host}) }
	enginetest.Suite{Open: open, Reopen: open, InMemory: true}.Run(t)
}

// TestConformanceWithoutCapabilities has the suite test the refusals.
func TestConformanceWithoutCapabilities(t *testing.T) {
	enginetest.Suite{
		Open: func(*testing.T) engine.Engine {
			return fake.New(fake.Options{Capabilities: &engine.Capabilities{
				Isolations: []cove.Isolation{cove.IsolationContainer}, Networks: []cove.NetworkMode{cove.NetworkNone},
			}})
		},
		InMemory: true,
	}.Run(t)
}

func template() engine.Template {
	return engine.Template{ID: cove.NewSandboxID(), Shape: cove.Shape{User: cove.CodeUser},
		Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone}
}

func open(t *testing.T, o fake.Options) *fake.Engine {
	t.Helper()
	e := fake.New(o)
	t.Cleanup(func() { e.Close() })
	return e
}

func bound(t *testing.T, e *fake.Engine) engine.Sandbox {
	t.Helper()
	sb, err := e.Prepare(t.Context(), template())
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Bind(t.Context(), engine.Binding{Hostname: "sandbox"}); err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestFaults(t *testing.T) {
	broken := errors.New("out of order")

	t.Run("prepare fails and leaves nothing", func(t *testing.T) {
		e := open(t, fake.Options{})
		e.Inject(fake.Faults{Prepare: broken})
		if _, err := e.Prepare(t.Context(), template()); !errors.Is(err, broken) {
			t.Errorf("Prepare: %v", err)
		}
		if live := e.Live(); len(live) != 0 {
			t.Errorf("left: %v", live)
		}
	})
	t.Run("prepare is slow and heeds its context", func(t *testing.T) {
		e := open(t, fake.Options{})
		e.Inject(fake.Faults{PrepareDelay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := e.Prepare(ctx, template()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Prepare: %v", err)
		}
	})
	t.Run("PID 1 dies while a process runs", func(t *testing.T) {
		e := open(t, fake.Options{})
		e.Inject(fake.Faults{DieAfter: 20 * time.Millisecond})
		sb := bound(t, e)
		p, err := sb.Guest().Start(t.Context(), guest.ProcessSpec{Args: []string{"sleep", "600"}, Env: []string{"PATH=/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); !errors.Is(err, guest.ErrClosed) {
			t.Errorf("Wait: %v", err)
		}
		<-sb.Done()
	})
	t.Run("a deaf guest hangs its callers until their contexts end", func(t *testing.T) {
		e := open(t, fake.Options{})
		sb := bound(t, e)
		e.Inject(fake.Faults{Deaf: true})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := sb.Guest().Health(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Health: %v", err)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	t.Run("destroy fails and can be tried again", func(t *testing.T) {
		e := open(t, fake.Options{})
		sb := bound(t, e)
		e.Inject(fake.Faults{Destroy: broken})
		if err := sb.Destroy(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Destroy: %v", err)
		}
		e.Inject(fake.Faults{})
		if err := sb.Destroy(t.Context()); err != nil || len(e.Live()) != 0 {
			t.Errorf("Destroy: %v, live %v", err, e.Live())
		}
	})
	t.Run("what was left behind is swept once", func(t *testing.T) {
		e := open(t, fake.Options{})
		e.LeaveBehind("sb_lost")
		if s, err := e.Sweep(t.Context()); err != nil || s.Sandboxes != 1 {
			t.Errorf("Sweep: %+v, %v", s, err)
		}
		if s, err := e.Sweep(t.Context()); err != nil || s.Sandboxes != 0 {
			t.Errorf("second Sweep: %+v, %v", s, err)
		}
	})
}

func TestOwnPrograms(t *testing.T) {
	e := open(t, fake.Options{Programs: map[string]fake.Program{
		"python3": func(p *fake.Process) int {
			code, err := p.ReadFile("main.py")
			if err != nil {
				return 2
			}
			p.Stdout.Write(code)
			p.Account(func(s *engine.Stats) { s.OOMKills++ })
			return 3
		},
	}})
	sb := bound(t, e)
	if err := sb.Guest().WriteFile(t.Context(), "/work/main.py", 0o644, []byte("print(1)")); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Guest().Start(t.Context(), guest.ProcessSpec{Args: []string{"python3"}, Dir: "/work",
		Env: []string{"PATH=/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(t.Context())
	if err != nil || exit.Code != 3 {
		t.Errorf("%+v, %v", exit, err)
	}
	if s, err := sb.Stats(t.Context()); err != nil || s.OOMKills != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}
