package run_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/secret"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/internal/workspace"
	"github.com/cove-sandbox/cove/message"
)

var (
	owner = cove.MachineOwner()
	ci    = cove.KeyHolder("ci")
)

// robot is the agent of the tests: it does what its prompt says, line by line.
// What it waits for are files of its sandbox, which the test writes.
func robot(p *fake.Process) int {
	say := func(m message.Message) {
		m.Version = message.Version
		line, _ := json.Marshal(m)
		fmt.Fprintf(p.Stdout, "%s\n", line)
	}
	steps := bufio.NewScanner(p.Stdin)
	steps.Buffer(nil, 64<<20)
	for steps.Scan() {
		if p.Context.Err() != nil {
			return 1
		}
		word, rest, _ := strings.Cut(steps.Text(), " ")
		switch word {
		case "think":
			say(message.Message{Type: message.TypeThinking, Content: rest, Session: "s1"})
		case "much":
			n, _ := strconv.Atoi(rest)
			say(message.Message{Type: message.TypeToolResult, Call: "c", Tool: "cat", Output: strings.Repeat("x", n)})
		case "flood":
			for p.Context.Err() == nil {
				fmt.Fprintln(p.Stdout, `{"version":1,"type":"thinking","content":"`+strings.Repeat("x", 1<<16)+`"}`)
			}
		case "answer":
			say(message.Message{Type: message.TypeResult, Content: rest})
			say(message.Message{Type: message.TypeUsage, Usage: &message.AgentUsage{InputTokens: 10, OutputTokens: 2, Turns: 1}})
		case "fail":
			say(message.Message{Type: message.TypeResult, Content: rest, IsError: true})
		case "log":
			fmt.Fprintln(p.Stderr, rest)
		case "print":
			fmt.Fprintln(p.Stdout, rest)
		case "write":
			p.WriteFile(rest, []byte("written"))
		case "read":
			b, err := p.ReadFile(rest)
			say(message.Message{Type: message.TypeToolResult, Call: "c", Tool: "read", Output: string(b), IsError: err != nil})
		case "env":
			say(message.Message{Type: message.TypeThinking, Content: p.Getenv(rest)})
		case "wait":
			for p.Context.Err() == nil {
				if _, err := p.ReadFile(rest); err == nil {
					break
				}
				time.Sleep(time.Millisecond) // sleep: it is a program, and a sandbox has no event for a file
			}
		case "exit":
			n, _ := strconv.Atoi(rest)
			return n
		}
	}
	return 0
}

// agents knows the robot.
type agents struct {
	files   []agent.File
	missing error  // why there is no key for the models
	parsed  func() // called after a run's sandbox is made, and before it is recorded; nil: nothing is
}

func (a *agents) Ready(_ context.Context, _ cove.Principal, e fit.Equipment, n *cove.Network) error {
	if e.ProviderIn(n) == "" {
		return nil
	}
	return a.missing
}

func (a *agents) Install(_ context.Context, q fit.Want, progress func(workspace.Step)) (fit.Equipment, error) {
	progress(workspace.Step{Text: "installing " + q.Agent})
	return a.Equip(q, false)
}

func (a *agents) Equip(q fit.Want, missing bool) (fit.Equipment, error) {
	switch q.Agent {
	case "robot", "packed", "keyed", "plain":
	default:
		return fit.Equipment{}, cove.Errorf(cove.NotFound, "there is no agent %q", q.Agent)
	}
	eq := fit.Equipment{
		Agent: q.Agent, Version: "1.2.3", Outfit: agent.Outfit{Env: map[string]string{"ROBOT": "yes"}, Files: a.files},
		Command: func(t agent.Task) (agent.Command, error) {
			if t.Turns > 0 {
				return agent.Command{}, cove.Errorf(cove.Unsupported, "robots count no turns")
			}
			c := agent.Command{Args: []string{"robot"}, Stdin: t.Prompt, Env: map[string]string{"SESSION": t.Session}}
			if t.Instructions != "" {
				c.Files = map[string]string{t.Dir + "/instructions": t.Instructions}
				c.Stdin = "read " + t.Dir + "/instructions\n" + c.Stdin
			}
			return c, nil
		},
		Parser: func(message.AgentUsage) agent.Parser {
			if a.parsed != nil {
				a.parsed()
			}
			return agent.Agent{Title: "Robot", Output: agent.FormatMessages}.NewParser(message.AgentUsage{})
		},
	}
	if q.Agent == "keyed" {
		eq.Provider, eq.Missing = "models", missing
		eq.Network = cove.Network{Enabled: true, Mode: cove.NetworkLimited, Allow: []string{"models.test"},
			Credentials: []string{"models"}}
	}
	if q.Agent == "plain" { // whose answer is what it has printed, once it has ended
		eq.Parser = agent.Agent{Title: "Plain", Output: agent.FormatText}.NewParser
	}
	if q.Agent == "packed" {
		eq.Layers = []cove.Layer{{Name: "packed/1.2.3", Target: "/opt/packed"}}
	}
	return eq, nil
}

// work is what sandboxes have changed, as the test says.
type work struct {
	mu      sync.Mutex
	changes []store.FileChange
	held    func() error // nil: nothing holds a question up
	aside   bool         // there is more than changes
	unknown error        // why that is not known
}

func (w *work) Changes(context.Context, cove.Principal, string) ([]store.FileChange, error) {
	w.mu.Lock()
	changes, held := w.changes, w.held
	w.mu.Unlock()
	if held != nil {
		return nil, held()
	}
	return changes, nil
}

func (w *work) Holds(context.Context, cove.Principal, string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.aside || len(w.changes) > 0, w.unknown
}

// hold has questions for changes call f, which nil ends.
func (w *work) hold(f func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = f
}

func (w *work) Patch(_ context.Context, _ cove.Principal, _ string, out io.Writer) error {
	_, err := io.WriteString(out, "--- a\n+++ b\n")
	return err
}

func (w *work) set(changes ...store.FileChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = changes
}

// lab is what outlives servers.
type lab struct {
	dir     string
	store   store.Store
	host    *fake.Host
	agents  *agents
	work    *work
	held    atomic.Int32           // runs that are counted
	leaves  bool                   // a server leaves before it takes runs up
	stopped bool                   // a server is told to stop before it takes runs up
	flush   atomic.Pointer[func()] // called before the record of an end; nil: nothing is
	// refusals are what providers of models say of the credentials of every sandbox.
	refusals *model.Refusals
	room     run.Bounds // of the files of runs
	bounds   error      // why the kernel cannot bound disks
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	st, err := sqlite.Open(t.Context(), filepath.Join(dir, "cove.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return &lab{dir: dir, store: st, host: fake.NewHost(), agents: &agents{}, work: &work{},
		refusals: &model.Refusals{}}
}

func (l *lab) flushed() {
	if f := l.flush.Load(); f != nil {
		(*f)()
	}
}

// server is a process of Cove that has the lab's sandboxes and runs.
type server struct {
	*run.Runner
	lab       *lab
	sandboxes *sandbox.Sandboxes
	engine    *fake.Engine
	in        *instance.Instance
	once      sync.Once
}

// places let every run begin, and count.
type places struct{ held *atomic.Int32 }

func (places) Spare(context.Context, cove.Principal) error { return nil }

func (places) Charge(ctx context.Context, _ cove.Principal) (charged context.Context, done func()) {
	return ctx, func() {}
}

func (p places) Hold(context.Context, cove.Principal, bool) (func(), error) {
	p.held.Add(1)
	return sync.OnceFunc(func() { p.held.Add(-1) }), nil
}

func (l *lab) serve(t *testing.T) *server {
	t.Helper()
	in, err := instance.Hold(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	caps := fake.New(fake.Options{}).Capabilities()
	caps.Files, caps.Listeners, caps.Networks = true, true, []cove.NetworkMode{cove.NetworkNone, cove.NetworkLimited}
	s := &server{lab: l, engine: fake.New(fake.Options{Host: l.host, Capabilities: &caps,
		Programs: map[string]fake.Program{"robot": robot}}), in: in}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s.sandboxes = sandbox.New(sandbox.Options{
		Places: places{&l.held},
		Engines: engine.NewSet("fake", engine.Source{Name: "fake",
			Open: func() (engine.Engine, error) { return s.engine, nil }}),
		Images: noImages{}, Store: store.NewVault(l.store),
		Clock: clock.Real(), Log: log,
	})
	s.Runner = run.New(run.Options{Sandboxes: s.sandboxes, Processes: sandbox.NewProcesses(s.sandboxes), Agents: l.agents,
		Work: l.work, Places: places{&l.held}, Store: store.NewVault(l.store), Flush: l.flushed, MaxOutput: 16 << 20,
		Bounds: l.room,
		Dir:    filepath.Join(l.dir, "runs"), Clock: clock.Real(), Log: log})
	t.Cleanup(func() { s.end(t) })
	err = s.sandboxes.Adopt(t.Context(), sandbox.Host{
		Workspaces: workspaces{l}, Disks: workspaces{l}, Layers: workspaces{l},
		Routes: ways{l.refusals}, Successor: s,
		Dir: filepath.Join(l.dir, "sandboxes"), Most: 20,
	})
	if l.leaves {
		s.Leave()
	}
	ctx := t.Context()
	if l.stopped {
		stopped, stop := context.WithCancel(ctx)
		stop()
		ctx = stopped
	}
	if err == nil {
		err = s.Recover(ctx)
	}
	if l.leaves || l.stopped {
		err = nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// end ends a server; what lasts goes on.
func (s *server) end(t *testing.T) {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Leave()
		if err := s.sandboxes.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		s.Close()
		if n := s.lab.held.Load(); n != 0 {
			t.Errorf("%d runs are counted after all have been left", n)
		}
		s.in.Release()
	})
}

// ask is a request for the robot: steps are lines of the prompt.
func ask(steps ...string) run.Request {
	return run.Request{Task: agent.Task{Prompt: strings.Join(steps, "\n") + "\n"}, Agent: "robot",
		New: sandbox.Request{Spec: cove.Spec{WorkDir: "../tmp"}}}
}

func (s *server) begin(t *testing.T, q run.Request) store.Run {
	t.Helper()
	r, err := s.Begin(t.Context(), owner, q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// heard is what somebody has who follows a run: each event in a line.
type heard struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func (h *heard) take(e run.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := fmt.Sprint(e.Seq, " ")
	switch {
	case e.Message != nil:
		line += e.Message.Type + " " + e.Message.Content + e.Message.Output
	case e.Decision != nil:
		line += "decision " + e.Decision.Host
	case e.Asked:
		line += fmt.Sprint("holds ", len(e.Holds))
	default:
		line += "log " + strings.TrimSpace(e.Log)
	}
	h.lines = append(h.lines, line)
	if h.more != nil {
		select {
		case h.more <- struct{}{}:
		default:
		}
	}
	return nil
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

// until waits for a line.
func (h *heard) until(t *testing.T, line string) {
	t.Helper()
	await.That(t, "a follower hears "+line, func() bool { return strings.Contains(h.text(), line) })
}

// follow follows a run from its beginning to its end.
func (s *server) follow(t *testing.T, id string) (store.Run, string) {
	t.Helper()
	var h heard
	r, err := s.Follow(t.Context(), owner, id, 0, func(store.Run) error { return nil }, h.take)
	if err != nil {
		t.Fatalf("%v after\n%s", err, h.text())
	}
	return r, h.text()
}

// listen follows a run meanwhile; the channel has the error in the end.
func (s *server) listen(t *testing.T, id string) (*heard, <-chan error) {
	h, done := &heard{}, make(chan error, 1)
	go func() {
		_, err := s.Follow(t.Context(), owner, id, 0, func(store.Run) error { return nil }, h.take)
		done <- err
	}()
	return h, done
}

// touch makes a file in a run's sandbox, which the robot waits for.
func (s *server) touch(t *testing.T, r store.Run, path string) {
	t.Helper()
	in, err := s.sandboxes.Enter(t.Context(), owner, r.Sandbox)
	if err == nil {
		err = in.Guest.Guest().WriteFile(t.Context(), path, 0o644, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *server) wantSandboxes(t *testing.T, want int) []sandbox.View {
	t.Helper()
	list, err := s.sandboxes.List(t.Context(), owner)
	if err != nil || len(list.Sandboxes) != want {
		t.Errorf("there are %d sandboxes, %v; want %d", len(list.Sandboxes), err, want)
	}
	return list.Sandboxes
}

func wantCode(t *testing.T, doing string, err error, want cove.Code) {
	t.Helper()
	if cove.ErrorCode(err) != want {
		t.Errorf("%s: %v, want %s", doing, err, want)
	}
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// workspaces all have the same two directories, of which nothing is shown: the engine's sandboxes are in memory.
type workspaces struct{ *lab }

func (w workspaces) Create(ctx context.Context, s workspace.Spec, _ func(workspace.Step)) (workspace.Workspace, error) {
	for _, name := range []string{"checkout", "home"} {
		if err := os.MkdirAll(filepath.Join(w.dir, name), 0o755); err != nil {
			return workspace.Workspace{}, err
		}
	}
	return w.Open(ctx, s.ID)
}

func (w workspaces) Open(_ context.Context, id cove.SandboxID) (workspace.Workspace, error) {
	return workspace.Workspace{ID: id, Root: w.dir, Directory: filepath.Join(w.dir, "checkout"),
		Home: filepath.Join(w.dir, "home")}, nil
}

// Place implements sandbox.Layers, with a layer for every name.
func (w workspaces) Still(_ context.Context, _ cove.SandboxID, _ bool, f func() error) error {
	return f()
}

func (w workspaces) Place(string) (hostpath.Own, error) {
	return hostpath.Own{Dir: w.dir, Name: "."}, nil
}

func (workspaces) CheckRemove(cove.SandboxID, bool) error             { return nil }
func (workspaces) Remove(context.Context, cove.SandboxID, bool) error { return nil }
func (workspaces) List(context.Context) ([]cove.SandboxID, error)     { return nil, nil }
func (workspaces) Used(context.Context, cove.SandboxID) (workspace.Used, error) {
	return workspace.Used{}, nil
}
func (workspaces) Full(cove.SandboxID) (bool, error)                                  { return false, nil }
func (w workspaces) Bounds(context.Context) error                                     { return w.bounds }
func (workspaces) Uploaded(_ cove.Principal, _ string, f func(int64) error) error     { return f(0) }
func (workspaces) Resize(context.Context, cove.SandboxID, workspace.Disk, bool) error { return nil }
func (workspaces) Device(cove.SandboxID) (string, error)                              { return "", nil }
func (workspaces) Free() (hostdisk.Room, error)                                       { return hostdisk.Room{}, nil }

type noImages struct{}

func (noImages) Resolve(context.Context, string) (engine.Rootfs, error) {
	return engine.Rootfs{Kind: engine.RootfsHost}, nil
}
func (noImages) Hold(context.Context, string) (func(), error) {
	return nil, errors.New("there are no images")
}

// way leads nowhere, and knows a key.
type route struct{ refusals *model.Refusals }

func (route) Bind(*engine.Binding, engine.Rootfs) error { return nil }
func (route) Env() map[string]string                    { return nil }
func (route) Serve(sockets []*os.File) error            { return nil }
func (route) Extend(...*policy.Document) (int, error)   { return 0, nil }
func (route) Replace(...*policy.Document) (int, error)  { return 0, nil }
func (route) Certificate() []byte                       { return nil }
func (route) Holds() ([]approval.Hold, <-chan struct{}) { return []approval.Hold{{ID: "ho_1"}}, nil }
func (route) Denied() []egress.Denial                   { return nil }
func (route) Models() []model.ProviderUsage             { return nil }

func (r route) Providers() egress.Providers { return providers{r.refusals} }

type providers struct{ *model.Refusals }

// Reach fails like the latest request.
func (p providers) Reach(_ context.Context, provider string) error { return p.Latest(provider) }

// known is a key that ways know.
var known, _ = redact.New(secret.New("sk-real-key"))

func (route) Concealed(from io.Reader) io.Reader {
	return redact.Follow(from, func() (*redact.Set, error) { return known, nil })
}
func (route) Close()          {}
func (route) Shut()           {}
func (route) Rename(string)   {}
func (route) EndBy(time.Time) {}

// ways opens ways that lead nowhere.
type ways struct{ refusals *model.Refusals }

func (w ways) OpenRoute(cove.Principal, cove.SandboxID, string, egress.Network) (egress.Route, error) {
	return route(w), nil
}
func (ways) CheckRoute(_ cove.Principal, n egress.Network) error {
	if slices.Contains(n.Providers, "nobody") {
		return cove.Errorf(cove.NotFound, "there is no model provider nobody")
	}
	return nil
}

func (w ways) OpenBeside(who cove.Principal, id cove.SandboxID, of store.Sandbox,
	n egress.Network) (egress.Route, error) {
	return w.OpenRoute(who, id, of.Name, n)
}

func (ways) ForgetRoute(cove.SandboxID) error { return nil }
func (ways) RepositoryNetwork(cove.Principal, store.SandboxRepository, bool) (egress.Network, error) {
	return egress.Network{}, nil
}
