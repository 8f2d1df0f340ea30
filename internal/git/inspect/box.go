package inspect

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Options configure an Inspector.
type Options struct {
	Engines *engine.Set   // any that Able accepts makes the sandboxes of packs
	Dir     string        // for packs while they are looked into, on a disk with room for them
	Timeout time.Duration // of one push; 5 min
	AtOnce  int           // pushes at a time, of which one sandbox has at most half; 2
	Quotas  Quotas        // of the owners of sandboxes; nil: none has one
	Clock   clock.Clock   // the machine's
	Log     *slog.Logger
}

// Quotas bounds the CPU time of principals; execution.Executions does.
type Quotas interface {
	// Spare refuses work where the principal's CPU time is used up. Errors: Overloaded.
	Spare(ctx context.Context, who cove.Principal) error
	// Charge returns a context whose work counts in the principal's CPU time once done is called.
	Charge(ctx context.Context, who cove.Principal) (charged context.Context, done func())
}

// Spent is the error where the CPU time of a sandbox's owner is used up.
type Spent struct{ Err error }

func (s *Spent) Error() string { return s.Err.Error() }
func (s *Spent) Unwrap() error { return s.Err }

// Inspector looks into pushes.
type Inspector struct {
	o      Options
	places *places
}

// Able reports whether sandboxes of an engine can hold a pack: the engine has to show them a directory of the host.
func Able(c engine.Capabilities) error {
	if !c.LateMount {
		return cove.Errorf(cove.Unsupported, "the engine shows sandboxes no directory of this machine").
			WithHint("set engine to native")
	}
	return nil
}

// New makes an Inspector.
func New(o Options) *Inspector {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.AtOnce = cmp.Or(o.AtOnce, 2)
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	return &Inspector{o: o, places: newPlaces(o.AtOnce)}
}

// abandoned is the age of a directory that is not in use: inspecting a push takes less.
const abandoned = 24 * time.Hour

// Tidy removes what processes that are gone have left in a directory (Options.Dir).
func Tidy(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if i, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(i.ModTime()) > abandoned {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

const prefix = "inspect-"

// limits of a sandbox that a pack of so many bytes is looked into in. Packs themselves are in a directory of the
// host's, where index-pack keeps no more of one than it reads, and nothing has a file larger than what may be written.
func limits(c engine.Capabilities, most int64) cove.Limits {
	l := cove.Limits{OpenFiles: 256, Stdout: 1 << 30, Stderr: maxFindings, Timeout: time.Hour}
	if c.MemoryLimit {
		l.Memory = 768 << 20
	}
	if c.CPULimit {
		l.CPUs = 1
	}
	if c.PIDsLimit {
		l.PIDs = 64
	}
	if c.DiskLimit {
		l.Disk, l.Inodes = most+(64<<20), 10_000
	}
	return l
}

// Inspect looks into a push. Errors: *Spent, Unavailable where there is no engine or no
// git in its sandboxes, StorageFull, and those of ctx.
func (i *Inspector) Inspect(ctx context.Context, job Job) (facts policy.Facts, err error) {
	sha256 := len(job.Compare) > 0 && len(job.Compare[0].Update.New) == 64
	err = i.with(ctx, job.Sandbox, sha256, job.Max, func(ctx context.Context, g git) error {
		facts, err = inspect(ctx, g, job)
		if err != nil && ctx.Err() == context.DeadlineExceeded {
			facts, err = policy.Facts{Defects: []string{"it takes too long to look into"}}, nil
		}
		return err
	})
	return facts, err
}

// Unreachable returns the wants that are not in the history of tips, for a sandbox. most is how much the server is
// asked for, in bytes. Errors: those of Inspect, and of server.
func (i *Inspector) Unreachable(
	ctx context.Context, sandbox Sandbox, tips, wants []string, most int64, server Upstream,
) (missing []string, err error) {
	if len(tips) == 0 {
		return wants, nil
	}
	err = i.with(ctx, sandbox, len(tips[0]) == 64, most, func(ctx context.Context, g git) error {
		missing, err = unreachable(ctx, g, tips, wants, most, server)
		return err
	})
	return missing, err
}

// with runs f for a sandbox, with a git in an empty repository, in another one of its own.
func (i *Inspector) with(
	ctx context.Context, sandbox Sandbox, sha256 bool, most int64, f func(context.Context, git) error,
) error {
	if err := i.spare(ctx, sandbox.Owner); err != nil {
		return err
	}
	if err := i.places.enter(ctx, sandbox.ID); err != nil {
		return err
	}
	defer i.places.leave(sandbox.ID)
	if err := i.spare(ctx, sandbox.Owner); err != nil { // what was looked into meanwhile has used some
		return err
	}
	if i.o.Quotas != nil {
		charged, done := i.o.Quotas.Charge(ctx, sandbox.Owner)
		defer done()
		ctx = charged
	}
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	b, err := i.open(ctx, most)
	if err != nil {
		return err
	}
	defer func() {
		if err := b.job.Count(ctx); err != nil {
			i.o.Log.Warn("the CPU time of looking into a push is not counted", "sandbox", sandbox.ID, "error", err)
		}
		b.close()
	}()
	g, err := create(ctx, b, place+"/r", sha256)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "git does not run where packs are looked into: %w", err).
			WithHint("see that git is installed on this machine")
	}
	return f(ctx, g)
}

// spare refuses to look into anything for an owner whose CPU time is used up. Errors: *Spent.
func (i *Inspector) spare(ctx context.Context, owner cove.Principal) error {
	if i.o.Quotas == nil {
		return nil
	}
	err := i.o.Quotas.Spare(ctx, owner)
	if cove.ErrorCode(err) == cove.Overloaded {
		return &Spent{err}
	}
	return err
}

// place holds the repository inside.
const place = "/workspace"

// sandboxBox is a box that is a sandbox.
type sandboxBox struct {
	job *job.Job // nil until it is opened
	dir string   // on the host
}

func (i *Inspector) open(ctx context.Context, most int64) (*sandboxBox, error) {
	eng, err := i.o.Engines.Able(Able)
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "packs cannot be looked into: %w", err)
	}
	if err := os.MkdirAll(i.o.Dir, 0o755); err != nil {
		return nil, cove.Errorf(cove.StorageFull, "there is no room for packs: %w", err)
	}
	b := &sandboxBox{}
	if b.dir, err = os.MkdirTemp(i.o.Dir, prefix); err != nil {
		return nil, cove.Errorf(cove.StorageFull, "there is no room for packs: %w", err)
	}
	err = os.Chmod(b.dir, 0o777) // where owners are those of the host, it belongs to another user inside
	if err == nil {
		binding := engine.Binding{Hostname: "inspect"}
		if err = binding.Attach(hostpath.Below(i.o.Dir, b.dir), engine.Attachment{Target: place}); err == nil {
			b.job, err = job.Open(ctx, eng, i.o.Clock, provision.Plan{
				Shape: cove.Shape{Limits: limits(eng.Capabilities(), most), User: cove.CodeUser}, Binding: binding,
			})
		}
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *sandboxBox) close() {
	if b.job != nil {
		b.job.Close()
	}
	os.RemoveAll(b.dir)
}

var environment = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C",
	"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
	"GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_ATTR_NOSYSTEM=1"}

func (b *sandboxBox) run(ctx context.Context, stdin io.Reader, read func(io.Reader) error, args ...string) error {
	var stderr bytes.Buffer
	spec := guest.ProcessSpec{Args: args, Env: environment, Dir: place, Stdin: stdin != nil, StderrLimit: maxFindings}
	o, err := b.job.Run(ctx, spec, process.Attendance{Stdin: stdin, Read: read, Stderr: &stderr})
	switch {
	case err != nil:
		return err
	case o.Lost != nil:
		return o.Lost
	case o.Code != 0 || o.Signal != 0:
		return &failed{o.Code, stderr.String()}
	}
	return nil
}

func (b *sandboxBox) write(ctx context.Context, path string, data []byte) error {
	return b.job.Guest().WriteFile(ctx, path, 0o644, data)
}
