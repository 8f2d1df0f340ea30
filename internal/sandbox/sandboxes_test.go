package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/test/await"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/secret"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/internal/workspace"
)

var (
	owner = cove.MachineOwner()
	ci    = cove.KeyHolder("ci")
)

// home is what outlives servers: a store, workspaces, a machine, and what is kept of ways out.
type home struct {
	dir        string
	store      store.Store
	host       *fake.Host
	workspaces *workspaces
	ways       *ways
	clock      clock.Clock
	works      sandbox.Works
	idle       sandbox.Idle
	grants     access.Grants
	places     places
}

// places are a principal's: as many at once, with CPU time left or not.
type places struct {
	mu    sync.Mutex
	taken int
	most  int   // 0: no bound
	spent error // of Spare
}

func (p *places) Hold(_ context.Context, _ cove.Principal, already bool) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !already && p.spent != nil {
		return nil, p.spent
	}
	if !already && p.most > 0 && p.taken >= p.most {
		return nil, cove.Errorf(cove.Overloaded, "%d are taken", p.taken)
	}
	p.taken++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
	}), nil
}

func (p *places) set(most int, spent error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most, p.spent = most, spent
}

func (p *places) Charge(ctx context.Context, _ cove.Principal) (charged context.Context, done func()) {
	return ctx, func() {}
}

func (p *places) Spare(context.Context, cove.Principal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spent
}

func newHome(t *testing.T) *home {
	t.Helper()
	return newHomeIn(t, t.TempDir())
}

func newHomeIn(t *testing.T, dir string) *home {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(dir, "cove.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return &home{
		dir: dir, store: st, host: fake.NewHost(), workspaces: &workspaces{dir: dir,
			there: map[cove.SandboxID]workspace.Workspace{}},
		ways:  &ways{open: map[cove.SandboxID]*route{}, kept: map[cove.SandboxID]bool{}},
		clock: clock.Real(),
	}
}

// server is a process of Cove that has the home's sandboxes.
type server struct {
	*sandbox.Sandboxes
	processes *sandbox.Processes
	engines   *engine.Set
	engine    *fake.Engine
	in        *instance.Instance
	once      sync.Once
}

// serve starts a server, without sandboxes yet.
func (h *home) serve(t *testing.T) *server {
	t.Helper()
	in, err := instance.Hold(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	caps := fake.New(fake.Options{}).Capabilities()
	caps.Files, caps.Listeners, caps.Networks = true, true, []cove.NetworkMode{cove.NetworkNone, cove.NetworkLimited}
	s := &server{engine: fake.New(fake.Options{Host: h.host, Capabilities: &caps}), in: in}
	s.engines = engine.NewSet("fake", engine.Source{Name: "fake",
		Open: func() (engine.Engine, error) { return s.engine, nil }})
	s.Sandboxes = sandbox.New(sandbox.Options{
		Places:  &h.places,
		Engines: s.engines,
		Images:  noImages{}, Store: store.NewVault(h.store), Grants: h.grants,
		Clock: h.clock, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	s.processes = sandbox.NewProcesses(s.Sandboxes)
	t.Cleanup(func() { s.end(t) })
	return s
}

// adopt starts a server that has the sandboxes.
func (h *home) adopt(t *testing.T) *server {
	t.Helper()
	s := h.serve(t)
	if err := s.Adopt(t.Context(), h.lasting()); err != nil {
		t.Fatal(err)
	}
	return s
}

// end ends a server; what lasts goes on.
func (s *server) end(t *testing.T) {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		s.in.Release()
	})
}

func (h *home) lasting() sandbox.Host {
	return sandbox.Host{
		Workspaces: h.workspaces, Disks: h.workspaces, Routes: h.ways, Dir: filepath.Join(h.dir, "sandboxes"), Most: 20,
		Works: h.works, Idle: h.idle,
	}
}

// empty reports what is left.
func (h *home) empty(t *testing.T, s *server) {
	t.Helper()
	if all, err := h.store.Sandboxes(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("records are left: %+v, %v", all, err)
	}
	h.clear(t, s)
}

// clear reports what is left beside records.
func (h *home) clear(t *testing.T, s *server) {
	t.Helper()
	if left, _ := h.workspaces.List(t.Context()); len(left) > 0 {
		t.Errorf("workspaces are left: %v", left)
	}
	if live := s.engine.Live(); len(live) > 0 {
		t.Errorf("the engine has %v", live)
	}
	if open, kept := h.ways.left(); len(open)+len(kept) > 0 {
		t.Errorf("ways are left: %v open, %v kept", open, kept)
	}
	if files, _ := filepath.Glob(filepath.Join(h.dir, "sandboxes", "*")); len(files) > 0 {
		t.Errorf("files are left: %v", files)
	}
}

// workspaces keeps workspaces that nobody looks into.
type workspaces struct {
	dir   string
	mu    sync.Mutex
	there map[cove.SandboxID]workspace.Workspace
	kept  []cove.SandboxID
	fail  error // of Create
	await func(context.Context) error
	bad   error // of Remove

	bounds     error           // of Bounds
	device     string          // of every disk
	used       *workspace.Used // what each holds
	unmeasured error           // of Used then
	large      cove.SandboxID  // whose disk takes for ever to measure
	room       hostdisk.Room
	resized    []workspace.Disk
	hidden     string // of those with a repository
}

func (w *workspaces) Create(ctx context.Context, s workspace.Spec,
	progress func(workspace.Step)) (workspace.Workspace, error) {
	progress(workspace.Step{Text: "making it"})
	if w.fail != nil {
		return workspace.Workspace{}, w.fail
	}
	if w.await != nil {
		if err := w.await(ctx); err != nil {
			return workspace.Workspace{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ws := workspace.Workspace{ID: s.ID, Root: w.dir, Directory: filepath.Join(w.dir, string(s.ID), "checkout"),
		Home: filepath.Join(w.dir, string(s.ID), "home")}
	for _, dir := range []string{ws.Directory, ws.Home} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return ws, err
		}
	}
	if s.Repository != nil {
		ws.Hidden = w.hidden
		ws.Checkout = workspace.Checkout{Source: s.Repository.Source, Remote: "https://git.example/o/r",
			Branch: "cove/" + s.Name, From: "main", Base: "1234"}
	}
	if s.Within != "" {
		ws.Directory, ws.Home, ws.Place = "", "", cove.Home+"/"+string(s.ID)
	}
	w.there[s.ID] = ws
	return ws, nil
}

func (w *workspaces) Open(_ context.Context, id cove.SandboxID) (workspace.Workspace, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ws, ok := w.there[id]
	if !ok {
		return ws, cove.Errorf(cove.NotFound, "no workspace %s", id)
	}
	return ws, nil
}

func (w *workspaces) CheckRemove(id cove.SandboxID, keepWork bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.kept, id) && !keepWork {
		return cove.Errorf(cove.Conflict, "the work of %s was kept", id)
	}
	return nil
}

func (w *workspaces) Remove(_ context.Context, id cove.SandboxID, keepWork bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bad != nil {
		return w.bad
	}
	if _, ok := w.there[id]; ok && keepWork {
		w.kept = append(w.kept, id)
	}
	delete(w.there, id)
	return os.RemoveAll(filepath.Join(w.dir, string(id)))
}

func (w *workspaces) List(context.Context) ([]cove.SandboxID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.there)), nil
}

func (w *workspaces) Used(ctx context.Context, id cove.SandboxID) (workspace.Used, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.large == id {
		w.mu.Unlock()
		<-ctx.Done() // it is measured for long
		w.mu.Lock()
		return workspace.Used{}, ctx.Err()
	}
	if w.used != nil {
		return *w.used, w.unmeasured
	}
	return workspace.Used{Bytes: 42}, nil
}

func (w *workspaces) Full(cove.SandboxID) (bool, error) { return false, nil }

func (w *workspaces) Bounds(context.Context) error { return w.bounds }

func (w *workspaces) Uploaded(_ cove.Principal, _ string, f func(int64) error) error { return f(0) }

func (w *workspaces) Resize(_ context.Context, _ cove.SandboxID, to workspace.Disk, runs bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resized = append(w.resized, to); runs && to.Bytes < 1<<30 {
		return cove.Errorf(cove.Conflict, "it is in use")
	}
	return nil
}

func (w *workspaces) Still(_ context.Context, _ cove.SandboxID, _ bool, f func() error) error {
	return f()
}

func (w *workspaces) Device(cove.SandboxID) (string, error) { return w.device, w.bounds }

func (w *workspaces) Free() (hostdisk.Room, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.room, nil
}

// ways opens ways that lead nowhere.
type ways struct {
	mu    sync.Mutex
	open  map[cove.SandboxID]*route
	kept  map[cove.SandboxID]bool
	fail  error // of OpenWay
	serve error // of Serve
}

func (w *ways) RepositoryNetwork(who cove.Principal, of store.SandboxRepository, _ bool) (egress.Network, error) {
	document := &policy.Document{Source: fmt.Sprint("repository:", of.Remote, ",", who.IsOwner())}
	return egress.Network{Mode: cove.NetworkLimited, Policy: []*policy.Document{document}}, nil
}

func (w *ways) OpenRoute(_ cove.Principal, id cove.SandboxID, name string, n egress.Network) (egress.Route, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return nil, w.fail
	}
	if w.open[id] != nil {
		return nil, cove.Errorf(cove.Conflict, "a second way of %s", id)
	}
	w.open[id] = &route{ways: w, id: id, name: name, documents: n.Policy}
	w.kept[id] = true
	return w.open[id], nil
}

func (w *ways) CheckRoute(_ cove.Principal, n egress.Network) error {
	if slices.Contains(n.Providers, "nobody") {
		return cove.Errorf(cove.NotFound, "there is no model provider nobody")
	}
	return nil
}

func (w *ways) OpenBeside(who cove.Principal, id cove.SandboxID, of store.Sandbox,
	n egress.Network) (egress.Route, error) {
	return w.OpenRoute(who, id, of.Name, n)
}

func (w *ways) ForgetRoute(id cove.SandboxID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kept, id)
	return nil
}

func (w *ways) left() (open, kept []cove.SandboxID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.open)), slices.Collect(maps.Keys(w.kept))
}

// policyOf lists the rules of a way's documents, and of those without the source.
func (w *ways) policyOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[cove.SandboxID(id)] == nil {
		return "no way"
	}
	var all []string
	for _, d := range w.open[cove.SandboxID(id)].documents {
		if len(d.Rules) == 0 {
			all = append(all, d.Source)
		}
		for _, r := range d.Rules {
			all = append(all, r.ID)
		}
	}
	return strings.Join(all, " ")
}

// nameOf is what a way calls its sandbox.
func (w *ways) nameOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if route := w.open[cove.SandboxID(id)]; route != nil {
		return route.name
	}
	return ""
}

type route struct {
	ways      *ways
	id        cove.SandboxID
	name      string
	documents []*policy.Document
}

func (w *route) Bind(*engine.Binding, engine.Rootfs) error { return nil }
func (w *route) Env() map[string]string {
	return map[string]string{"WAY": w.ways.nameOf(string(w.id))}
}
func (w *route) Serve(sockets []*os.File) error { return w.ways.serve }
func (w *route) Extend(more ...*policy.Document) (int, error) {
	w.ways.mu.Lock()
	defer w.ways.mu.Unlock()
	w.documents = append(slices.Clip(w.documents), more...)
	return 3, nil
}
func (w *route) Replace(all ...*policy.Document) (int, error) {
	w.ways.mu.Lock()
	defer w.ways.mu.Unlock()
	w.documents = all
	return 0, nil
}
func (w *route) Certificate() []byte                       { return []byte("certificate of " + w.id) }
func (w *route) Holds() ([]approval.Hold, <-chan struct{}) { return []approval.Hold{{ID: "ho_1"}}, nil }
func (w *route) Denied() []egress.Denial                   { return nil }
func (w *route) Rename(name string) {
	w.ways.mu.Lock()
	defer w.ways.mu.Unlock()
	w.name = name
}
func (w *route) Models() []model.ProviderUsage { return nil }

func (w *route) Providers() egress.Providers { return nil }

// known is a key that ways know.
var known, _ = redact.New(secret.New("the key of it"))

func (w *route) Concealed(from io.Reader) io.Reader {
	return redact.Follow(from, func() (*redact.Set, error) { return known, nil })
}
func (w *route) EndBy(time.Time) {}
func (w *route) Shut()           {}
func (w *route) Close() {
	w.ways.mu.Lock()
	defer w.ways.mu.Unlock()
	if w.ways.open[w.id] == w {
		delete(w.ways.open, w.id)
	}
}

// make makes a sandbox of the machine owner's.
func (s *server) make(t *testing.T, q sandbox.Request) view {
	t.Helper()
	return s.makeFor(t, owner, q)
}

// view is a sandbox with its ids as text, as callers write them.
type view struct {
	sandbox.View
	ID, Within string
}

func viewOf(v sandbox.View) view { return view{v, string(v.ID), string(v.Within)} }

// makeFor makes a sandbox for a principal.
func (s *server) makeFor(t *testing.T, who cove.Principal, q sandbox.Request) view {
	t.Helper()
	made, err := s.Create(t.Context(), who, q, nil)
	if err != nil {
		t.Fatal(err)
	}
	return viewOf(made)
}

// run runs a shell script inside and returns what it prints.
func (s *server) run(t *testing.T, ref, script string) string {
	t.Helper()
	in, err := s.Enter(t.Context(), owner, ref)
	if err != nil {
		t.Fatal(err)
	}
	p, err := in.Guest.Guest().Start(t.Context(), guest.ProcessSpec{Args: []string{"sh", "-c", script}, Env: in.Env,
		Dir: "/tmp", StdoutLimit: 1 << 10, StderrLimit: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 1<<10)
	n, _ := p.Stdout().Read(out)
	p.Wait(t.Context())
	return string(out[:n])
}

// state is what a sandbox is, and why.
func (s *server) state(t *testing.T, ref string) (cove.State, string) {
	t.Helper()
	b, err := s.Find(t.Context(), owner, ref)
	if err != nil {
		t.Fatal(err)
	}
	return b.State, b.Reason
}

func (s *server) wantState(t *testing.T, ref string, want cove.State) {
	t.Helper()
	if got, why := s.state(t, ref); got != want {
		t.Errorf("it is %s (%s), want %s", got, why, want)
	}
}

// fails returns the error of a call that has another value too.
func fails[T any](_ T, err error) error { return err }

func wantCode(t *testing.T, doing string, err error, code cove.Code) {
	t.Helper()
	if cove.ErrorCode(err) != code {
		t.Errorf("%s: %v, want %s", doing, err, code)
	}
}

func TestLastingLife(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	made := s.make(t, sandbox.Request{
		Name: "one", Repository: &workspace.Repository{Source: "o/r"},
		Spec: cove.Spec{WorkDir: "sub", Env: map[string]string{"MINE": "yes"}, Labels: map[string]string{"k": "v"}},
	})
	if made.State != "running" || made.Name != "one" || made.Spec.WorkDir != "/workspace/sub" ||
		made.Spec.Mode != cove.NetworkLimited || made.Spec.Repository == nil || made.Spec.Repository.Branch != "cove/one" {
		t.Errorf("made is %+v", made)
	}
	if got := s.run(t, "one", "echo $MINE $WAY $GIT_TERMINAL_PROMPT $HOME"); got != "yes one 0 /home/cove\n" {
		t.Errorf("its environment says %q", got)
	}
	if got := h.ways.policyOf(made.ID); got != "repository:https://git.example/o/r,true" {
		t.Errorf("its policy is %q", got)
	}
	b := s.engine.Sandbox(cove.SandboxID(made.ID)).Binding()
	if len(b.Mounts) != 0 || len(b.Attachments) != 2 || b.Attachments[0].Target != cove.Workspace ||
		b.Attachments[1].Target != cove.Home || b.Hostname != "one" || len(b.Files) != 1 {
		t.Errorf("it is bound to %+v", b)
	}
	if found, err := s.Find(t.Context(), owner, "one"); err != nil || found.Disk.Bytes != 42 {
		t.Errorf("found is %+v, %v", found, err)
	}

	if _, err := s.Pause(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	s.wantState(t, "one", cove.StatePaused)
	if !s.engine.Sandbox(cove.SandboxID(made.ID)).Paused() {
		t.Error("it is paused in the record alone")
	}
	_, err := s.Enter(t.Context(), owner, "one")
	wantCode(t, "entering one that is paused", err, cove.Conflict)
	_, err = s.Start(t.Context(), owner, "one")
	wantCode(t, "starting one that is paused", err, cove.Conflict)
	if _, err := s.Resume(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	s.run(t, "one", "echo on")

	if _, err := s.Stop(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	s.wantState(t, "one", cove.StateStopped)
	if live := s.engine.Live(); len(live) > 0 {
		t.Errorf("stopped, the engine has %v", live)
	}
	for doing, f := range map[string]func(context.Context, cove.Principal, string) (sandbox.View, error){"pause": s.Pause,
		"resume": s.Resume} {
		_, err := f(t.Context(), owner, "one")
		wantCode(t, doing+" one that is stopped", err, cove.Conflict)
	}
	for range 2 { // the second time it runs already
		if _, err := s.Start(t.Context(), owner, "one"); err != nil {
			t.Fatal(err)
		}
	}
	s.wantState(t, "one", cove.StateRunning)
	if renamed, err := s.Change(t.Context(), owner, "one", sandbox.Change{Name: "two"}); err != nil ||
		renamed.Name != "two" {
		t.Errorf("renamed is %+v, %v", renamed, err)
	}
	if got := s.run(t, "two", "echo $WAY"); got != "one\n" { // as it was when it began
		t.Errorf("its way is of %q", got)
	}
	if got := h.ways.nameOf(made.ID); got != "two" {
		t.Errorf("its way is called %q now", got)
	}
	if _, err := s.Destroy(t.Context(), owner, "two", false); err != nil {
		t.Fatal(err)
	}
	h.empty(t, s)
	page, err := h.store.Audit(t.Context(), store.AuditQuery{Object: made.ID, Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, r := range slices.Backward(page.Records) {
		done = append(done, strings.TrimPrefix(r.Action, "sandbox-")+" "+r.Verdict)
	}
	want := "create ok, pause ok, start error, resume ok, stop ok, start ok, rename ok, destroy ok"
	if got := strings.Join(slices.DeleteFunc(done, func(s string) bool {
		return s == "pause error" ||
			s == "resume error"
	}), ", "); got != want {
		t.Errorf("recorded is %s, want %s", got, want)
	}
}

// TestLastingRollback: whatever fails while a sandbox is made, nothing of it is left.
func TestLastingRollback(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fault fake.Faults
		home  func(*home)
		files []provision.File
	}{
		"the workspace":               {home: func(h *home) { h.workspaces.fail = broken }},
		"preparing":                   {fault: fake.Faults{Prepare: broken}},
		"opening the way":             {home: func(h *home) { h.ways.fail = broken }},
		"binding":                     {fault: fake.Faults{Bind: broken}},
		"serving the way":             {home: func(h *home) { h.ways.serve = broken }},
		"its files, which do not fit": {files: []provision.File{{Path: "f", Data: make([]byte, 2<<20)}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			s := h.adopt(t)
			s.engine.Inject(c.fault)
			if c.home != nil {
				c.home(h)
			}
			q := sandbox.Request{Name: "one", Repository: &workspace.Repository{Source: "o/r"}}
			q.Files, q.Limits.Disk = c.files, 1<<20
			if made, err := s.Create(t.Context(), owner, q, nil); err == nil {
				t.Errorf("made is %+v", made)
			}
			h.empty(t, s)
		})
	}
}

// TestLastingGivenUp: who leaves while a sandbox is made leaves nothing.
func TestLastingGivenUp(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	ctx, cancel := context.WithCancel(t.Context())
	h.workspaces.await = func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	if _, err := s.Create(ctx, owner, sandbox.Request{}, nil); err == nil {
		t.Error("it was made")
	}
	h.empty(t, s)
}

// TestLastingShutdown: a server that ends does not wait for what is being made.
func TestLastingShutdown(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	begun := make(chan struct{})
	h.workspaces.await = func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	made := make(chan error, 1)
	go func() {
		_, err := s.Create(context.Background(), owner, sandbox.Request{}, nil)
		made <- err
	}()
	<-begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err == nil {
		t.Error("it was made")
	}
	h.empty(t, s)
}

// TestLastingCannotBeRemoved: what cannot be removed is listed, with why, and can be destroyed later.
func TestLastingCannotBeRemoved(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	failed := s.make(t, sandbox.Request{Name: "one"})
	for _, c := range []struct {
		name string
		fail func(error)
	}{
		{"the engine's", func(err error) { s.engine.Inject(fake.Faults{Destroy: err}) }},
		{"the work", func(err error) { h.workspaces.bad = err }},
	} {
		c.fail(errors.New("stuck"))
		if _, err := s.Destroy(t.Context(), owner, "one", false); err == nil {
			t.Errorf("%s: it was destroyed", c.name)
		}
		if state, why := s.state(t, "one"); state != cove.StateFailed || !strings.Contains(why, "stuck") {
			t.Errorf("%s: it is %s: %s", c.name, state, why)
		}
		c.fail(nil)
	}
	again, err := s.Create(t.Context(), owner, sandbox.Request{Name: "one", Ensure: true}, nil)
	if err != nil || again.State != cove.StateRunning || string(again.ID) == failed.ID {
		t.Fatalf("one that is ensured in place of one that could not be removed: %+v, %v", again, err)
	}
	if _, err := s.Destroy(t.Context(), owner, "one", true); err != nil {
		t.Fatal(err)
	}
	if len(h.workspaces.kept) != 1 {
		t.Errorf("the work of %v was kept", h.workspaces.kept)
	}
	h.empty(t, s)
}

// TestLastingFullDisk: what there is no room to record is done all the same, and recorded as soon as there is.
func TestLastingFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real timers; make test runs it")
	}
	full := cove.Errorf(cove.StorageFull, "no space left on device")
	for name, c := range map[string]struct {
		own  bool // what fills the disk is the sandbox's own
		made bool // before the disk is full
		kept int  // workspaces, of which the record has to say that they stay: it waits for room
	}{
		"while it is made":                      {},
		"while it is made, by its files":        {own: true},
		"before it is destroyed":                {made: true},
		"before it is destroyed, work excepted": {made: true, kept: 1},
		"by what is destroyed":                  {own: true, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("mounts a small file system, which needs root")
			}
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
				t.Skipf("cannot mount a tmpfs here: %v", err)
			}
			t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
			h := newHomeIn(t, dir)
			s := h.adopt(t)
			var filler string
			fill := func(id string) {
				if filler = filepath.Join(dir, "filler"); c.own {
					filler = filepath.Join(dir, id, "filler")
				}
				if err := os.MkdirAll(filepath.Dir(filler), 0o700); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
					t.Errorf("the disk is not full: %v", err)
				}
			}

			var err error
			if c.made {
				fill(s.make(t, sandbox.Request{Name: "one"}).ID)
				_, err = s.Destroy(t.Context(), owner, "one", c.kept > 0)
			} else {
				h.workspaces.await = func(context.Context) error {
					all, err := h.store.Sandboxes(t.Context())
					if err != nil || len(all) != 1 {
						t.Errorf("recorded are %+v, %v", all, err)
					}
					fill(string(all[0].ID))
					return full
				}
				_, err = s.Create(t.Context(), owner, sandbox.Request{Name: "one"}, nil)
				h.workspaces.await = nil
			}
			if done := c.made && c.kept == 0; done != (err == nil) || !done && cove.ErrorCode(err) != cove.StorageFull {
				t.Fatalf("error is %v", err)
			}
			if c.kept > 0 {
				h.clear(t, s)
				if state, _ := s.state(t, "one"); state != cove.StateDestroying {
					t.Errorf("it is shown as %s", state)
				}
				_, err := s.Start(t.Context(), owner, "one")
				wantCode(t, "starting what is to be removed", err, cove.Conflict)
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
				await.That(t, "it is removed", func() bool {
					all, err := h.store.Sandboxes(t.Context())
					return err != nil || len(all) == 0
				})
			}
			h.empty(t, s)
			os.Remove(filler)
			if len(h.workspaces.kept) != c.kept {
				t.Errorf("the work of %v was kept", h.workspaces.kept)
			}
			s.make(t, sandbox.Request{Name: "one"})
		})
	}
}

// TestLastingAdoption: the next server has what the last one had, whether it
// closed or not, with its processes and its way out.
func TestLastingAdoption(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	running := s.make(t, sandbox.Request{Name: "running", Repository: &workspace.Repository{Source: "o/r"},
		Spec: cove.Spec{Env: map[string]string{"MINE": "yes"}}})
	change := store.NetworkChange{Allow: []string{"more.test"}}
	if _, err := s.ChangeNetwork(t.Context(), owner, "running", change, false); err != nil {
		t.Fatal(err)
	}
	s.make(t, sandbox.Request{Name: "paused"})
	s.make(t, sandbox.Request{Name: "stopped"})
	if _, err := s.Pause(t.Context(), owner, "paused"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stop(t.Context(), owner, "stopped"); err != nil {
		t.Fatal(err)
	}
	const policyThen = "repository:https://git.example/o/r,true cove policy allow more.test"
	if got := h.ways.policyOf(running.ID); got != policyThen {
		t.Errorf("the policy is %q", got)
	}
	s.end(t)
	if open, _ := h.ways.left(); len(open) > 0 {
		t.Errorf("without a server these have ways out: %v", open)
	}

	s = h.adopt(t)
	s.wantState(t, "running", cove.StateRunning)
	s.wantState(t, "paused", cove.StatePaused)
	s.wantState(t, "stopped", cove.StateStopped)
	if got := s.run(t, "running", "echo $MINE $WAY"); got != "yes running\n" {
		t.Errorf("its environment says %q", got)
	}
	if got := h.ways.policyOf(running.ID); got != policyThen {
		t.Errorf("the policy is %q", got)
	}
	if open, _ := h.ways.left(); len(open) != 1 || string(open[0]) != running.ID {
		t.Errorf("these have ways out: %v", open)
	}
	if _, err := s.Resume(t.Context(), owner, "paused"); err != nil {
		t.Fatal(err)
	}
	s.run(t, "paused", "echo on")
	if _, err := s.Start(t.Context(), owner, "stopped"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"running", "paused", "stopped"} {
		if _, err := s.Destroy(t.Context(), owner, name, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.empty(t, s)
}

// TestChangeNetwork: a sandbox's network is changed at once and for later starts, and what was changed is taken back;
// one without a network has one from its next start on.
func TestChangeNetwork(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	made := s.make(t, sandbox.Request{Name: "one",
		Spec: cove.Spec{Network: &cove.Network{Enabled: true, Allow: []string{"a.test"}}}})
	id := cove.SandboxID(made.ID)
	policyNow := func() string { return h.ways.policyOf(string(id)) }
	first := policyNow()
	change := func(c store.NetworkChange, reset bool, want string) {
		t.Helper()
		if _, err := s.ChangeNetwork(t.Context(), owner, "one", c, reset); err != nil {
			t.Fatal(err)
		}
		if got := policyNow(); got != want {
			t.Errorf("the policy is %q, want %q", got, want)
		}
	}
	change(store.NetworkChange{Deny: []string{"a.test"}}, false, first+" cove policy deny a.test")
	change(store.NetworkChange{Mode: cove.NetworkOpen}, false, first+" cove policy deny a.test cove policy mode")
	v, n, err := s.NetworkOf(t.Context(), owner, "one")
	if err != nil || n.Mode != cove.NetworkOpen || len(v.Spec.Changes) != 2 || v.Spec.Mode != cove.NetworkOpen {
		t.Errorf("shown is %+v of %+v, %v", n, v.Spec, err)
	}
	change(store.NetworkChange{Allow: []string{"b.test"}}, true, first+" cove policy allow b.test")
	change(store.NetworkChange{}, true, first)

	s.make(t, sandbox.Request{Name: "none"})
	_, err = s.ChangeNetwork(t.Context(), owner, "none", store.NetworkChange{Allow: []string{"a.test"}}, false)
	wantCode(t, "adding to nothing", err, cove.Conflict)
	_, err = s.ChangeNetwork(t.Context(), owner, "none", store.NetworkChange{Mode: cove.NetworkLimited}, false)
	wantCode(t, "a network while it runs without", err, cove.Conflict)
	if _, err := s.Stop(t.Context(), owner, "none"); err != nil {
		t.Fatal(err)
	}
	limited := store.NetworkChange{Mode: cove.NetworkLimited, Allow: []string{"a.test"}}
	if _, err := s.ChangeNetwork(t.Context(), owner, "none", limited, false); err != nil {
		t.Fatal(err)
	}
	v, err = s.Start(t.Context(), owner, "none")
	if err != nil || v.Spec.Mode != cove.NetworkLimited {
		t.Errorf("started again it has %q, %v", v.Spec.Mode, err)
	}
	for _, name := range []string{"one", "none"} {
		if _, err := s.Destroy(t.Context(), owner, name, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.empty(t, s)
}

// TestLastingWithoutWay: one whose way cannot be opened again runs on without,
// and is put right by stopping and starting it.
func TestLastingWithoutWay(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	made := s.make(t, sandbox.Request{Name: "one",
		Spec: cove.Spec{Network: &cove.Network{Enabled: true, Allow: []string{"a.test"}}}})
	s.end(t)
	h.ways.fail = errors.New("no way")
	s = h.serve(t)
	if err := s.Adopt(t.Context(), h.lasting()); err == nil || !strings.Contains(err.Error(), "no way") {
		t.Errorf("adopting it: %v", err)
	}
	s.wantState(t, "one", cove.StateRunning)
	h.ways.fail = nil
	if _, err := s.Stop(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	if got := h.ways.policyOf(made.ID); got != "--allow a.test permissions.network" {
		t.Errorf("the policy is %q", got)
	}
}

// TestLastingReboot: after a restart of the machine the list tells the truth, and what ran can be started.
func TestLastingReboot(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "running"})
	s.make(t, sandbox.Request{Name: "paused"})
	if _, err := s.Pause(t.Context(), owner, "paused"); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	h.host.Reboot()
	s = h.adopt(t)
	for _, name := range []string{"running", "paused"} {
		if state, why := s.state(t, name); state != cove.StateStopped || !strings.Contains(why, "while no server ran") {
			t.Errorf("%s is %s: %s", name, state, why)
		}
		if started, err := s.Start(t.Context(), owner, name); err != nil || started.Reason != "" {
			t.Errorf("started: %+v, %v", started, err)
		}
		s.run(t, name, "echo on")
	}
}

// TestLastingCrash: what a server has begun and not ended the next one ends.
func TestLastingCrash(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	made := map[string]cove.SandboxID{}
	for _, name := range []string{"preparing", "ready", "destroying", "kept", "stopped"} {
		made[name] = cove.SandboxID(s.make(t, sandbox.Request{Name: name}).ID)
	}
	s.end(t)
	// As the records would be in the midst of it: the sandboxes themselves run.
	for name, state := range map[string][]cove.State{"destroying": {cove.StateDestroying}, "kept": {cove.StateDestroying},
		"stopped": {cove.StateStopped}} {
		if name == "kept" {
			h.store.ChangeSandbox(t.Context(), made[name], func(b *store.Sandbox) error { b.Spec.KeepWork = true; return nil })
		}
		if err := h.store.MoveSandbox(t.Context(), made[name], cove.StateRunning, state[0], ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"preparing", "ready"} {
		b, err := h.store.Sandbox(t.Context(), made[name])
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(h.store.MoveSandbox(t.Context(), b.ID, cove.StateRunning, cove.StateDestroying, ""),
			h.store.RemoveSandbox(t.Context(), b.ID))
		b.State = cove.State(name)
		if err := errors.Join(err, h.store.AddSandbox(t.Context(), b, store.Room{})); err != nil {
			t.Fatal(err)
		}
	}
	s = h.adopt(t)
	list, err := s.List(t.Context(), owner)
	if err != nil || len(list.Sandboxes) != 1 || list.Sandboxes[0].Name != "stopped" || len(list.Orphans) > 0 {
		t.Errorf("listed are %+v, %v", list, err)
	}
	if left, _ := s.engine.Left(t.Context()); len(left)+len(s.engine.Live()) > 0 {
		t.Errorf("these run: %v, %v", left, s.engine.Live())
	}
	if !slices.Equal(h.workspaces.kept, []cove.SandboxID{made["kept"]}) {
		t.Errorf("the work of %v was kept", h.workspaces.kept)
	}
	if _, err := s.Destroy(t.Context(), owner, "stopped", false); err != nil {
		t.Fatal(err)
	}
	h.empty(t, s)
}

// TestLastingEndsByItself: the record follows.
func TestLastingEndsByItself(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	made := s.make(t, sandbox.Request{Name: "one"})
	if err := s.engine.Sandbox(cove.SandboxID(made.ID)).Kill(); err != nil {
		t.Fatal(err)
	}
	await.That(t, "its end is recorded", func() bool {
		state, why := s.state(t, "one")
		if state == cove.StateStopped && !strings.Contains(why, "PID 1") {
			t.Errorf("why: %s", why)
		}
		return state == cove.StateStopped
	})
	if _, err := s.Start(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	s.run(t, "one", "echo on")
}

// TestLastingOrphans are shown to the machine's owner, and go when asked.
func TestLastingOrphans(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	kept := cove.SandboxID(s.make(t, sandbox.Request{Name: "lost"}).ID)
	s.end(t)
	for _, err := range []error{h.store.MoveSandbox(t.Context(), kept, cove.StateRunning, cove.StateDestroying, ""),
		h.store.RemoveSandbox(t.Context(), kept)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s = h.adopt(t)
	if _, err := s.engines.Get(""); err != nil { // now the engine is in use
		t.Fatal(err)
	}
	if list, err := s.List(t.Context(), owner); err != nil || !slices.Equal(list.Orphans, []string{string(kept)}) {
		t.Errorf("listed are %+v, %v", list, err)
	}
	if list, err := s.List(t.Context(), ci); err != nil || len(list.Orphans) > 0 {
		t.Errorf("others see %+v, %v", list, err)
	}
	wantCode(t, "others removing it", fails(s.Destroy(t.Context(), ci, string(kept), false)), cove.NotFound)
	wantCode(t, "removing none", fails(s.Destroy(t.Context(), owner, string(cove.NewSandboxID()), false)), cove.NotFound)
	if _, err := s.Destroy(t.Context(), owner, string(kept), false); err != nil {
		t.Fatal(err)
	}
	h.empty(t, s)
}

// TestLastingTenancy: others have their own, and find no more.
func TestLastingTenancy(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	mine := s.make(t, sandbox.Request{Name: "same"})
	theirs := s.makeFor(t, ci, sandbox.Request{Name: "same", Repository: &workspace.Repository{Source: "o/r"}})
	if got := h.ways.policyOf(theirs.ID); got != "repository:https://git.example/o/r,false" {
		t.Errorf("theirs is opened as %q", got)
	}
	for who, want := range map[cove.Principal]string{owner: mine.ID, ci: theirs.ID} {
		if got, err := s.Find(t.Context(), who, "same"); err != nil || string(got.ID) != want {
			t.Errorf("%s finds %s, %v; want %s", who.String(), got.ID, err, want)
		}
	}
	if list, err := s.List(t.Context(), ci); err != nil || len(list.Sandboxes) != 1 || list.Sandboxes[0].Owner != ci {
		t.Errorf("others see %+v, %v", list, err)
	}
	if list, err := s.List(t.Context(), owner); err != nil || len(list.Sandboxes) != 2 {
		t.Errorf("the owner sees %+v, %v", list, err)
	}
	_, err := s.Enter(t.Context(), ci, mine.ID)
	wantCode(t, "entering another's", err, cove.NotFound)
	_, err = s.Stop(t.Context(), ci, mine.ID)
	wantCode(t, "stopping another's", err, cove.NotFound)
	wantCode(t, "destroying another's", fails(s.Destroy(t.Context(), ci, mine.ID, false)), cove.NotFound)
	_, err = s.Certificate(t.Context(), ci, mine.ID)
	wantCode(t, "the certificate of another's", err, cove.NotFound)
}

// TestLastingOfAnother: a process that does not have the sandboxes does nothing
// with them, and its reaper leaves them alone.
func TestLastingOfAnother(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	other := h.serve(t)
	if _, err := other.engines.Get(""); err != nil {
		t.Fatal(err)
	}
	reaper := execution.New(execution.Options{
		Engines: other.engines, Store: store.NewVault(h.store), Instance: other.in.ID, RunDir: h.dir, Clock: clock.Real(),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), MaxConcurrent: 1,
	})
	if err := reaper.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := other.Create(t.Context(), owner, sandbox.Request{}, nil)
	wantCode(t, "making one", err, cove.Unavailable)
	_, err = other.Stop(t.Context(), owner, "one")
	wantCode(t, "stopping one", err, cove.Unavailable)
	wantCode(t, "destroying one", fails(other.Destroy(t.Context(), owner, "one", false)), cove.Unavailable)
	if list, err := other.List(t.Context(), owner); err != nil || len(list.Sandboxes) != 1 {
		t.Errorf("listed are %+v, %v", list, err)
	}
	other.end(t)
	s.run(t, "one", "echo on")
}

// TestLastingAtOnce: many are made and removed at the same time.
func TestLastingAtOnce(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			v, err := s.Create(t.Context(), owner, sandbox.Request{}, nil)
			made := viewOf(v)
			if err != nil {
				t.Error(err)
				return
			}
			var same sync.WaitGroup
			for _, f := range []func(context.Context, cove.Principal, string) (sandbox.View, error){s.Stop, s.Start, s.Pause,
				s.Resume, s.Stop} {
				same.Go(func() {
					if _, err := f(t.Context(), owner, made.ID); err != nil && cove.ErrorCode(err) != cove.Conflict {
						t.Error(err)
					}
				})
			}
			same.Wait()
			if _, err := s.Destroy(t.Context(), owner, made.ID, false); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	h.empty(t, s)
}

func TestLastingRefusals(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	for name, q := range map[string]sandbox.Request{
		"a name with capitals":           {Name: "One"},
		"a name like an id":              {Name: "sb-one"},
		"a name that ends in a hyphen":   {Name: "one-"},
		"a mount over the workspace":     {Spec: cove.Spec{Mounts: []cove.Mount{{Source: "/a", Target: "/workspace"}}}},
		"a mount over the home":          {Spec: cove.Spec{Mounts: []cove.Mount{{Source: "/a", Target: "/home"}}}},
		"a mount over the system":        {Spec: cove.Spec{Mounts: []cove.Mount{{Source: "/a", Target: "/etc"}}}},
		"a file above":                   {Files: []provision.File{{Path: "../a"}}},
		"a limit beyond the most":        {Spec: cove.Spec{Shape: cove.Shape{Limits: cove.Limits{Memory: 1 << 50}}}},
		"control characters for commits": {Spec: cove.Spec{Git: &cove.GitIdentity{Name: "a\n[core]"}}},
		"a variable of Cove's":           {Spec: cove.Spec{Env: map[string]string{"A=B": "c"}}},
	} {
		_, err := s.Create(t.Context(), owner, q, nil)
		wantCode(t, name, err, cove.InvalidArgument)
	}
	other := sandbox.Request{Spec: cove.Spec{Shape: cove.Shape{Isolation: cove.IsolationGVisor}}}
	_, err := s.Create(t.Context(), owner, other, nil)
	wantCode(t, "an isolation that the engine lacks", err, cove.Unsupported)
	for i := range 20 {
		s.make(t, sandbox.Request{Name: fmt.Sprint("many-", i)})
	}
	_, err = s.Create(t.Context(), owner, sandbox.Request{}, nil)
	wantCode(t, "one too many", err, cove.Conflict)
	_, err = s.Find(t.Context(), owner, "many-1")
	if err != nil {
		t.Errorf("a whole name: %v", err)
	}
	_, err = s.Find(t.Context(), owner, "man")
	wantCode(t, "the beginning of several", err, cove.Conflict)
	_, err = s.Find(t.Context(), owner, "many-19")
	if err != nil {
		t.Error(err)
	}
	_, err = s.Find(t.Context(), owner, "")
	wantCode(t, "nothing", err, cove.NotFound)
}

type noImages struct{}

func (noImages) Resolve(_ context.Context, ref string) (engine.Rootfs, error) {
	return engine.Rootfs{}, cove.Errorf(cove.ImageMissing, "no image %s", ref)
}

func (noImages) Hold(context.Context, string) (func(), error) { return func() {}, nil }

// TestServicesRefused: where no engine of the machine can have services, a sandbox with some is refused with what is
// lacking, and one without is made.
func TestServicesRefused(t *testing.T) {
	s := newHome(t).adopt(t)
	_, err := s.Create(t.Context(), owner, sandbox.Request{Name: "web",
		Services: []cove.Service{{Name: "db", Image: "postgres:15"}}}, nil)
	wantCode(t, "services", err, cove.Unsupported)
	if err == nil || !strings.Contains(err.Error(), "keeps no changes") {
		t.Errorf("%v", err)
	}
	s.make(t, sandbox.Request{Name: "web"})
}
