package sandbox

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/store"
)

// OpenWork opens a sandbox's repository. The workspace of a stopped sandbox is shown to a temporary one without a
// network, and the sandbox cannot be started meanwhile. Errors: NotFound, InvalidArgument when it works on no
// repository, Conflict when it is paused.
func (s *Sandboxes) OpenWork(ctx context.Context, who cove.Principal, ref string) (*Work, error) {
	found, err := s.find(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	record := found.Sandbox
	switch {
	case record.Spec.Repository == nil:
		return nil, cove.Errorf(cove.InvalidArgument, "the sandbox %s works on no repository", record.Name).
			WithHint("copy files out of %s, which is there while it runs; run no git, editor or build in it",
				record.Spec.Directory)
	case record.State == cove.StateRunning:
		in, err := s.inside(ctx, who, ref)
		if err != nil {
			return nil, err
		}
		if record.Spec.GitBeside {
			box := record
			if in.Within != "" {
				if box, err = s.current(ctx, who, in.Within); err != nil {
					return nil, err
				}
			}
			release, err := holdWork(ctx, s.o.Places, who)
			if err != nil {
				return nil, err
			}
			c, err := s.besides(ctx, box, hostImage, false)
			if err != nil {
				release()
				return nil, err
			}
			return workBeside(s, found, c, release), nil
		}
		git := in.git
		if !record.Spec.Repository.Worktree {
			git = insideGit{record: record, place: cmp.Or(in.Place, cove.Workspace), sandbox: in.Guest, clock: s.o.Clock,
				env: in.Env, full: in.diskIsFull}
		}
		if git == nil {
			return nil, cove.Errorf(cove.Unavailable, "git of the sandbox %s is not there", record.Name).
				WithHint("see \"cove server logs\", then stop the sandbox and start it")
		}
		return &Work{ID: in.ID, Record: record, audit: s.Auditor, git: git, close: func() {}}, nil
	case record.State != cove.StateStopped:
		return nil, wrongState(record, "look into")
	}
	return s.showWork(ctx, who, found)
}

// showWork shows the workspace of a stopped sandbox to a temporary one.
func (s *Sandboxes) showWork(ctx context.Context, who cove.Principal, found View) (w *Work, err error) {
	_, leave, err := s.enter(ctx, found.box())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	if found, err = s.find(ctx, who, string(found.ID)); err != nil { // as it is now
		return nil, err
	}
	record := found.Sandbox
	if record.State != cove.StateStopped {
		return nil, wrongState(record, "look into")
	}
	shown, err := s.current(ctx, who, found.box()) // its files are shown
	if err != nil {
		return nil, err
	}
	ws, err := s.host.Workspaces.Open(ctx, shown.ID)
	if err != nil {
		return nil, err
	}
	if ws.Hidden != "" {
		git, err := s.openGit(ctx, record, ws)
		if err != nil {
			return nil, err
		}
		return &Work{ID: record.ID, Record: record, audit: s.Auditor, git: git, close: func() { git.Close(); leave() }}, nil
	}
	release, err := holdWork(ctx, s.o.Places, who)
	if err != nil {
		return nil, err
	}
	c, err := s.besides(ctx, shown, gitImage(shown.Spec), false)
	if err != nil {
		release()
		return nil, err
	}
	return workBeside(s, found, c, func() { release(); leave() }), nil
}

// holdWork counts a companion among what the principal has at once, until release is called. It is refused only where
// the CPU time is used up: it may be for the end of a run that is counted still. Errors: Overloaded.
func holdWork(ctx context.Context, places Places, who cove.Principal) (release func(), err error) {
	if err := places.Spare(ctx, who); err != nil {
		return nil, err
	}
	return places.Hold(ctx, who, true)
}

// workBeside returns the work of a sandbox with git in a companion. leave is called at its end.
func workBeside(s *Sandboxes, of View, c *companion, leave func()) *Work {
	full := func() bool {
		full, err := s.host.Disks.Full(of.box())
		return err == nil && full
	}
	git := insideGit{record: of.Sandbox, place: cmp.Or(of.Place, cove.Workspace), sandbox: c, clock: s.o.Clock,
		env: c.env, full: full}
	return &Work{ID: of.ID, Record: of.Sandbox, audit: s.Auditor, git: git, close: func() { c.close(); leave() }}
}

// Work is access to a sandbox's repository for bringing its work to the host. Git runs inside, or beside the sandbox
// for a repository that stays outside, and its output is the sandbox's word. Close must be called.
type Work struct {
	ID     cove.SandboxID
	Record store.Sandbox

	audit store.Auditor
	git   workGit
	close func()
}

// Audit records an action on the work.
func (w *Work) Audit(ctx context.Context, who cove.Principal, action, detail string, err error) {
	r := auditRecord(action, w.ID, w.Record.Name+": "+detail, err)
	if cove.ErrorCode(err) == cove.Forbidden {
		r.Verdict = "deny"
	}
	w.audit.Audit(context.WithoutCancel(ctx), who, r)
}

// Close releases the sandbox.
func (w *Work) Close() { w.close() }

// snapshot commits uncommitted work with an index of its own, so that it disturbs no user of the repository. The copy
// of the index keeps its time: git reads a file again that has changed in the second of that time. When everything is
// committed, the ref is deleted.
const snapshot = `ref=$1
real=$(git rev-parse --git-path index) && dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
if [ -f "$real" ]; then cp -p "$real" "$dir/index" || exit 1; fi
export GIT_INDEX_FILE="$dir/index"
git add --all || exit 1
tree=$(git write-tree) || exit 1
head=$(git rev-parse --quiet --verify 'HEAD^{commit}') || head=
if [ -n "$head" ]; then was=$(git rev-parse 'HEAD^{tree}') || exit 1; else was=$(git mktree </dev/null) || exit 1; fi
if [ "$tree" = "$was" ]; then
	git update-ref -d "$ref"
	exit
fi
commit=$(git commit-tree ${head:+-p "$head"} -m 'Work that is not committed' "$tree") && git update-ref "$ref" "$commit"
`

// patience is how long git inside may take for its part.
const patience = 10 * time.Minute

// Snapshot commits uncommitted work, and points ref to it for Import. Errors: RuntimeMissing without git, StorageFull,
// Conflict with git's message about a repository that it cannot read.
func (w *Work) Snapshot(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := w.git.Snapshot(ctx, ref)
	if err != nil && ctx.Err() != nil {
		return cove.Errorf(cove.Canceled, "the work of the sandbox %s was being looked at: %w", w.Record.Name, ctx.Err())
	}
	return err
}

// Connect starts "git upload-pack" on the sandbox's repository. With asIs it sends whole objects, without deltas.
func (w *Work) Connect(ctx context.Context, asIs bool) (*WorkStream, error) {
	p, done, err := w.git.Send(ctx, asIs)
	if err != nil {
		return nil, err
	}
	s := &WorkStream{p: p, done: done}
	s.reading.Go(func() { io.Copy(io.Discard, p.Stderr()) })
	return s, nil
}

// insideGit is the git of a sandbox's own image.
type insideGit struct {
	record  store.Sandbox
	place   string // of the checkout, inside
	sandbox engine.Sandbox
	clock   clock.Clock
	env     []string
	full    func() bool // the disk of the checkout is: git does not always say so
}

// Snapshot implements workGit.
func (g insideGit) Snapshot(ctx context.Context, ref string) error {
	who := []string{"GIT_AUTHOR_NAME=Cove", "GIT_AUTHOR_EMAIL=cove@localhost", "GIT_COMMITTER_NAME=Cove",
		"GIT_COMMITTER_EMAIL=cove@localhost"}
	p, err := g.start(ctx, who, "sh", "-c", snapshot, "sh", ref)
	if err != nil {
		return err
	}
	var said tail
	o, err := p.Attend(ctx, process.Attendance{Stdout: &said, Stderr: &said})
	switch {
	case err != nil:
		return err
	case o.Lost != nil:
		return cove.Errorf(cove.Conflict, "the sandbox %s does not run any more: %w", g.record.Name, o.Lost)
	case o.Code == 127:
		return noGit(g.record)
	case o.Code != 0:
		e := cove.Errorf(cove.Conflict, "git in the sandbox %s cannot say what has changed: %s", g.record.Name, said.text()).
			WithHint("look at it inside: \"git status\"")
		if hostgit.CodeOf(said.text()) == cove.StorageFull || g.full() {
			e = e.WithHint("free some space on the disk of this machine, or remove something in the sandbox: cove attach %s",
				g.record.Name)
			e.Code = cove.StorageFull
		}
		return e
	}
	return nil
}

func noGit(record store.Sandbox) error {
	return cove.Errorf(cove.RuntimeMissing, "there is no git in the image of the sandbox %s", record.Name).
		WithHint("use an image with git; the files are in %s while it runs", record.Spec.Directory)
}

// Send implements workGit.
func (g insideGit) Send(ctx context.Context, asIs bool) (*process.Process, func(), error) {
	args := []string{"git", "upload-pack", "--strict", g.place + "/.git"}
	if asIs {
		args = slices.Insert(args, 1, "-c", "pack.depth=0")
	}
	p, err := g.start(ctx, nil, args...)
	return p, func() {}, err
}

func (g insideGit) start(ctx context.Context, env []string, args ...string) (*process.Process, error) {
	spec := guest.ProcessSpec{Args: args, Env: rootfs.LastWins(append(append([]string(nil), g.env...), env...)),
		Dir: g.place, Stdin: true}
	p, err := process.Start(ctx, g.sandbox, g.clock, spec)
	if err == nil {
		return p, nil
	}
	if err = startFailure(spec, err); cove.ErrorCode(err) == cove.RuntimeMissing {
		return nil, noGit(g.record)
	}
	return nil, err
}

// WorkStream is a conversation with git in a sandbox.
type WorkStream struct {
	p       *process.Process
	done    func()
	reading sync.WaitGroup
	once    sync.Once
}

func (s *WorkStream) Read(b []byte) (int, error) { return s.p.Stdout().Read(b) }

func (s *WorkStream) Write(b []byte) (int, error) { return s.p.Stdin().Write(b) }

// CloseWrite ends git's input.
func (s *WorkStream) CloseWrite() error { return s.p.Stdin().Close() }

// Close ends git, if it has not ended.
func (s *WorkStream) Close() error {
	s.once.Do(func() {
		if !s.p.Ended() {
			s.p.Kill()                           // it has ended, or its sandbox has
			go io.Copy(io.Discard, s.p.Stdout()) // what comes until it has ended
		}
		s.reading.Wait()
		s.done()
	})
	return nil
}
