package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

var processTests = []test{
	{name: "exit codes", run: exitCodes},
	{name: "a signal from inside", run: signalFromInside},
	{name: "a signal from the host", run: signalFromHost},
	{name: "a signal to everybody", run: signalAll},
	{name: "a signal that does not exist", run: badSignals},
	{name: "what cannot be started", run: cannotStart},
	{name: "arguments arrive as they are", run: arguments},
	{name: "the environment is exactly what was given", run: environment},
	{name: "the directory is what was given", run: directory},
	{name: "the user is nobody inside", run: userIDs(cove.CodeUser)},
	{name: "an agent is a user with a home", run: userIDs(cove.AgentUser)},
	{name: "writable places belong to the user", run: writablePlaces},
	{name: "Wait gives up with its context and not with the process", run: waitCancelled},
	{name: "Start with a cancelled context", run: startCancelled},
	{name: "the last one out takes everybody along", run: alone},
}

func exitCodes(t *testing.T, x *env) {
	sb := x.bound(t)
	for _, c := range []struct {
		spec guest.ProcessSpec
		code int
	}{
		{command("true"), 0},
		{command("false"), 1},
		{shell("exit 7"), 7},
		{shell("exit 255"), 255},
	} {
		r := x.output(t, sb, c.spec)
		if r.exit.Code != c.code || r.exit.Signal != 0 {
			t.Errorf("%q exited with %+v, want code %d", c.spec.Args, r.exit, c.code)
		}
	}
}

func signalFromInside(t *testing.T, x *env) {
	sb := x.bound(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV} {
		r := x.output(t, sb, shell(fmt.Sprintf("kill -%d $$; sleep 600", int(sig))))
		if r.exit.Signal != int(sig) || r.exit.Code != 128+int(sig) {
			t.Errorf("killed by signal %d: %+v", int(sig), r.exit)
		}
	}
}

func signalFromHost(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.start(t, sb, command("sleep", "600"))
	if p.PID() <= 1 {
		t.Errorf("the process's id inside is %d", p.PID())
	}
	if err := p.Signal(x.ctx, int(syscall.SIGTERM)); err != nil {
		t.Fatalf("Signal: %v", err)
	}
	if r := x.finish(t, p); r.exit.Signal != int(syscall.SIGTERM) {
		t.Errorf("after SIGTERM: %+v", r.exit)
	}
	eventually(t, "a process that has gone takes no signal", func() bool {
		return p.Signal(x.ctx, int(syscall.SIGTERM)) != nil
	})
}

func signalAll(t *testing.T, x *env) {
	sb := x.bound(t)
	var ps []*guest.RemoteProcess
	for range 4 {
		ps = append(ps, x.start(t, sb, command("sleep", "600")))
	}
	if err := sb.Guest().SignalAll(x.ctx, int(syscall.SIGKILL)); err != nil {
		t.Fatalf("SignalAll: %v", err)
	}
	for _, p := range ps {
		if r := x.finish(t, p); r.exit.Signal != int(syscall.SIGKILL) {
			t.Errorf("after SIGKILL to all: %+v", r.exit)
		}
	}
	x.want(t, sb, command("echo", "the guest lives"), "the guest lives\n")
}

func badSignals(t *testing.T, x *env) {
	sb := x.bound(t)
	p := x.start(t, sb, command("sleep", "600"))
	for _, sig := range []int{-1, 65, 1 << 20} {
		wantFailure(t, fmt.Sprintf("signal %d", sig), p.Signal(x.ctx, sig), guest.FailInvalid)
	}
}

func cannotStart(t *testing.T, x *env) {
	sb := x.bound(t)
	g := sb.Guest()
	if err := g.WriteFile(x.ctx, cove.WorkDir+"/plain", 0o644, []byte("not a program\n")); err != nil {
		t.Fatal(err)
	}
	elsewhere := command("true")
	elsewhere.Dir = "/no/such/directory"
	for _, c := range []struct {
		name  string
		spec  guest.ProcessSpec
		kinds []guest.FailureKind
	}{
		{"no command", command(), []guest.FailureKind{guest.FailInvalid}},
		{"an empty name", command(""), []guest.FailureKind{guest.FailInvalid, guest.FailNotFound}},
		{"a name that is nowhere", command("no-such-program"), []guest.FailureKind{guest.FailNotFound}},
		{"a path that is nowhere", command("/no/such/program"), []guest.FailureKind{guest.FailNotFound}},
		{"a directory", command("/etc"), []guest.FailureKind{guest.FailPermission, guest.FailInvalid}},
		{"a file without the x bit", command(cove.WorkDir + "/plain"), []guest.FailureKind{guest.FailPermission}},
		{"a directory to run in that is nowhere", elsewhere, []guest.FailureKind{guest.FailNotFound}},
		{"NUL in an argument", command("echo", "a\x00b"), []guest.FailureKind{guest.FailInvalid}},
		{"NUL in the environment", guest.ProcessSpec{Args: []string{"true"}, Dir: "/", Env: []string{"PATH=/bin:/usr/bin",
			"A=\x00"}}, []guest.FailureKind{guest.FailInvalid}},
		{"NUL in the directory", guest.ProcessSpec{Args: []string{"true"}, Dir: "/\x00",
			Env: []string{"PATH=/bin:/usr/bin"}}, []guest.FailureKind{guest.FailInvalid}},
	} {
		_, err := g.Start(x.ctx, c.spec)
		wantFailure(t, c.name, err, c.kinds...)
	}
	x.want(t, sb, command("echo", "fine"), "fine\n")
	if h, err := g.Health(x.ctx); err != nil || h.Processes != 0 {
		t.Errorf("after refused starts: %+v, %v", h, err)
	}
}

// awkward are strings that a shell, a line or a terminal would change.
var awkward = []string{
	"", " ", "a b", "$HOME", "`id`", "$(id)", "'", `"`, `\`, `\n`, "*", "~", "-", "--", "-n", "new\nline", "tab\there",
	"\r", "\x1b[31mred",
	"snow ☃ and 𝄞", "e\u0301", "invalid \xff\xfe utf-8", strings.Repeat("long ", 2000),
}

func arguments(t *testing.T, x *env) {
	sb := x.bound(t)
	args := slices.DeleteFunc(slices.Clone(awkward), func(s string) bool { return !isText(s) })
	x.want(t, sb, command(append([]string{"printf", `%s\0`}, args...)...), strings.Join(args, "\x00")+"\x00")
}

// isText leaves out what JSON cannot carry: the protocol's strings are UTF-8.
func isText(s string) bool { return strings.ToValidUTF8(s, "") == s }

func environment(t *testing.T, x *env) {
	sb := x.bound(t)
	env := []string{"PATH=/usr/bin:/bin"}
	for i, v := range awkward {
		if isText(v) {
			env = append(env, fmt.Sprintf("V%d=%s", i, v))
		}
	}
	env = append(env, "EMPTY=", "ODD-NAME=x", "EQUALS=a=b=c")
	r := x.output(t, sb, guest.ProcessSpec{Args: []string{"env", "-0"}, Dir: "/", Env: env})
	got := strings.Split(strings.TrimSuffix(r.stdout, "\x00"), "\x00")
	slices.Sort(got)
	slices.Sort(env)
	if !slices.Equal(got, env) {
		t.Errorf("environment inside:\n%q\nwant:\n%q", got, env)
	}
}

func directory(t *testing.T, x *env) {
	sb := x.bound(t)
	for _, dir := range []string{"/", "/tmp", cove.WorkDir, cove.Home} {
		spec := command("pwd")
		spec.Dir = dir
		x.want(t, sb, spec, dir+"\n")
	}
}

func userIDs(u cove.User) func(*testing.T, *env) {
	return func(t *testing.T, x *env) {
		if !x.caps.UserIDs {
			t.Skip("the engine has one user only: " + x.caps.Missing["user_ids"])
		}
		sb := x.bound(t, func(tmpl *engine.Template) { tmpl.User = u })
		id := fmt.Sprintln(u.UID)
		x.want(t, sb, command("id", "-u"), id)
		x.want(t, sb, command("id", "-g"), id)
		x.want(t, sb, command("id", "-G"), id)
		if err := sb.Guest().WriteFile(x.ctx, cove.WorkDir+"/mine", 0o600, []byte("for my eyes")); err != nil {
			t.Fatal(err)
		}
		x.want(t, sb, command("cat", "mine"), "for my eyes")
	}
}

func writablePlaces(t *testing.T, x *env) {
	sb := x.bound(t)
	for _, dir := range []string{cove.WorkDir, cove.Home, "/tmp", "/run", "/dev/shm"} {
		x.want(t, sb, shell(`echo "$1" > "$1/probe"; cat "$1/probe"`, dir), dir+"\n")
	}
}

func waitCancelled(t *testing.T, x *env) {
	sb := x.bound(t)
	spec := command("cat")
	spec.Stdin = true
	p := x.start(t, sb, spec)
	ctx, cancel := context.WithTimeout(x.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v, want the context's error", err)
	}
	fmt.Fprint(p.Stdin(), "alive")
	p.Stdin().Close()
	if r := x.finish(t, p); r.stdout != "alive" || r.exit.Code != 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

func startCancelled(t *testing.T, x *env) {
	sb := x.bound(t)
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	if _, err := sb.Guest().Start(ctx, command("sleep", "600")); !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v, want %v", err, context.Canceled)
	}
	x.want(t, sb, command("echo", "fine"), "fine\n")

	// A caller who leaves while the start is under way leaves no process.
	for i := range 20 {
		ctx, cancel := context.WithTimeout(x.ctx, time.Duration(i)*100*time.Microsecond)
		if p, err := sb.Guest().Start(ctx, command("cat", "/dev/zero")); err == nil {
			p.Signal(x.ctx, int(syscall.SIGKILL))
			x.finish(t, p)
		} else if ctx.Err() == nil {
			t.Errorf("Start failed for another reason than its context: %v", err)
		}
		cancel()
	}
	eventually(t, "nothing is left of starts given up", func() bool {
		h, err := sb.Guest().Health(x.ctx)
		return err == nil && h.Processes == 0
	})
	x.want(t, sb, command("echo", "still fine"), "still fine\n")
}

func alone(t *testing.T, x *env) {
	sb := x.bound(t)
	other := x.start(t, sb, command("sleep", "600"))
	spec := shell("echo last")
	spec.Alone = true
	x.want(t, sb, spec, "last\n")
	if r := x.finish(t, other); r.exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("the other process: %+v", r.exit)
	}
	x.want(t, sb, command("echo", "the guest lives"), "the guest lives\n")
}
