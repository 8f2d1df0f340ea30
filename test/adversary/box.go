package adversary

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// Where the probe program is in a sandbox: written there, or part of an image of the suite's own, which costs less.
const (
	probeInside  = cove.WorkDir + "/probe"
	probeInImage = "/bin/probe"
)

// box is a sandbox with the probe program in it.
type box struct {
	sandbox engine.Sandbox
	limits  cove.Limits
	user    cove.User
	env     []string // of its processes, beside the plain ones
	probe   string   // where it is
	prober  *prober  // makes the attempts, where there are many
	marks   []hostpath.Mark
	waiting *guest.RemoteProcess // an interpreter, for the first program
}

// boxOptions change the usual sandbox.
type boxOptions struct {
	limits  func(*cove.Limits)
	rootfs  *engine.Rootfs
	user    cove.User
	mounts  []cove.Mount
	allow   cove.MountAllow // of the mounts
	host    string          // the host name to bind
	bare    bool            // without the probe program
	lasts   bool            // it is long-lived
	many    bool            // attempts are made by one process, except of a row whose attempts are alone
	route   Route           // the way out of sandbox id; without one there is no network
	id      cove.SandboxID
	overlay string // a directory of the host, at overlayName in the home
	changes string // a directory that keeps what is changed there; without, it is in memory
	unbound func() // called before Bind
}

// make makes a sandbox. The suite's engine destroys what nobody else does.
func (s *suite) make(c *trial, o boxOptions) (*box, error) {
	c.Helper()
	return s.makeWith(c, s.engine, o)
}

func (s *suite) makeWith(c *trial, eng engine.Engine, o boxOptions) (*box, error) {
	c.Helper()
	within := patience
	if s.options.Slow { // a daemon that waits for the disk, time and again
		within *= 3
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	defer time.AfterFunc(patience/2, func() {
		stacks := make([]byte, 1<<20)
		c.Logf("a sandbox is still not made:\n%s", stacks[:runtime.Stack(stacks, true)])
	}).Stop()
	t := engine.Template{ID: cove.NewSandboxID(), Rootfs: s.options.Rootfs, Network: cove.NetworkNone,
		Shape: cove.Shape{Limits: s.limits(), User: s.options.user(), Debuggers: s.options.Debuggers}}
	if o.limits != nil {
		o.limits(&t.Limits)
	}
	if o.rootfs != nil {
		t.Rootfs = *o.rootfs
	} else if s.options.Layer != nil {
		t.Layer = s.options.Layer(c, t.Limits)
	}
	if o.user != (cove.User{}) {
		t.User = o.user
	}
	if o.route != nil {
		t.ID, t.Network = o.id, cove.NetworkLimited
	}
	if o.lasts {
		t.ID, t.Lifetime = cove.NewSandboxID(), cove.LifetimeDetached
	}
	if s.ahead != nil && eng == s.engine {
		return s.claim(c, ctx, t, o)
	}
	sb, err := eng.Prepare(ctx, t)
	if err != nil {
		return nil, err
	}
	b := &box{sandbox: sb, limits: t.Limits, user: t.User, probe: probeInside}
	if o.many {
		b.prober = &prober{start: b.serveInside}
	}
	name := o.host
	if name == "" {
		name = "sandbox"
	}
	binding := engine.Binding{Hostname: name, Mounts: o.mounts, Allow: o.allow, Marks: &b.marks}
	defer func() { binding.Close() }()
	if o.overlay != "" {
		if err := showOverlay(&binding, o); err != nil {
			b.destroy(c)
			return nil, err
		}
	}
	if o.route != nil {
		if err := o.route.Bind(&binding, t.Rootfs); err != nil {
			b.destroy(c)
			return nil, err
		}
		for k, v := range o.route.Env() {
			b.env = append(b.env, k+"="+v)
		}
	}
	if o.unbound != nil {
		o.unbound()
	}
	err = sb.Bind(ctx, binding)
	if err == nil && o.route != nil {
		err = o.route.Serve(sb.Listeners())
	}
	if err != nil {
		b.destroy(c)
		return nil, err
	}
	if o.rootfs != nil {
		b.probe = probeInImage
		return b, nil
	}
	if o.bare {
		return b, nil
	}
	if err := sb.Guest().WriteFile(ctx, probeInside, 0o755, s.probe); err != nil {
		b.destroy(c)
		return nil, err
	}
	return b, nil
}

// fresh is a sandbox of the row's own, destroyed at its end.
func (c *trial) fresh(o boxOptions) *box {
	c.Helper()
	b, err := c.suite.make(c, o)
	if err != nil {
		c.Fatalf("not tested: no sandbox: %v", err)
	}
	c.Cleanup(func() { b.destroy(c) })
	return b
}

func (b *box) destroy(c *trial) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.sandbox.Destroy(ctx); err != nil {
		c.Errorf("Destroy: %v", err)
	}
}

func (b *box) alive() bool {
	select {
	case <-b.sandbox.Done():
		return false
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := b.sandbox.Guest().Health(ctx)
	return err == nil
}

// spec is the probe program as a process.
func spec(attempt string) guest.ProcessSpec {
	return guest.ProcessSpec{Args: append([]string{probeInside}, strings.Fields(attempt)...), Dir: cove.WorkDir,
		Env: plainEnvironment("HOME="+cove.Home, "TMPDIR=/tmp")}
}

// here is a process of this sandbox.
func (b *box) here(s guest.ProcessSpec) guest.ProcessSpec {
	if s.Args[0] == probeInside {
		s.Args = append([]string{b.probe}, s.Args[1:]...)
	}
	s.Env = append(s.Env, b.env...)
	return s
}

// try makes one attempt inside.
func (b *box) try(c *trial, attempt string) outcome.Result {
	c.Helper()
	if b.prober != nil && !c.row.alone {
		return b.prober.try(attempt)
	}
	return b.run(c, spec(attempt)).result
}

// run is a process that has ended.
type run struct {
	result         outcome.Result
	stdout, stderr string
	exit           guest.Exit
	err            error
}

// run runs a process to its end, for as long as an attempt may take.
func (b *box) run(c *trial, s guest.ProcessSpec) run {
	c.Helper()
	p := b.start(c, s)
	if p == nil {
		return run{result: outcome.Result{Outcome: outcome.Broken, Detail: "not started"}, err: errors.New("not started")}
	}
	return p.wait(patience)
}

// process is one that runs.
type process struct {
	*guest.RemoteProcess
	stdin   io.WriteCloser
	attempt string

	readers        sync.WaitGroup
	mu             sync.Mutex // guards stdout and stderr
	stdout, stderr bytes.Buffer
}

// start starts a process and keeps the first part of what it writes.
func (b *box) start(c *trial, s guest.ProcessSpec) *process {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s = b.here(s)
	if s.StdoutLimit == 0 {
		s.StdoutLimit, s.StderrLimit = b.limits.Stdout, b.limits.Stderr
	}
	remote, stdin, err := b.begin(ctx, s)
	if err != nil {
		c.Errorf("not tested: start %.100q: %v", s.Args, err)
		return nil
	}
	p := &process{RemoteProcess: remote, stdin: stdin, attempt: strings.Join(s.Args[1:], " ")}
	p.read()
	return p
}

func (p *process) read() {
	p.readers.Go(func() { p.collect(p.Stdout(), &p.stdout) })
	p.readers.Go(func() { p.collect(p.Stderr(), &p.stderr) })
}

// Stdin replaces that of the interpreter which has become the process.
func (p *process) Stdin() io.WriteCloser { return p.stdin }

func (p *process) collect(r io.Reader, into *bytes.Buffer) {
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		p.mu.Lock()
		if into.Len() < 2<<20 {
			into.Write(chunk[:n])
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// said reports whether the process has printed a line that begins a result.
func (p *process) said(text string) bool {
	said := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.stdout.String(), text)
	}
	eventually(patience, func() bool {
		select {
		case <-p.Exited():
			p.readers.Wait()
			return true
		default:
			return said()
		}
	})
	return said()
}

// wait waits for the end; a process that does not end is killed.
func (p *process) wait(d time.Duration) run {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		p.Signal(context.Background(), 9)
		return run{result: outcome.Result{Name: p.attempt, Outcome: outcome.Broken,
			Detail: "did not end in " + d.String()}, err: err}
	}
	if err == nil {
		p.readers.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := run{stdout: p.stdout.String(), stderr: p.stderr.String(), exit: exit, err: err}
	if err != nil {
		r.result = outcome.Result{Name: p.attempt, Outcome: outcome.Broken, Detail: err.Error()}
		return r
	}
	r.result = interpret(p.attempt, r.stdout, r.stderr, exit.Code, exit.Signal)
	return r
}

// stats reads the kernel's accounting.
func (b *box) stats(c *trial) engine.Stats {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := b.sandbox.Stats(ctx)
	if err != nil {
		c.Errorf("Stats: %v", err)
	}
	return s
}

// kill ends the sandbox at once.
func (b *box) kill(c *trial) {
	c.Helper()
	if err := b.sandbox.Kill(); err != nil {
		c.Errorf("Kill: %v", err)
	}
	select {
	case <-b.sandbox.Done():
	case <-time.After(patience):
		c.Errorf("the sandbox lives %v after Kill", patience)
	}
}
