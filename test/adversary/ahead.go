package adversary

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	languages "github.com/cove-sandbox/cove/internal/runtime"
)

// Ahead says how a pool prepares the sandboxes of rows before they are asked for.
type Ahead string

const (
	Empty  Ahead = "empty"  // bound, without a program
	Parked Ahead = "parked" // with an interpreter that was started in it
	Copied Ahead = "copied" // with an interpreter that was made from a zygote
)

// parkedCode is where the interpreter reads its code, which becomes the attacking program.
const parkedCode = cove.WorkDir + "/main.py"

// preparing is a pool of the suite's engine.
type preparing struct {
	*pool.Pool
	how Ahead
}

func newPreparing(how Ahead) *preparing {
	return &preparing{how: how, Pool: pool.New(pool.Options{Terms: pool.Terms{Most: 1, Age: time.Hour}, Memory: 4 << 30,
		Zygotes: how == Copied, Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})}
}

// prepared reports whether executions that need this sandbox are given a prepared one.
func (o boxOptions) prepared() bool {
	return o.rootfs == nil && len(o.mounts) == 0 && o.host == "" && !o.bare && o.route == nil && o.unbound == nil
}

// claim claims a sandbox, as soon as one is prepared.
func (p *preparing) claim(ctx context.Context, eng engine.Engine, t engine.Template) (*pool.Prepared, error) {
	r := pool.Recipe{Engine: eng, Key: pool.Key{Engine: eng.Name(), Rootfs: t.Rootfs.Kind, Shape: t.Shape},
		Plan: func() provision.Plan {
			return provision.Plan{Rootfs: t.Rootfs, Shape: t.Shape, Binding: engine.Binding{Hostname: rootfs.Hostname}}
		}}
	if p.how != Empty {
		python, _ := languages.Lookup("python")
		r.Key.Parked = python.Name
		r.Parked = pool.Parked{Path: parkedCode, Spec: interpreter(python, t.Shape), Trial: python.Trial}
	}
	for ctx.Err() == nil {
		var found *pool.Prepared
		if p.how == Copied {
			found = p.Make(ctx, r)
		} else {
			found = p.Claim(ctx, r)
		}
		if found != nil && p.how != Copied {
			// Rows look for what they leave behind, and the pool would prepare another one beside them.
			return found, p.Drain(ctx)
		}
		if found != nil {
			return found, nil
		}
		p.Warm(r, 1)
		time.Sleep(time.Millisecond)
	}
	return nil, ctx.Err()
}

// interpreter is the program that is parked in sandboxes of a shape.
func interpreter(python languages.Runtime, s cove.Shape) guest.ProcessSpec {
	args := slices.Clone(python.Command)
	args[slices.Index(args, python.File)] = parkedCode
	return guest.ProcessSpec{Args: args, Env: append(rootfs.Env(s.User), python.Env...), Dir: cove.WorkDir,
		StdoutLimit: s.Limits.Stdout, StderrLimit: s.Limits.Stderr}
}

// parks reports whether an interpreter waits in each sandbox, for one program.
func (p *preparing) parks() bool { return p != nil && p.how != Empty }

// spent reports whether the interpreter of the shared sandbox, and the process that it became, have ended.
func (s *suite) spent(b *box) bool { return s.ahead.parks() && b.waiting == nil && b.prober.now == nil }

// claim is makeWith for a sandbox that a pool prepares.
func (s *suite) claim(c *trial, ctx context.Context, t engine.Template, o boxOptions) (*box, error) {
	c.Helper()
	if !o.prepared() {
		c.lacking("no such sandbox is prepared")
	}
	made, err := s.ahead.claim(ctx, s.engine, t)
	if err != nil {
		return nil, err
	}
	b := &box{sandbox: made.Sandbox.Sandbox, limits: t.Limits, user: t.User, probe: probeInside}
	if made.Process != nil {
		b.waiting = made.Process.RemoteProcess
	}
	if o.many {
		b.prober = &prober{start: b.serveInside}
	}
	if err := b.sandbox.Guest().WriteFile(ctx, probeInside, 0o755, s.probe); err != nil {
		b.destroy(c)
		return nil, err
	}
	return b, nil
}

// begin starts a program in a sandbox. Where an interpreter waits, it becomes the program, and another program passes
// the input on.
func (b *box) begin(ctx context.Context, s guest.ProcessSpec) (*guest.RemoteProcess, io.WriteCloser, error) {
	program, err := json.Marshal(become{s.Args, s.Env, cmp.Or(s.Dir, "/"), s.Stdin})
	if err != nil {
		return nil, nil, err
	}
	code := fmt.Sprintf(becomes, program)
	if b.waiting == nil || s.TTY || s.Alone || s.OutputCap != 0 || len(code) > guest.MaxParked {
		p, err := b.sandbox.Guest().Start(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		return p, p.Stdin(), nil
	}
	stdin := b.waiting.Stdin()
	if s.Stdin {
		passes, err := b.sandbox.Guest().Start(ctx, guest.ProcessSpec{Env: plainEnvironment(), Dir: "/", Stdin: true,
			Args: []string{"sh", "-c", "mkfifo /tmp/input 2>/dev/null; exec cat >/tmp/input"}})
		if err != nil {
			return nil, nil, err
		}
		stdin = passes.Stdin()
	}
	p, err := b.release(ctx, code)
	return p, stdin, err
}

// release gives the interpreter that waits in a sandbox its code.
func (b *box) release(ctx context.Context, code string) (p *guest.RemoteProcess, err error) {
	p, b.waiting = b.waiting, nil
	return p, guest.Release(ctx, b.sandbox.Guest(), parkedCode, 0o644, []byte(code))
}

// become is the program that an interpreter becomes, by the code becomes.
type become struct {
	Args, Env []string
	Dir       string
	Stdin     bool
}

const becomes = `import json, os
p = json.loads(%q)
os.chdir(p["Dir"])
if p["Stdin"]:
    try: os.mkfifo("/tmp/input")
    except FileExistsError: pass
    os.dup2(os.open("/tmp/input", os.O_RDONLY), 0)
os.execvpe(p["Args"][0], p["Args"], dict(e.split("=", 1) for e in p["Env"]))
`
