package enginetest

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

// env is what one test works with.
type env struct {
	suite Suite
	eng   engine.Engine
	caps  engine.Capabilities
	ctx   context.Context // bounds the whole test
}

// template is the suite's usual sandbox; each call has a fresh id.
func (x *env) template() engine.Template {
	return engine.Template{
		ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: Limits(x.caps), User: cove.CodeUser, Lifetime: x.suite.Lifetime},
		Rootfs: x.suite.Rootfs, Network: cove.NetworkNone,
	}
}

// prepare makes a sandbox that the test's end destroys.
func (x *env) prepare(t *testing.T, change ...func(*engine.Template)) engine.Sandbox {
	t.Helper()
	tmpl := x.template()
	for _, f := range change {
		f(&tmpl)
	}
	sb, err := x.eng.Prepare(x.ctx, tmpl)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	t.Cleanup(func() { x.destroy(t, sb) })
	if sb.ID() != tmpl.ID {
		t.Errorf("the sandbox's id is %s, the template's %s", sb.ID(), tmpl.ID)
	}
	return sb
}

func (x *env) destroy(t *testing.T, sb engine.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), time.Minute)
	defer cancel()
	if err := sb.Destroy(ctx); err != nil {
		t.Errorf("Destroy: %v", err)
	}
}

func (x *env) bind(t *testing.T, sb engine.Sandbox) {
	t.Helper()
	if err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox"}); err != nil {
		t.Fatalf("Bind: %v", err)
	}
}

// bound is a sandbox ready for processes.
func (x *env) bound(t *testing.T, change ...func(*engine.Template)) engine.Sandbox {
	t.Helper()
	sb := x.prepare(t, change...)
	x.bind(t, sb)
	return sb
}

// command is a process of the usual kind: in cove.WorkDir, with a plain environment.
func command(args ...string) guest.ProcessSpec {
	return guest.ProcessSpec{
		Args: args, Dir: cove.WorkDir,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + cove.Home, "LC_ALL=C.UTF-8"},
	}
}

// shell is a script as a process.
func shell(script string, args ...string) guest.ProcessSpec {
	return command(append([]string{"sh", "-c", script, "sh"}, args...)...)
}

// result is a process that has ended.
type result struct {
	stdout, stderr string
	exit           guest.Exit
}

// output runs a process to its end, without input.
func (x *env) output(t *testing.T, sb engine.Sandbox, spec guest.ProcessSpec) result {
	t.Helper()
	p := x.start(t, sb, spec)
	return x.finish(t, p)
}

func (x *env) start(t *testing.T, sb engine.Sandbox, spec guest.ProcessSpec) *guest.RemoteProcess {
	t.Helper()
	p, err := sb.Guest().Start(x.ctx, spec)
	if err != nil {
		t.Fatalf("Start %q: %v", spec.Args, err)
	}
	return p
}

// finish reads both streams to their ends and waits.
func (x *env) finish(t *testing.T, p *guest.RemoteProcess) result {
	t.Helper()
	r, err := x.collect(p)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return r
}

func (x *env) collect(p *guest.RemoteProcess) (result, error) {
	var stdout, stderr strings.Builder
	var readers sync.WaitGroup
	readers.Go(func() { io.Copy(&stdout, p.Stdout()) })
	readers.Go(func() { io.Copy(&stderr, p.Stderr()) })
	exit, err := p.Wait(x.ctx)
	if err != nil {
		return result{}, err
	}
	readers.Wait()
	return result{stdout.String(), stderr.String(), exit}, nil
}

// want checks output and code of a process that should succeed.
func (x *env) want(t *testing.T, sb engine.Sandbox, spec guest.ProcessSpec, stdout string) {
	t.Helper()
	r := x.output(t, sb, spec)
	if r.stdout != stdout || r.exit.Code != 0 {
		t.Errorf("%q wrote %q and exited with %d, want %q and 0; errors: %q", spec.Args, r.stdout, r.exit.Code, stdout,
			r.stderr)
	}
}

// wantCode checks the code of a cove error.
func wantCode(t *testing.T, what string, err error, code cove.Code) {
	t.Helper()
	if err == nil || cove.ErrorCode(err) != code {
		t.Errorf("%s: %v (code %q), want code %q", what, err, cove.ErrorCode(err), code)
	}
}

// wantFailure checks why the guest refused.
func wantFailure(t *testing.T, what string, err error, kinds ...guest.FailureKind) {
	t.Helper()
	var f *guest.Failure
	if !errors.As(err, &f) {
		t.Errorf("%s: %v, want a failure of kind %v", what, err, kinds)
		return
	}
	for _, k := range kinds {
		if f.Kind == k {
			return
		}
	}
	t.Errorf("%s: %v (kind %q), want kind %v", what, f, f.Kind, kinds)
}

// within fails when ch is not closed in time.
func within(t *testing.T, what string, d time.Duration, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(d):
		t.Fatalf("%s: not within %v", what, d)
	}
}

// eventually repeats check until it is true.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 15 s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
