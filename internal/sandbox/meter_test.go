package sandbox_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/terminal"
	"github.com/cove-sandbox/cove/test/await"
)

// TestCPUOfSandboxes: what runs in a key's sandboxes uses its CPU time, once: when a command ends, each minute, and
// when the sandbox stops or the server ends.
func TestCPUOfSandboxes(t *testing.T) {
	h := newHome(t)
	manual := clocktest.NewManual(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	h.clock = manual
	ci := cove.KeyHolder("ci")
	h.grants = access.Grants{ci: {CPUHour: time.Hour}}
	s := h.adopt(t)
	used := func() time.Duration {
		t.Helper()
		used, err := store.NewVault(h.store).For(ci).CPUTime(t.Context(), h.clock.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return used.Truncate(time.Second) // each process takes a bit as well
	}
	create := func(who cove.Principal, name string) cove.SandboxID {
		t.Helper()
		v, err := s.Create(t.Context(), who, sandbox.Request{Name: name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.ID
	}
	one, other := create(ci, "one"), create(owner, "other")
	s.engine.Sandbox(other).Use(time.Hour)
	s.engine.Sandbox(one).Use(3 * time.Second)
	var out heard
	if _, err := s.processes.Command(t.Context(), ci, "one", sandbox.CommandRequest{Args: []string{"true"}},
		func(cove.ExecutionID) {}, &out); err != nil {
		t.Fatal(err)
	}
	if got := used(); got != 3*time.Second {
		t.Errorf("at the end of a command: %v", got)
	}

	ctx, end := context.WithCancel(t.Context())
	metered := make(chan struct{})
	go func() {
		defer close(metered)
		s.processes.MeterCPU(ctx)
	}()
	s.engine.Sandbox(one).Use(time.Second)
	await.That(t, "it is counted after a while", func() bool {
		manual.Advance(time.Minute)
		return used() == 4*time.Second
	})
	end()
	<-metered
	s.engine.Sandbox(one).Use(time.Second) // while the server waits for what is under way
	s.end(t)
	if got := used(); got != 5*time.Second {
		t.Errorf("at the end of the server: %v", got)
	}

	s = h.adopt(t)
	s.engine.Sandbox(one).Use(time.Second)
	if _, err := s.Stop(t.Context(), ci, "one"); err != nil {
		t.Fatal(err)
	}
	if got := used(); got != 6*time.Second {
		t.Errorf("after a stop by the next server: %v", got)
	}
}

// TestQuotaInSandboxes: a principal whose places are taken starts no command, and one whose CPU time is used up starts
// nothing that uses more.
func TestQuotaInSandboxes(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	for _, name := range []string{"one", "stopped", "paused"} {
		s.make(t, sandbox.Request{Name: name})
	}
	if _, err := s.Stop(t.Context(), owner, "stopped"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pause(t.Context(), owner, "paused"); err != nil {
		t.Fatal(err)
	}
	command := func() error {
		var out heard
		_, err := s.processes.Command(t.Context(), owner, "one", sandbox.CommandRequest{Args: []string{"true"}},
			func(cove.ExecutionID) {}, &out)
		return err
	}
	h.places.set(1, nil)
	release, err := h.places.Hold(t.Context(), owner, false)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a command without a place", command(), cove.Overloaded)
	release()
	wantCode(t, "a command with one", command(), "")
	wantCode(t, "and another one", command(), "")

	ways := map[string]func() error{
		"a command": command,
		"a terminal": func() error {
			_, err := s.processes.OpenTerminal(t.Context(), owner, "one", sandbox.TerminalRequest{New: true,
				Args: []string{"sh", "-c", "echo here"}, Size: terminal.Size{Columns: 80, Rows: 24}})
			return err
		},
		"a new sandbox": func() error {
			_, err := s.Create(t.Context(), owner, sandbox.Request{Name: "new"}, nil)
			return err
		},
		"a start": func() error {
			_, err := s.Start(t.Context(), owner, "stopped")
			return err
		},
		"a resume": func() error {
			_, err := s.Resume(t.Context(), owner, "paused")
			return err
		},
	}
	h.places.set(0, cove.Errorf(cove.Overloaded, "it is used up"))
	for name, way := range ways {
		wantCode(t, name+" without CPU time", way(), cove.Overloaded)
	}
	h.places.set(0, nil)
	for name, way := range ways {
		wantCode(t, name+" with CPU time", way(), "")
	}
}

// TestDetachedCommandKeepsItsPlace: a command that goes on without its caller is among what its principal has at once,
// and can be sent a signal, until it ends.
func TestDetachedCommandKeepsItsPlace(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	h.places.set(1, nil)
	command := func(ctx context.Context, detach bool, started func(cove.ExecutionID), args ...string) error {
		var out heard
		_, err := s.processes.Command(ctx, owner, "one", sandbox.CommandRequest{Args: args, Detach: detach}, started, &out)
		return err
	}
	ignored := func(cove.ExecutionID) {}
	for _, detach := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		var id cove.ExecutionID
		err := command(ctx, detach, func(given cove.ExecutionID) { id = given; leave() }, "sleep", "1000")
		wantCode(t, "the command that was left", err, cove.Canceled)
		signal := s.processes.SignalCommand(t.Context(), owner, "one", id, syscall.Signal(0))
		if !detach {
			wantCode(t, "a signal to a command that has ended", signal, cove.NotFound)
			wantCode(t, "a command beside one that has ended", command(t.Context(), false, ignored, "true"), "")
			continue
		}
		wantCode(t, "a signal to a detached command", signal, "")
		wantCode(t, "a command beside a detached one", command(t.Context(), false, ignored, "true"), cove.Overloaded)
		wantCode(t, "its end", s.processes.SignalCommand(t.Context(), owner, "one", id, syscall.SIGKILL), "")
		await.That(t, "its place is free", func() bool { return command(t.Context(), false, ignored, "true") == nil })
		wantCode(t, "a signal to a detached command that has ended",
			s.processes.SignalCommand(t.Context(), owner, "one", id, syscall.SIGKILL), cove.NotFound)
	}
}

// TestTerminalKeepsItsPlace: a terminal is among what its principal has at once until its program ends, whether a
// viewer looks at it or not, and for the next server, too.
func TestTerminalKeepsItsPlace(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	h.places.set(1, nil)
	open := func(q sandbox.TerminalRequest) (*terminals.Viewer, error) {
		q.Size = terminal.Size{Columns: 80, Rows: 24}
		return s.processes.OpenTerminal(t.Context(), owner, "one", q)
	}
	command := func() error {
		var out heard
		_, err := s.processes.Command(t.Context(), owner, "one", sandbox.CommandRequest{Args: []string{"true"}},
			func(cove.ExecutionID) {}, &out)
		return err
	}
	sleep := sandbox.TerminalRequest{New: true, Args: []string{"sleep", "1000"}}
	_, err := open(sandbox.TerminalRequest{New: true, Args: []string{"there-is-no-such-program"}})
	wantCode(t, "a terminal without a program", err, cove.RuntimeMissing)
	v, err := open(sleep)
	wantCode(t, "a terminal", err, "")
	v.Close()
	refused := func(when string) {
		t.Helper()
		_, err := open(sleep)
		wantCode(t, "another terminal "+when, err, cove.Overloaded)
		wantCode(t, "a command "+when, command(), cove.Overloaded)
		v, err := open(sandbox.TerminalRequest{})
		wantCode(t, "to look at the one that runs "+when, err, "")
		v.Close()
	}
	refused("beside one without a viewer")
	s.end(t)
	s = h.adopt(t)
	refused("beside one of an earlier server")
	if err := s.processes.KillTerminal(t.Context(), owner, "one", ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a command after its end", command(), "")
}
