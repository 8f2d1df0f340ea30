package pool

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Programs that come from one zygote share the layout of their memory, and what was drawn at random when the first of
// them started. A zygote serves for a while only, so that little is learned by learning that.
const (
	zygoteAge  = 10 * time.Minute
	zygoteUses = 1000
	// mostWhole is how many prepared sandboxes of a key have all memory that their programs will write to. Others share
	// it with the zygote, and are claimed after those.
	mostWhole = 4
	// zygoteTries is how often in a row it is tried to make one of a key's program.
	zygoteTries = 3
)

// zygotes holds the zygote of a key, if there is one. A program may still be made from one that has been replaced: its
// file is closed when nothing refers to it any more.
type zygotes struct {
	mu     sync.Mutex
	file   *os.File
	born   clock.Instant
	uses   int
	failed int
	warned bool
}

// copy is the program to make from a zygote that is fresh enough; nil for none.
func (z *zygotes) copy(now clock.Instant, p Parked) *engine.Copy {
	z.mu.Lock()
	defer z.mu.Unlock()
	if now.Sub(z.born) >= zygoteAge || z.uses >= zygoteUses {
		z.file = nil
	}
	if z.file == nil {
		return nil
	}
	z.uses++
	return &engine.Copy{Zygote: z.file, Path: p.Path, Spec: p.Spec}
}

// lacking reports whether one should be made.
func (z *zygotes) lacking() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.file == nil && z.failed < zygoteTries
}

// broken drops a zygote of which no program could be made. It may have been of files that have changed since.
func (z *zygotes) broken(c *engine.Copy, log *slog.Logger, err error) {
	log.Info("no program can be made from a zygote, which is dropped", "error", err)
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.file == c.Zygote {
		z.file = nil
		z.failed++
	}
}

// plain warns once that programs are without modules.
func (z *zygotes) plain(log *slog.Logger, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.warned {
		log.Warn("the modules of sandbox.pool.python_modules are not loaded ahead: programs load them themselves; "+
			"remove those that are not there, or that start threads or keep files open", "error", err)
	}
	z.warned = true
}

// set makes a zygote the one to use; err is why there is none.
func (z *zygotes) set(f *os.File, now clock.Instant, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if err != nil {
		z.failed++
		return
	}
	z.file, z.born, z.uses, z.failed = f, now, 0, 0
}

// maker makes sandboxes by recipes.
type maker struct {
	o       Options
	discard func(...*Prepared)
}

// bring makes a sandbox by a recipe, with its program from a zygote where there is one. On error nothing is left.
func (m *maker) bring(ctx context.Context, r Recipe, from *engine.Copy) (*Prepared, error) {
	return m.bringWith(ctx, r, from, "")
}

// bringWith is bring for a program that finds the text of the Preload at a path; none if that is empty.
func (m *maker) bringWith(ctx context.Context, r Recipe, from *engine.Copy, text string) (made *Prepared, err error) {
	plan := r.Plan()
	plan.Binding.Copy = from
	sb, err := provision.New(ctx, r.Engine, plan)
	if err != nil {
		return nil, err
	}
	made = &Prepared{Sandbox: sb, born: m.o.Clock.Monotonic(), sparse: from != nil && from.Sparse}
	if r.Key.Parked == "" {
		return made, nil
	}
	if text != "" {
		err = sb.Guest().WriteFile(ctx, text, 0o600, r.Parked.Preload.Text)
	}
	if err == nil && from == nil {
		err = guest.Park(ctx, sb.Guest(), r.Parked.Path)
	}
	if err == nil {
		made.Process, err = process.Start(ctx, sb, m.o.Clock, r.Parked.Spec)
	}
	if err != nil {
		m.discard(made)
		return nil, err
	}
	return made, nil
}

// breed makes a zygote of a program that was started, and has a program from it run a trial to its end.
func (m *maker) breed(ctx context.Context, r Recipe, started *Prepared, trial []byte) (*os.File, error) {
	f, err := guest.MakeZygote(ctx, started.Process.RemoteProcess, r.Parked.Path)
	if err != nil {
		return nil, err
	}
	return f, m.try(ctx, r, &engine.Copy{Zygote: f, Path: r.Parked.Path, Spec: r.Parked.Spec}, trial)
}

// preload makes a sandbox whose program has loaded modules, and a zygote of that. On error nothing is left.
func (m *maker) preload(ctx context.Context, r Recipe, z *zygotes) (*Prepared, error) {
	now := m.o.Clock.Monotonic()
	place, err := m.place(ctx, r)
	if err != nil {
		return nil, err
	}
	made, err := m.bringWith(ctx, r, nil, place)
	if err != nil {
		return nil, err
	}
	f, err := m.breed(ctx, r, made, r.Parked.Preload.Check)
	if err != nil {
		m.discard(made)
		return nil, err
	}
	z.set(f, now, nil)
	return made, nil
}

// place asks where the text of a recipe's Preload has to be, in a sandbox of its own: the program that is parked is the
// first of its sandbox.
func (m *maker) place(ctx context.Context, r Recipe) (string, error) {
	r.Key.Parked = ""
	made, err := m.bring(ctx, r, nil)
	if err != nil {
		return "", err
	}
	defer m.discard(made)
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	spec := r.Parked.Spec
	spec.Args = r.Parked.Preload.Place
	asked, err := process.Start(ctx, made.Sandbox, m.o.Clock, spec)
	if err != nil {
		return "", err
	}
	var said, errs tail
	outcome, err := asked.Attend(ctx, process.Attendance{Own: true, Stdout: &said, Stderr: &errs})
	if err == nil {
		err = failure(outcome, errs)
	}
	return strings.TrimSpace(string(said)), err
}

// failure is that of a program which has not ended with 0.
func failure(o process.Outcome, errs tail) error {
	if o.Lost == nil && o.Code == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(errs)), "\n")
	return fmt.Errorf("the trial ends with the code %d, the signal %d, %v: %.200s", o.Code, o.Signal, o.Lost,
		lines[len(lines)-1])
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	*t = (*t)[max(0, len(*t)-4096):]
	return len(b), nil
}

// tryTime is how long the trial of a zygote may take.
const tryTime = 10 * time.Second

func (m *maker) try(ctx context.Context, r Recipe, c *engine.Copy, trial []byte) error {
	made, err := m.bring(ctx, r, c)
	if err != nil {
		return err
	}
	defer m.discard(made)
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	if err := guest.Release(ctx, made.Guest(), r.Parked.Path, 0o644, trial); err != nil {
		return err
	}
	var errs tail
	outcome, err := made.Process.Attend(ctx, process.Attendance{Own: true, Stderr: &errs})
	if err == nil {
		err = failure(outcome, errs)
	}
	return err
}

// breeds reports whether programs of a recipe are made from zygotes.
func (m *maker) breeds(r Recipe) bool {
	return m.o.Zygotes && m.o.Terms.Most > 0 && r.Parked.Trial != nil && r.Engine.Capabilities().Zygotes
}

// Make makes a sandbox for a caller whose Claim has found none, with its program from a zygote; nil where there is no
// zygote, or none of use.
func (p *Pool) Make(ctx context.Context, r Recipe) *Prepared {
	if !p.maker.breeds(r) {
		return nil
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	z := &p.kind(r).zygotes
	p.mu.Unlock()
	c := z.copy(p.o.Clock.Monotonic(), r.Parked)
	if c == nil {
		p.Wake()
		return nil
	}
	made, err := p.maker.bring(ctx, r, c)
	if err != nil && ctx.Err() == nil {
		z.broken(c, p.o.Log, err)
	}
	return made
}

// prepare makes a sandbox by a recipe; sparse is how a program from a zygote is made. On error nothing is left.
func (m *maker) prepare(ctx context.Context, r Recipe, z *zygotes, sparse bool) (made *Prepared, err error) {
	if !m.breeds(r) {
		return m.bring(ctx, r, nil)
	}
	if c := z.copy(m.o.Clock.Monotonic(), r.Parked); c != nil {
		c.Sparse = sparse
		if made, err = m.bring(ctx, r, c); err == nil || ctx.Err() != nil {
			return made, err
		}
		z.broken(c, m.o.Log, err)
	}
	if r.Parked.Preload != nil && z.lacking() {
		if made, err = m.preload(ctx, r, z); err == nil || ctx.Err() != nil {
			return made, err
		}
		z.plain(m.o.Log, err)
	}
	now := m.o.Clock.Monotonic()
	if made, err = m.bring(ctx, r, nil); err != nil || !z.lacking() {
		return made, err
	}
	f, err := m.breed(ctx, r, made, r.Parked.Trial)
	if ctx.Err() != nil {
		return made, nil
	}
	if err != nil {
		m.o.Log.Info("no zygote can be made of a parked program: others are started as it was", "error", err)
	}
	z.set(f, now, err)
	return made, nil
}
