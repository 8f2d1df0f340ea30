//go:build linux

package gitservice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/lent"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Places inside a companion.
const (
	gitDir  = "/git" // directly below /: what the repository borrows is found from there
	objects = "/objects"
)

const (
	idleTime    = 2 * time.Minute // after which a companion ends
	endPatience = 2 * time.Second // between asking git to end and ending it
	maxAnswer   = 64 << 20        // bytes of what git answers Cove itself
)

// Route is the egress route of a companion. The gateway's is one.
type Route interface {
	provision.Route
	Env() map[string]string
}

// Able reports whether sandboxes of an engine can be companions: they have mounts
// of the host with their owners, and a socket that the sandbox calls.
func Able(c engine.Capabilities) error {
	for _, need := range []struct {
		has  bool
		name string
	}{{c.LateMount, "late_mount"}, {c.MountOwners, "mount_owners"}, {c.FileSockets, "file_sockets"}} {
		if !need.has {
			return cove.Errorf(cove.Unsupported, "git cannot run beside the sandbox on this engine (%s): %s",
				need.name, c.Missing[need.name]).
				WithHint("run \"cove doctor\", or leave --worktree out")
		}
	}
	return nil
}

// Options configure the git of one sandbox.
type Options struct {
	Engine    engine.Engine // one that Able accepts
	Root      engine.Rootfs // of MakeRoot
	Limits    cove.Limits   // zero is enough for most
	Workspace workspace.Workspace
	// Dir is for what Cove writes for the git of this sandbox. It is kept as long
	// as the sandbox, and nothing in it belongs to another sandbox.
	Dir string
	Git *hostgit.Git
	// OpenRoute opens an egress route under the sandbox's policy; nil is no network.
	OpenRoute func(id cove.SandboxID) (Route, error)
	Force     bool // its branch may be pushed with force
	// Audit receives each command that was refused, failed or changes something; err says why it was refused or failed.
	Audit func(args []string, err error)
	// NewMeter returns what counts the CPU time of a companion, each time that it is called.
	NewMeter func() func(context.Context, engine.Sandbox)
	Guest    string // the cove-guest binary
	Clock    clock.Clock
	Log      *slog.Logger
}

// companion runs git for one sandbox.
type companion struct {
	o      Options
	person *person // nil when the repository is the workspace's own
	edits  edits

	snapshot sync.Mutex // one is made at a time

	mu     sync.Mutex
	boxes  map[bool]*box // with a network or without
	tags   []string
	known  bool  // tags are
	older  *bool // git has no "bisect" of its own; nil while that is unknown
	closed bool
	calls  sync.WaitGroup
}

func (c *companion) in(name string) string { return filepath.Join(c.o.Dir, name) }

// Close ends what runs, and the companions.
func (c *companion) Close() error {
	c.mu.Lock()
	c.closed = true
	boxes := c.boxes
	c.boxes = nil
	c.mu.Unlock()
	var errs []error
	for _, b := range boxes {
		errs = append(errs, b.close())
	}
	c.calls.Wait()
	return errors.Join(errs...)
}

// Run implements command.Runner.
func (c *companion) Run(ctx context.Context, r command.Run) (exit int, err error) {
	b, leave, err := c.enter(ctx, r.Effect == command.Remote)
	if err != nil {
		return 0, err
	}
	defer leave()
	if r.Args, err = c.bisecting(ctx, b, r); err != nil {
		return 0, err
	}
	if r.Effect == command.Remote {
		defer func() {
			c.mu.Lock()
			c.known = false
			c.mu.Unlock()
		}()
	}
	if c.person == nil {
		return b.run(ctx, r)
	}
	if err := c.person.bring(ctx, b); err != nil {
		return 0, err
	}
	if err := c.person.see(ctx, b, r.Objects); err != nil {
		return 0, err
	}
	exit, err = b.run(ctx, r)
	if r.Effect != command.Reads {
		// Also after a command that was broken off: it may have committed.
		err = errors.Join(err, c.person.take(context.WithoutCancel(ctx), b))
	}
	return exit, err
}

// maxTerms is how much of the file with the words of a bisection is read.
const maxTerms = 1 << 10

// terms returns the words for good and bad that the running bisection of the worktree has.
func (c *companion) terms() []string {
	w := c.o.Workspace
	f, err := os.OpenFile(filepath.Join(w.Hidden, "worktrees", w.Worktree, "BISECT_TERMS"),
		os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil // there is none, or its words are git's
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTerms))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// bisecting returns the arguments of a command as the companion's git takes them. Before 2.40 "git bisect" is a shell
// script, which a companion cannot run, around a helper, which it can.
func (c *companion) bisecting(ctx context.Context, b *box, r command.Run) ([]string, error) {
	i := slices.Index(r.Args, "bisect")
	if i < 0 || i+1 == len(r.Args) || strings.Fields(r.Verb)[0] != "bisect" {
		return r.Args, nil
	}
	c.mu.Lock()
	older := c.older
	c.mu.Unlock()
	if older == nil {
		said, err := b.answer(ctx, nil, "version")
		if err != nil {
			return nil, err
		}
		var major, minor int
		if _, err := fmt.Sscanf(string(said), "git version %d.%d", &major, &minor); err != nil {
			return nil, fmt.Errorf("git says that it is %.100q: %w", said, err)
		}
		is := major < 2 || major == 2 && minor < 40
		c.mu.Lock()
		c.older, older = &is, &is
		c.mu.Unlock()
	}
	if !*older {
		return r.Args, nil
	}
	helper := []string{"bisect--helper"}
	if !slices.Contains([]string{"start", "skip", "next", "reset", "log", "terms"}, r.Args[i+1]) {
		helper = append(helper, "state") // of a commit: good, bad, or what they are called
	}
	return slices.Concat(r.Args[:i], helper, r.Args[i+1:]), nil
}

// enter returns the companion with a network, or the one without, and keeps it from ending.
func (c *companion) enter(ctx context.Context, online bool) (*box, func(), error) {
	if online && c.o.OpenRoute == nil {
		return nil, nil, cove.Errorf(cove.Forbidden, "this sandbox has no network to reach the remote by").
			WithHint("its repository has no remote, or it was made without a network")
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, nil, cove.Errorf(cove.Unavailable, "the sandbox has ended")
	}
	b := c.boxes[online]
	if b == nil {
		b = &box{c: c, online: online}
		c.boxes[online] = b
	}
	c.calls.Add(1)
	c.mu.Unlock()
	if err := b.begin(ctx); err != nil {
		c.calls.Done()
		return nil, nil, err
	}
	return b, func() { b.end(); c.calls.Done() }, nil
}

// box is one companion, which is started when it is needed.
type box struct {
	c      *companion
	online bool

	mu      sync.Mutex
	job     *job.Job // nil while there is none
	count   func(context.Context, engine.Sandbox)
	route   Route
	editors net.Listener
	editing sync.WaitGroup // who serves editors
	env     []string
	users   int
	timer   *clock.Timer
}

// begin makes sure that it runs, and counts a user.
func (b *box) begin(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.job != nil {
		select {
		case <-b.job.Done():
			b.stop()
		default:
		}
	}
	if b.job == nil {
		if err := b.start(ctx); err != nil {
			b.stop()
			return err
		}
	}
	b.users++
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	return nil
}

func (b *box) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 && b.job != nil {
		b.count(context.Background(), b.job)
		b.timer = b.c.o.Clock.AfterFunc(idleTime, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.users == 0 {
				b.stop()
			}
		})
	}
}

func (b *box) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stop()
}

// stop ends it. mu must be held.
func (b *box) stop() error {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	var err error
	if b.job != nil {
		b.count(context.Background(), b.job)
		err = b.job.Close()
	}
	if b.editors != nil {
		back := lent.Take(b.editors.(syscall.Conn)) // PID 1 has it, too
		back.End()
		b.editors.Close()
		b.editing.Wait()
		back.Free()
	}
	if b.route != nil {
		b.route.Close()
	}
	b.job, b.editors, b.route = nil, nil, nil
	return err
}

// start makes it. mu must be held.
func (b *box) start(ctx context.Context) error {
	o := b.c.o
	binding, err := b.c.binding()
	if err != nil {
		binding.Close()
		return err
	}
	plan := provision.Plan{Rootfs: o.Root, Shape: cove.Shape{Limits: o.Limits, User: cove.AgentUser}, Binding: binding}
	var route Route
	if b.online {
		plan.Network = cove.NetworkLimited
		plan.OpenRoute = func(id cove.SandboxID) (_ provision.Route, err error) {
			route, err = o.OpenRoute(id)
			return route, err
		}
	}
	j, err := job.Open(ctx, o.Engine, o.Clock, plan)
	if err != nil {
		return err
	}
	b.job, b.route, b.count = j, route, o.NewMeter()
	b.editors, err = net.FileListener(j.Sockets[0])
	j.Sockets[0].Close()
	if err != nil {
		return err
	}
	var env map[string]string
	if route != nil {
		env = route.Env()
	}
	ln := b.editors
	b.editing.Go(func() { b.c.edits.serve(ln) })
	b.env = b.c.environment(env)
	return nil
}

// binding returns the mounts and files of every companion. The caller closes it, also on error.
func (c *companion) binding() (b engine.Binding, err error) {
	b = engine.Binding{Hostname: "git", Listeners: []guest.Listen{{Network: "tcp4", Address: editAddress}}}
	w, own := c.o.Workspace, func(name string) hostpath.Own { return hostpath.Own{Dir: c.o.Dir, Name: name} }
	type attached struct {
		own hostpath.Own
		as  engine.Attachment
	}
	all := []attached{{w.Own(w.Directory), engine.Attachment{Target: cove.Workspace, NoExec: true, NoFollow: true}}}
	if c.person != nil {
		all = append(all, attached{own("repository"), engine.Attachment{Target: gitDir, NoExec: true}})
		// A companion is git, on a part of a repository; what decides what git executes is covered below.
		b.Mounts, b.Allow = c.person.mounts(), cove.MountAllow{Git: true, Hooks: true}
	} else {
		all = append(all, attached{w.Own(w.Hidden), engine.Attachment{Target: gitDir, NoExec: true}})
		if w.Borrowed != "" {
			all = append(all, attached{w.Own(w.Borrowed), engine.Attachment{Target: workspace.BorrowedPlace, ReadOnly: true,
				NoExec: true}})
		}
	}
	all = append(all, attached{own("empty"), engine.Attachment{Target: gitDir + "/hooks", ReadOnly: true, NoExec: true}})
	for _, a := range all {
		if err := b.Attach(a.own, a.as); err != nil {
			return b, err
		}
	}
	// Files that git outside takes for its configuration, or finds the repository by, cannot be written inside.
	admin := gitDir + "/worktrees/" + w.Worktree
	for name, target := range map[string]string{
		"config": gitDir + "/config", "commondir": admin + "/commondir", "gitdir": admin + "/gitdir",
		"config.worktree": admin + "/config.worktree",
	} {
		if err := b.Show(own(name), engine.File{Target: target}); err != nil {
			return b, err
		}
	}
	return b, nil
}

// environment is that of every git in a companion: Cove's, as on the host, and what is different here.
func (c *companion) environment(route map[string]string) []string {
	settings := []hostgit.Setting{
		{Key: "core.editor", Value: editorProgram}, {Key: "color.ui", Value: "false"}, {Key: "safe.directory", Value: "*"},
		{Key: "core.bigFileThreshold", Value: "512m"}, {Key: "submodule.recurse", Value: "false"},
		{Key: "protocol.allow", Value: "never"},
		{Key: "protocol.https.allow", Value: "always"}, {Key: "diff.ignoreSubmodules", Value: "dirty"},
		{Key: "core.untrackedCache", Value: "false"},
		{Key: "advice.detachedHead", Value: "true"},
	}
	run := hostgit.Run{}
	if route != nil {
		run.Transport = []string{"https"}
		settings = append(settings, hostgit.Setting{Key: "http.proxy", Value: route["HTTPS_PROXY"]},
			hostgit.Setting{Key: "http.sslCAInfo", Value: route["GIT_SSL_CAINFO"]})
	}
	run.Settings = settings
	env := append(rootfs.Env(cove.AgentUser), run.Environment("/usr/bin")...)
	for _, unset := range []string{"GIT_EDITOR", "GIT_PAGER", "GIT_ADVICE", "GIT_MERGE_AUTOEDIT", "TZ",
		"GIT_OPTIONAL_LOCKS", "GIT_GRAFT_FILE", "PATH"} {
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, unset+"=") })
	}
	for k, v := range route {
		env = append(env, k+"="+v)
	}
	return append(env, "PATH=/usr/bin", "GIT_DIR="+gitDir+"/worktrees/"+c.o.Workspace.Worktree,
		"GIT_WORK_TREE="+cove.Workspace, "GIT_SEQUENCE_EDITOR=:", "TERM=dumb")
}

// with adds settings to an environment that has some.
func with(env []string, more [][2]string) []string {
	if len(more) == 0 {
		return env
	}
	const count = "GIT_CONFIG_COUNT="
	i := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, count) })
	n := atoi(strings.TrimPrefix(env[i], count))
	env = slices.Clone(env)
	env[i] = count + itoa(n+len(more))
	for k, kv := range more {
		env = append(env, "GIT_CONFIG_KEY_"+itoa(n+k)+"="+kv[0], "GIT_CONFIG_VALUE_"+itoa(n+k)+"="+kv[1])
	}
	return env
}

// run runs a requested command.
func (b *box) run(ctx context.Context, r command.Run) (int, error) {
	env := with(b.env, slices.Concat(r.Settings, r.Config))
	env = append(env, r.Env...)
	if r.Edit != nil {
		token, done := b.c.edits.expect(ctx, r.Edit)
		defer done()
		env = append(env, wire.EditVariable+"="+token)
	}
	return b.process(ctx, guest.ProcessSpec{Args: append([]string{gitProgram}, r.Args...), Env: env, Dir: r.Dir,
		Stdin: r.Stdin != nil}, r.Stdin, r.Stdout, r.Stderr)
}

// answer runs a command of Cove's own and returns what it says.
func (b *box) answer(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	return b.answerWith(ctx, nil, stdin, args...)
}

// answerWith does so with more in the environment.
func (b *box) answerWith(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	out, said := &limited{left: maxAnswer}, &limited{left: 4 << 10}
	spec := guest.ProcessSpec{Args: append([]string{gitProgram}, args...), Env: slices.Concat(b.env, env),
		Dir: cove.Workspace, Stdin: stdin != nil}
	exit, err := b.process(ctx, spec, stdin, out, said)
	if err == nil && exit != 0 {
		err = &exitError{exit, strings.TrimSpace(said.String())}
	}
	return out.Bytes(), err
}

// exitError is why git failed that Cove itself ran.
type exitError struct {
	code int
	said string
}

func (e *exitError) Error() string { return e.said }

// limited keeps the beginning of what is written to it; too much is an error where nothing may be missing.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.Buffer.Write(p[:n])
	return len(p), nil
}

// begun starts a process.
func (b *box) begun(ctx context.Context, spec guest.ProcessSpec) (*process.Process, error) {
	b.mu.Lock()
	j := b.job
	b.mu.Unlock()
	if j == nil {
		return nil, cove.Errorf(cove.Unavailable, "git was ended")
	}
	p, err := j.Start(ctx, spec)
	var failure *guest.Failure
	// git is there: it is about the directory
	if errors.As(err, &failure) && failure.Kind != guest.FailNoProcess && failure.Kind != guest.FailState {
		return nil, cove.Errorf(cove.NotFound, "cannot change to '%s': %s", spec.Dir, failure.Message)
	}
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "git cannot be started: %w", err)
	}
	return p, nil
}

// process runs one process and passes its streams on. The end of ctx ends it: git is
// asked first, so that it takes its locks away.
func (b *box) process(
	ctx context.Context, spec guest.ProcessSpec, stdin []byte, stdout, stderr io.Writer,
) (int, error) {
	p, err := b.begun(ctx, spec)
	if err != nil {
		return 0, err
	}
	a := process.Attendance{Stdout: stdout, Stderr: stderr, Ask: []syscall.Signal{syscall.SIGTERM},
		Patience: endPatience, Own: true}
	if stdin != nil {
		a.Stdin = bytes.NewReader(stdin)
	}
	o, err := p.Attend(ctx, a)
	if err != nil {
		return 0, err
	}
	if o.Lost != nil {
		return 0, cove.Errorf(cove.Unavailable, "git was ended: %w", o.Lost)
	}
	return o.Code, nil
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// person is a person's own repository, of which a sandbox sees some branches, and has one.
type person struct {
	c   *companion
	dir string // its git directory, on the host

	mu     sync.Mutex        // one command is brought in, or taken back, at a time
	shown  map[string]string // refs that were copied, by their names, as they were then
	loaded bool
}
