package process_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a sandbox in memory.
type lab struct {
	engine  *fake.Engine
	sandbox *provision.Sandbox
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{engine: fake.New(fake.Options{})}
	sb, err := provision.New(t.Context(), l.engine, provision.Plan{Shape: cove.Shape{User: cove.CodeUser}})
	if err != nil {
		t.Fatal(err)
	}
	l.sandbox = sb
	t.Cleanup(func() {
		l.engine.Inject(fake.Faults{})
		if err := errors.Join(sb.TearDown(), l.engine.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func script(text string) guest.ProcessSpec {
	return guest.ProcessSpec{Args: []string{"sh", "-c", text}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: true}
}

func (l *lab) start(t *testing.T, text string) *process.Process {
	t.Helper()
	p, err := process.Start(t.Context(), l.sandbox, clock.Real(), script(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStreams(t *testing.T) {
	l := newLab(t)
	p := l.start(t, "read line; echo $line; echo wrong >&2; exit 3")
	var stdout, stderr bytes.Buffer
	p.Copy(&stdout, &stderr, nil)
	fed := p.Feed(strings.NewReader("in\n"))
	if err := p.Await(t.Context(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if o := p.Wait(); o.Code != 3 || o.Lost != nil || stdout.String() != "in\n" || stderr.String() != "wrong\n" {
		t.Errorf("ended with %+v after %q and %q", o, stdout.String(), stderr.String())
	}
	if err := <-fed; err != nil {
		t.Errorf("the input: %v", err)
	}
}

// full is a writer that has no room.
type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestReceiverGone: a receiver that fails is told of no more, and the program goes on.
func TestReceiverGone(t *testing.T) {
	l := newLab(t)
	p := l.start(t, "echo one; echo two >&2; exit 4")
	var gone sync.WaitGroup
	gone.Add(2)
	p.Copy(full{}, full{}, gone.Done)
	p.Feed(nil)
	gone.Wait()
	if o := p.Wait(); o.Code != 4 {
		t.Errorf("ended with %+v", o)
	}
}

func TestAwait(t *testing.T) {
	l := newLab(t)
	p := l.start(t, "sleep 100")
	p.Copy(nil, nil, nil)
	if err := p.Await(t.Context(), time.Millisecond); !errors.Is(err, process.ErrTimeout) || p.Ended() {
		t.Errorf("after its time: %v, ended: %v", err, p.Ended())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFull)
	if err := p.Await(ctx, 0); !errors.Is(err, errFull) || p.Ended() {
		t.Errorf("after its caller has gone: %v, ended: %v", err, p.Ended())
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if o := p.Wait(); o.Signal != int(syscall.SIGKILL) || !p.Ended() {
		t.Errorf("ended with %+v", o)
	}
	if err := errors.Join(p.Kill(), p.End(t.Context(), time.Second, syscall.SIGTERM)); err != nil {
		t.Errorf("what has ended cannot be killed: %v", err)
	}
}

// TestEnd: a program that is asked may end by itself, and is killed where it does not.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		ask   syscall.Signal
		ended syscall.Signal
	}{{syscall.SIGTERM, syscall.SIGTERM}, {syscall.SIGWINCH, syscall.SIGKILL}} {
		l := newLab(t)
		p := l.start(t, "sleep 100")
		p.Copy(nil, nil, nil)
		if err := p.End(t.Context(), 10*time.Millisecond, c.ask); err != nil {
			t.Errorf("asked with %v: %v", c.ask, err)
		}
		if o := p.Wait(); o.Signal != int(c.ended) {
			t.Errorf("asked with %v it ended with %+v", c.ask, o)
		}
	}
}

// TestKillAll ends what else there is, and a guest that does not answer.
func TestKillAll(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	l := newLab(t)
	other := l.start(t, "sleep 100")
	p := l.start(t, "sleep 100")
	other.Copy(nil, nil, nil)
	p.Copy(nil, nil, nil)
	p.KillAll()
	for _, p := range []*process.Process{p, other} {
		if o := p.Wait(); o.Signal != int(syscall.SIGKILL) || o.Lost != nil {
			t.Errorf("ended with %+v", o)
		}
	}
	p = l.start(t, "sleep 100")
	p.Copy(nil, nil, nil)
	l.engine.Inject(fake.Faults{Deaf: true})
	if err := p.Kill(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a guest that does not hear: %v", err)
	}
	p.KillAll()
	if o := p.Wait(); o.Lost == nil {
		t.Errorf("ended with %+v", o)
	}
}

// TestStartWhileItsCallerLeaves returns the program, so that it can be ended as its caller ends programs: a git that is
// killed leaves its locks behind.
func TestStartWhileItsCallerLeaves(t *testing.T) {
	l := newLab(t)
	l.engine.Inject(fake.Faults{Slow: 20 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	p, err := process.Start(ctx, l.sandbox, clock.Real(), script("sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.Attend(ctx, process.Attendance{Ask: []syscall.Signal{syscall.SIGTERM}, Patience: time.Minute})
	if !errors.Is(err, context.DeadlineExceeded) || o.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v, %v", o, err)
	}

	l.engine.Inject(fake.Faults{Deaf: true})
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := process.Start(ctx, l.sandbox, clock.Real(), script("true")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a guest that does not answer: %v", err)
	}
	if _, err := process.Start(ctx, l.sandbox, clock.Real(), script("true")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that has gone: %v", err)
	}
}

func TestAttend(t *testing.T) {
	l := newLab(t)
	var stdout, stderr bytes.Buffer
	o, err := l.start(t, "read line; echo $line; echo wrong >&2; exit 3").Attend(t.Context(), process.Attendance{
		Stdin: strings.NewReader("in\n"), Stdout: &stdout, Stderr: &stderr,
	})
	if err != nil || o.Code != 3 || stdout.String() != "in\n" || stderr.String() != "wrong\n" {
		t.Errorf("%+v, %v, %q, %q", o, err, stdout.String(), stderr.String())
	}

	// What a reader leaves is dropped.
	o, err = l.start(t, "echo one; echo two").Attend(t.Context(), process.Attendance{Read: func(r io.Reader) error {
		_, err := io.ReadFull(r, make([]byte, 4))
		return err
	}})
	if err != nil || o.Code != 0 {
		t.Errorf("%+v, %v", o, err)
	}

	// A reader that fails ends the program.
	o, err = l.start(t, "echo one; sleep 100").
		Attend(t.Context(), process.Attendance{Read: func(io.Reader) error { return errFull }})
	if !errors.Is(err, errFull) || o.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v, %v", o, err)
	}

	// So does the end of the context.
	ctx, cancel := context.WithCancelCause(t.Context())
	o, err = l.start(t, "echo begun; sleep 100").Attend(ctx, process.Attendance{Read: func(r io.Reader) error {
		_, err := io.ReadFull(r, make([]byte, 6))
		cancel(errFull)
		return err
	}})
	if !errors.Is(err, errFull) || o.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v, %v", o, err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(errFull) })
	o, err = l.start(t, "sleep 100").
		Attend(ctx, process.Attendance{Ask: []syscall.Signal{syscall.SIGTERM}, Patience: 20 * time.Second})
	if !errors.Is(err, errFull) || o.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v, %v", o, err)
	}

	// Input that cannot be read is an error, whatever the program makes of its end.
	o, err = l.start(t, "cat").Attend(t.Context(), process.Attendance{Stdin: iotest.ErrReader(errFull)})
	if !errors.Is(err, errFull) || o.Code != 0 {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestAdopt: a program is taken over with the output that was not received.
func TestAdopt(t *testing.T) {
	host := fake.NewHost()
	e := fake.New(fake.Options{Host: host})
	sb, err := provision.New(t.Context(), e,
		provision.Plan{Shape: cove.Shape{User: cove.AgentUser, Lifetime: cove.LifetimeDetached}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(t.Context(), sb, clock.Real(), script("echo one; echo two; read line; exit 5"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.Stdout(), make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if o := p.Wait(); o.Lost == nil {
		t.Errorf("after its server has gone: %+v", o)
	}
	e = fake.New(fake.Options{Host: host})
	defer e.Close()
	again, err := e.Adopt(t.Context(), sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Destroy(context.Background())
	if p, err = process.Adopt(t.Context(), again, clock.Real(), p.ID(), 4, 0); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	o, err := p.Attend(t.Context(), process.Attendance{Stdin: strings.NewReader("\n"), Stdout: &stdout})
	if err != nil || o.Code != 5 || stdout.String() != "two\n" {
		t.Errorf("%+v, %v, %q", o, err, stdout.String())
	}
}

func TestLimit(t *testing.T) {
	killed := guest.Exit{Code: 137, Signal: int(syscall.SIGKILL)}
	full := guest.Exit{Code: 1, Stats: guest.Stats{Exhausted: true}}
	for _, c := range []struct {
		o     process.Outcome
		stats engine.Stats
		want  cove.LimitKind
	}{
		{process.Outcome{}, engine.Stats{OOMKills: 1, PIDsDenied: 1}, ""},
		{process.Outcome{Exit: killed}, engine.Stats{}, ""},
		{process.Outcome{Exit: killed}, engine.Stats{OOMKills: 1, PIDsDenied: 1}, cove.LimitOOM},
		{process.Outcome{Lost: errFull}, engine.Stats{OOMKills: 1}, cove.LimitOOM},
		{process.Outcome{Lost: errFull}, engine.Stats{Locks: 10_001}, cove.LimitLocks},
		{process.Outcome{Exit: full}, engine.Stats{PIDsDenied: 1}, cove.LimitDisk},
		{process.Outcome{Exit: guest.Exit{Code: 153, Signal: int(syscall.SIGXFSZ)}}, engine.Stats{}, cove.LimitFileSize},
		{process.Outcome{Exit: guest.Exit{Code: 153}}, engine.Stats{}, cove.LimitFileSize}, // a shell says so of its command
		{process.Outcome{Exit: guest.Exit{Code: 153, Stats: full.Stats}}, engine.Stats{}, cove.LimitDisk},
		{process.Outcome{Exit: guest.Exit{Code: 1}}, engine.Stats{PIDsDenied: 1}, cove.LimitPIDs},
		{process.Outcome{Exit: guest.Exit{OutputCapped: true}}, engine.Stats{OOMKills: 1}, cove.LimitOutput},
	} {
		if got := c.o.Limit(c.stats); got != c.want {
			t.Errorf("%+v with %+v was ended by %q, want %q", c.o, c.stats, got, c.want)
		}
	}
}

// TestEndedInTime: a program whose end is read late, since this process was stopped meanwhile, has not run too long.
func TestEndedInTime(t *testing.T) {
	l := newLab(t)
	manual := clocktest.NewManual(time.Now())
	p, err := process.Start(t.Context(), l.sandbox, manual, script("read line; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	p.Copy(nil, nil, nil)
	awaited := make(chan error)
	go func() { awaited <- p.Await(t.Context(), 3*time.Second) }()
	manual.BlockUntil(1)
	manual.Advance(15 * time.Second)
	p.Feed(strings.NewReader("\n"))
	if err := <-awaited; err != nil {
		t.Errorf("an end that was to be read when its time was up: %v", err)
	}
	if o := p.Wait(); o.Code != 3 {
		t.Errorf("ended with %+v", o)
	}
}
