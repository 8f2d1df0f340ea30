package hostile

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engines"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/test/hostile/lie"
)

// calls are the host's calls of every operation but those that make a sandbox.
var calls = map[guest.Op]func(ctx context.Context, c *guest.Client, p *guest.RemoteProcess) error{
	guest.OpHealth: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.Health(ctx)
		return err
	},
	guest.OpStart: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.Start(ctx, program("true"))
		return err
	},
	guest.OpAttach: func(ctx context.Context, c *guest.Client, p *guest.RemoteProcess) error {
		_, err := c.Attach(ctx, p.ID(), 0, 0)
		return err
	},
	guest.OpSignal: func(ctx context.Context, _ *guest.Client, p *guest.RemoteProcess) error { return p.Signal(ctx, 18) },
	guest.OpResize: func(ctx context.Context, _ *guest.Client, p *guest.RemoteProcess) error {
		return p.Resize(ctx, 1, 1)
	},
	guest.OpWrite: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		return c.WriteFile(ctx, "/tmp/x", 0o600, []byte("x"))
	},
	guest.OpRead: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.ReadFile(ctx, "/etc/passwd", 1<<20)
		return err
	},
	guest.OpStat: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.Stat(ctx, "/tmp")
		return err
	},
	guest.OpList: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.List(ctx, "/tmp")
		return err
	},
	guest.OpMkdir: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		return c.Mkdir(ctx, "/tmp/d", 0o700)
	},
	guest.OpRemove: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		return c.Remove(ctx, "/tmp/d")
	},
	guest.OpPark: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		return errors.Join(c.Remove(ctx, "/tmp/p"), guest.Park(ctx, c, "/tmp/p"))
	},
	guest.OpRelease: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		err := errors.Join(c.Remove(ctx, "/tmp/p"), guest.Park(ctx, c, "/tmp/p"))
		return cmp.Or(err, guest.Release(ctx, c, "/tmp/p", 0o600, []byte("x")))
	},
	guest.OpStats: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.Stats(ctx)
		return err
	},
	guest.OpProcesses: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.Listed(ctx)
		return err
	},
	guest.OpNote: func(ctx context.Context, _ *guest.Client, p *guest.RemoteProcess) error {
		return p.Note(ctx, []byte("x"))
	},
	guest.OpNoted: func(ctx context.Context, c *guest.Client, p *guest.RemoteProcess) error {
		_, err := c.Noted(ctx, p.ID())
		return err
	},
	guest.OpListeners: func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
		_, err := c.Listeners(ctx)
		return err
	},
}

// early are the messages before a sandbox is its user's, and the engines whose guests have them.
var early = map[guest.Op][]string{lie.Hello: engine.Names(), guest.OpBind: {"docker", "podman"}}

// within are the requests that no guest receives which is a program, or that such a guest refuses: the host itself
// makes scripts of them, and executors lie about those.
var within = []guest.Op{guest.OpBegin, guest.OpSetup, guest.OpZygote, guest.OpSocket}

// executed are the operations that the native engine has an executor do, and no keeper.
var executed = []guest.Op{guest.OpWrite, guest.OpRead, guest.OpStat, guest.OpList, guest.OpMkdir, guest.OpRemove,
	guest.OpPark, guest.OpRelease, guest.OpListeners}

// patience is what a call has in these tests.
const patience = 500 * time.Millisecond

// program is a program to start, with variables.
func program(name string, env ...string) guest.ProcessSpec {
	return guest.ProcessSpec{Args: []string{name}, Env: append(env, "PATH=/usr/local/bin:/usr/bin:/bin"), Dir: "/",
		Stdin: true}
}

// seen is what became of a call that was answered with a lie.
type seen struct {
	err   error
	goes  bool // the connection goes on
	after time.Duration
}

// wrong returns what is wrong with it; empty is nothing. It is pure.
func (s seen) wrong(want lie.Reaction) string {
	timedOut := errors.Is(s.err, context.DeadlineExceeded)
	holds := map[lie.Reaction]bool{
		lie.Ends:     !s.goes && s.err != nil && !timedOut,
		lie.Fails:    s.goes && s.err != nil && !timedOut,
		lie.Waits:    s.goes && timedOut,
		lie.Believed: s.goes && s.err == nil,
	}[want]
	switch {
	case !holds:
		return fmt.Sprintf("%v, and the connection goes on: %v; want that %s", s.err, s.goes, want)
	case s.err != nil && len(s.err.Error()) > 8<<10:
		return fmt.Sprintf("the error has %d bytes", len(s.err.Error()))
	case s.after > patience+2*time.Second:
		return fmt.Sprintf("it takes %v", s.after)
	}
	return ""
}

// TestWrong: the check of a reaction fails for every other reaction, for what takes long and for what says much.
func TestWrong(t *testing.T) {
	broken := &guest.ProtocolError{Reason: "no"}
	all := map[lie.Reaction]seen{lie.Ends: {err: broken}, lie.Fails: {err: broken, goes: true},
		lie.Waits: {err: context.DeadlineExceeded, goes: true}, lie.Believed: {goes: true}}
	for want := range all {
		for is, s := range all {
			if wrong := s.wrong(want); (wrong == "") != (is == want) {
				t.Errorf("%s: %s, %q", want, is, wrong)
			}
		}
	}
	long := seen{err: &guest.Failure{Message: strings.Repeat("x", 9<<10)}, goes: true}
	if long.wrong(lie.Fails) == "" || (seen{goes: true, after: time.Minute}).wrong(lie.Believed) == "" {
		t.Error("a long message, or a long time, is right")
	}
}

// host is an engine whose guests are liars.
type host struct {
	t      *testing.T
	name   string
	engine engine.Engine
}

// newHost opens an engine whose guests tell a lie from their beginning on, unless that is empty.
func newHost(t *testing.T, name, order string) *host {
	t.Helper()
	dir := newDir(t)
	in, err := instance.Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Release() })
	e, err := engines.New(engines.Options{Guest: liarIn(t, dir, order), RunDir: dir, Instance: in.ID, CgroupParent: groups,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, name).Get(name)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t, name, e}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cove-ho-") // short: a unix socket's path has 107 bytes
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// liarIn puts the liar into a directory, with a lie that it tells from its beginning on.
func liarIn(t *testing.T, dir, order string) string {
	t.Helper()
	built, err := os.ReadFile(filepath.Join(built, "liar"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "liar"), append(built, "\nLIE="+order...), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "liar")
}

// sandbox makes a sandbox whose processes the guest holds, and binds it: with the native engine a long-lived one, in
// which the guest is a keeper.
func (h *host) sandbox(ctx context.Context) (engine.Sandbox, error) {
	lifetime := cove.LifetimeAttached
	if h.name == "native" {
		lifetime = cove.LifetimeDetached
	}
	return h.sandboxWith(ctx, lifetime, engine.Binding{})
}

func (h *host) sandboxWith(ctx context.Context, lifetime cove.Lifetime, b engine.Binding) (engine.Sandbox, error) {
	limits := cove.Limits{Memory: 128 << 20, CPUs: 1, PIDs: 64, Disk: 32 << 20, Inodes: 2000, OpenFiles: 256,
		Stdout: 1 << 20, Stderr: 1 << 20, Timeout: time.Minute}
	sb, err := h.engine.Prepare(ctx, engine.Template{ID: cove.NewSandboxID(), Network: cove.NetworkNone,
		Shape:  cove.Shape{Limits: limits, User: cove.CodeUser, Lifetime: lifetime},
		Rootfs: engine.Rootfs{Kind: engine.RootfsHost}})
	if err != nil {
		return nil, err
	}
	if err := sb.Bind(ctx, b); err != nil {
		return nil, errors.Join(err, sb.Destroy(context.Background()))
	}
	return sb, nil
}

// truthful is a sandbox whose guest tells the truth, with a program that repeats what it is told.
type truthful struct {
	engine.Sandbox
	p       *guest.RemoteProcess
	witness *guest.RemoteProcess // of the same guest
	lines   *bufio.Reader
	said    int
}

// goes reports whether the connection to the guest goes on that holds the processes.
func (s *truthful) goes(ctx context.Context) bool {
	_, err := s.Guest().Health(ctx)
	return err == nil && s.witness.Signal(ctx, 0) == nil
}

func (h *host) truthful() *truthful {
	h.t.Helper()
	sb, err := h.sandbox(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	p, err := sb.Guest().Start(h.t.Context(), program("cat"))
	if err != nil {
		h.t.Fatal(err)
	}
	witness, err := sb.Guest().Start(h.t.Context(), program("cat"))
	if err != nil {
		h.t.Fatal(err)
	}
	return &truthful{Sandbox: sb, p: p, witness: witness, lines: bufio.NewReader(p.Stdout())}
}

// check has the program repeat a word that it was never told before.
func (s *truthful) check(t *testing.T) {
	t.Helper()
	s.said++
	word := fmt.Sprintf("word %d of %s\n", s.said, s.ID())
	if _, err := io.WriteString(s.p.Stdin(), word); err != nil {
		t.Fatalf("the sandbox beside: %v", err)
	}
	if got, err := s.lines.ReadString('\n'); err != nil || got != word {
		t.Fatalf("the sandbox beside repeats %q as %q, %v", word, got, err)
	}
}

func (s *truthful) destroy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Destroy(ctx); err != nil {
		t.Errorf("it is not destroyed: %v", err)
	}
	select {
	case <-s.Done():
	case <-ctx.Done():
		t.Error("its guest does not end")
	}
}

// holding counts what this process and its engines hold.
func (h *host) holding() map[string]int {
	now := held(os.Getpid())
	all, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range all {
		if to, err := os.Readlink(exe); err == nil && strings.HasSuffix(strings.TrimSuffix(to, " (deleted)"), "/liar") {
			now["guests"]++
		}
	}
	return now
}

// holdsNoMore waits until it does.
func (h *host) holdsNoMore(before map[string]int) {
	h.t.Helper()
	var more string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		now := h.holding()
		now["descriptors"] -= 2 // of connections to a daemon that are kept
		if more = leaked(before, now); more == "" {
			return
		}
		time.Sleep(20 * time.Millisecond) // sleep: no event reports that a descriptor is closed
	}
	var open []string
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		to, _ := os.Readlink(fd)
		open = append(open, to)
	}
	h.t.Errorf("left is more: %s; open are %v", more, open)
}

// TestEveryMessage: an engine takes a lie in any message as package lie says, in its time. The sandbox can be destroyed
// then, the sandbox beside it is as it was, and nothing is left.
func TestEveryMessage(t *testing.T) {
	for _, name := range engine.Names() {
		t.Run(name, func(t *testing.T) {
			needs(t, name)
			for op, on := range early {
				if slices.Contains(on, name) {
					t.Run(string(op), func(t *testing.T) { lieEarly(t, name, op) })
				}
			}
			h := newHost(t, name, "")
			beside := h.truthful()
			before := h.holding()
			for op := range calls {
				if name == "native" && slices.Contains(executed, op) {
					continue
				}
				t.Run(string(op), func(t *testing.T) { h.lieAbout(t, op, beside) })
			}
			t.Run("stream", func(t *testing.T) { h.lieInStreams(t, beside) })
			h.t = t
			h.holdsNoMore(before)
			beside.destroy(t)
		})
	}
}

// lieEarly: no program comes to run in a sandbox whose guest lies while it is made, and nothing is left of it.
func lieEarly(t *testing.T, name string, op guest.Op) {
	truth := newHost(t, name, "")
	beside := truth.truthful() // the control
	before := truth.holding()
	for _, l := range lie.About(op) {
		if alike(name, l) {
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			h := newHost(t, name, string(op)+"="+l.Name)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			sb, err := h.sandbox(ctx)
			if err == nil {
				_, err = sb.Guest().Start(ctx, program("true"))
				if err == nil {
					t.Fatal("a program runs")
				}
				if err := sb.Destroy(context.Background()); err != nil {
					t.Errorf("it is not destroyed: %v", err)
				}
			}
			if took := time.Since(began); took > 20*time.Second || len(err.Error()) > 8<<10 {
				t.Errorf("it takes %v and says %d bytes", took, len(err.Error()))
			}
			beside.check(t)
		})
	}
	truth.holdsNoMore(before)
	beside.destroy(t)
}

// alike reports whether a lie is left out, since another is taken in the same way: with a container engine a sandbox
// takes a second to make.
func alike(engine string, l lie.Lie) bool {
	return engine != "native" && l.Want == lie.Ends && l.Name != "an answer to another"
}

// lieAbout has a guest lie about an operation, in every way.
func (h *host) lieAbout(t *testing.T, op guest.Op, beside *truthful) {
	var sb *truthful
	for _, l := range lie.About(op) {
		if alike(h.name, l) {
			continue
		}
		h.t = t
		if sb == nil {
			sb = h.truthful()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := calls[op](ctx, sb.Guest(), sb.p); err != nil && op != guest.OpResize && op != guest.OpRemove {
			t.Fatalf("the control: %v", err)
		}
		call, order := calls[op], program("true", "LIE="+string(op)+"="+l.Name)
		if op == guest.OpStart {
			call = func(ctx context.Context, c *guest.Client, _ *guest.RemoteProcess) error {
				_, err := c.Start(ctx, order)
				return err
			}
		} else if _, err := sb.Guest().Start(ctx, order); err != nil {
			t.Fatal(err)
		}
		short, end := context.WithTimeout(ctx, patience)
		began := time.Now()
		s := seen{err: call(short, sb.Guest(), sb.p)}
		s.after = time.Since(began)
		end()
		s.goes = sb.goes(ctx)
		if h.name == "native" && !s.goes { // the sandbox does, with another keeper
			if _, err := sb.Guest().Start(ctx, program("true")); err != nil {
				t.Errorf("%s: the next program: %v", l.Name, err)
			}
		}
		cancel()
		want := l.Want
		if l.Void != "" && lie.Void[op] {
			want = l.Void
		}
		if wrong := s.wrong(want); wrong != "" {
			t.Errorf("%s: %s", l.Name, wrong)
		}
		beside.check(t)
		if !s.goes || op == guest.OpAttach { // which has taken the program's output
			sb.destroy(t)
			sb = nil
		}
	}
	if sb != nil {
		sb.destroy(t)
	}
}

// lieInStreams has a guest lie about a program that runs.
func (h *host) lieInStreams(t *testing.T, beside *truthful) {
	for _, l := range lie.Streams {
		h.t = t
		sb := h.truthful()
		p, err := sb.Guest().Start(t.Context(), program("cat", "LIE=stream="+l.Name))
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, p.Stderr())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		exit, err := p.Wait(ctx)
		s := seen{err: err, after: time.Since(began), goes: true}
		cancel()
		select {
		case <-sb.witness.Exited():
			s.goes = false
		case <-time.After(100 * time.Millisecond):
		}
		if l.Name == "two exits" { // the first is the program's own, the second comes too late
			if s.goes || err != nil || exit.Code != 7 {
				t.Errorf("%s: %+v, %+v", l.Name, exit, s)
			}
		} else if wrong := s.wrong(l.Want); wrong != "" {
			t.Errorf("%s: %s", l.Name, wrong)
		}
		beside.check(t)
		sb.destroy(t)
	}
}

// TestExecutors: a host takes a lie of an executor about a program or a terminal that it starts as package lie says.
func TestExecutors(t *testing.T) {
	needs(t, "native")
	h := newHost(t, "native", "")
	beside := h.attached(t)
	before := h.holding()
	for _, l := range slices.Concat(lie.Executors, lie.Descriptors) {
		t.Run(l.Name, func(t *testing.T) { h.lieInExecutor(t, l, false, beside) })
	}
	for _, l := range lie.Descriptors {
		if l.Name != "one descriptor less" { // it has one
			t.Run("terminal "+l.Name, func(t *testing.T) { h.lieInExecutor(t, l, true, beside) })
		}
	}
	h.holdsNoMore(before)
	beside.destroy(t)
}

// attached is a sandbox whose PID 1 is an executor, with a program that repeats what it is told.
func (h *host) attached(t *testing.T) *truthful {
	t.Helper()
	sb, err := h.sandboxWith(t.Context(), cove.LifetimeAttached, engine.Binding{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := sb.Guest().Start(t.Context(), program("cat"))
	if err != nil {
		t.Fatal(err)
	}
	return &truthful{Sandbox: sb, p: p, lines: bufio.NewReader(p.Stdout())}
}

// lieInExecutor has an executor lie about a program that it starts.
func (h *host) lieInExecutor(t *testing.T, l lie.Executor, terminal bool, beside *truthful) {
	sb := h.attached(t)
	sb.check(t)
	spec := program("cat", "LIE=executor="+l.Name)
	spec.TTY = terminal
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	p, err := sb.Guest().Start(ctx, spec)
	if err == nil {
		go io.Copy(io.Discard, p.Stdout())
		go io.Copy(io.Discard, p.Stderr())
		var exit guest.Exit
		if exit, err = p.Wait(ctx); err == nil && exit.Code != 7 {
			t.Errorf("it ends with %+v", exit)
		}
	}
	s := seen{err: err, after: time.Since(began), goes: true}
	select {
	case <-sb.Guest().Done():
		s.goes = false
	case <-time.After(100 * time.Millisecond):
	}
	if wrong := s.wrong(l.Want); wrong != "" {
		t.Error(wrong)
	}
	beside.check(t)
	sb.destroy(t)
}

// TestExecutorsAndKeepers: a host takes a lie of an executor about a keeper that it starts as package lie says. One
// that tells the truth and is silent then does no harm: the keeper is there.
func TestExecutorsAndKeepers(t *testing.T) {
	needs(t, "native")
	truth := newHost(t, "native", "")
	beside := truth.truthful()
	before := truth.holding()
	for _, l := range lie.Executors {
		if l.Name == "output without end" || l.Name == "a pipe that blocks later" { // which the keeper's has not
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			if l.Name == "silence after the start" {
				l.Want = lie.Believed
			}
			lieAboutKeeper(t, l)
			beside.check(t)
		})
	}
	truth.holdsNoMore(before)
	beside.destroy(t)
}

func lieAboutKeeper(t *testing.T, l lie.Executor) {
	h := newHost(t, "native", "keeper="+l.Name)
	sb, err := h.sandbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	p, err := sb.Guest().Start(ctx, program("cat"))
	cancel()
	s := seen{err: err, after: time.Since(began), goes: true}
	select {
	case <-sb.Guest().Done():
		s.goes = false
	case <-time.After(100 * time.Millisecond):
	}
	switch {
	case err == nil && !s.goes: // it was told only then
		_, s.err = p.Wait(t.Context())
	case err == nil:
		io.WriteString(p.Stdin(), "word\n")
		if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "word\n" {
			t.Errorf("the program says %q, %v", line, err)
		}
	}
	if wrong := s.wrong(l.Want); wrong != "" {
		t.Error(wrong)
	}
	(&truthful{Sandbox: sb}).destroy(t)
}

// TestExecutorsListeners: a host takes nothing for a listener that is none.
func TestExecutorsListeners(t *testing.T) {
	needs(t, "native")
	truth := newHost(t, "native", "")
	binding := engine.Binding{Listeners: []guest.Listen{{Network: "tcp4", Address: "127.0.0.1:8080"},
		{Network: "udp4", Address: "127.0.0.1:8080"}}}
	beside := truth.attached(t)
	good, err := truth.sandboxWith(t.Context(), cove.LifetimeAttached, binding) // the control
	if err != nil {
		t.Fatal(err)
	}
	if err := good.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := truth.holding()
	for _, l := range lie.Descriptors {
		t.Run(l.Name, func(t *testing.T) {
			h := newHost(t, "native", "descriptors="+l.Name)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			sb, err := h.sandboxWith(ctx, cove.LifetimeAttached, binding)
			if err == nil {
				sb.Destroy(context.Background())
				t.Fatal("it is bound")
			}
			if ctx.Err() != nil || len(err.Error()) > 8<<10 || !strings.Contains(err.Error(), "guest protocol: ") {
				t.Errorf("it says %.300v", err)
			}
			beside.check(t)
		})
	}
	truth.holdsNoMore(before)
	beside.destroy(t)
}

// TestExecutorsSockets: a host connects nothing that is no socket of the sandbox.
func TestExecutorsSockets(t *testing.T) {
	needs(t, "native")
	truth := newHost(t, "native", "")
	beside := truth.attached(t)
	good, err := truth.sandboxWith(t.Context(), cove.LifetimeAttached, engine.Binding{}) // the control
	if err != nil {
		t.Fatal(err)
	}
	f, err := guest.MakeSocket(t.Context(), good.Guest())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := good.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := truth.holding()
	for _, l := range slices.Concat(lie.Descriptors, lie.Sockets) {
		t.Run(l.Name, func(t *testing.T) {
			h := newHost(t, "native", "descriptors="+l.Name)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			sb, err := h.sandboxWith(ctx, cove.LifetimeAttached, engine.Binding{})
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Destroy(context.Background())
			f, err := guest.MakeSocket(ctx, sb.Guest())
			if err == nil {
				f.Close()
				t.Fatal("it is a socket")
			}
			if ctx.Err() != nil || len(err.Error()) > 8<<10 {
				t.Errorf("it says %.300v", err)
			}
			beside.check(t)
		})
	}
	truth.holdsNoMore(before)
	beside.destroy(t)
}

// TestEveryMessageIsLiedAbout: a new operation or a new kind of frame needs a lie.
func TestEveryMessageIsLiedAbout(t *testing.T) {
	said := map[byte]bool{}
	for _, l := range slices.Concat(lie.Streams, lie.About(lie.Hello)) {
		if l.Name == "death" || strings.Contains(l.Name, "flood") || strings.Contains(l.Name, "without end") {
			continue
		}
		var m ear
		if l.Say(&m, 1); m.Len() > 4 {
			said[m.Bytes()[4]] = true
		}
	}
	for _, kind := range constants(t, "frame.go", "FrameType") {
		if n, err := strconv.Atoi(kind); err != nil || !said[byte(n)] {
			t.Errorf("no lie is a frame of the kind %s, %v", kind, err)
		}
	}
	for _, text := range constants(t, "message.go", "Op") {
		op, err := strconv.Unquote(text)
		if slices.Contains(within, guest.Op(op)) {
			continue
		}
		if _, later := calls[guest.Op(op)]; err != nil || !later && early[guest.Op(op)] == nil {
			t.Errorf("the operation %s has no lie: %v", text, err)
		}
	}
}

// ear keeps what is said.
type ear struct{ bytes.Buffer }

func (e *ear) WriteFDs(p []byte, _ []int) error { _, err := e.Write(p); return err }

// constants returns the values of the constants of a type of package guest, as its source has them.
func constants(t *testing.T, file, of string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../internal/guest", file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == of {
				all = append(all, v.Values[0].(*ast.BasicLit).Value)
			}
		}
		return true
	})
	if len(all) == 0 {
		t.Fatalf("%s has no constants of type %s", file, of)
	}
	return all
}

// needs skips where an engine cannot be tried.
func needs(t *testing.T, name string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make")
	}
	if name == "docker" && os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	if name == "podman" && os.Getenv("CONTAINER_HOST") == "" {
		t.Skip("needs a Podman service, which takes messages as Docker does: CONTAINER_HOST=$(scripts/start-podman.sh DIR)")
	}
}

// leaked lists what there is more of.
func leaked(before, after map[string]int) string {
	var all []string
	for what, n := range after {
		if n > before[what] {
			all = append(all, fmt.Sprintf("%s: %d, before %d", what, n, before[what]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// built is where the liar and cove are.
var built string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "cove-hostile-bin-"); err == nil {
		defer os.RemoveAll(built)
		build := exec.Command("go", "build", "-o", built+"/", "../../cmd/cove", "../../cmd/cove-server", "./liar")
		build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		return 1
	}
	return m.Run()
}
