package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/git/forge"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/internal/work"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Callers in the tests of scopes: the key that made the objects, another key, and the owner of the machine.
const (
	keeper   = "cove_keeper"
	stranger = "cove_stranger"
	machine  = "" // through the owner's door
)

// estate is a server with the real services and a real store behind it, above the in-memory engine.
type estate struct {
	*Server
	store      *sqlite.Store
	executions *execution.Executions
	sandboxes  *sandbox.Sandboxes
	processes  *sandbox.Processes
	printed    chan struct{}      // receives when a program has printed the secret
	changes    []store.FileChange // of every run

	keyless bool // the keeper and the stranger are local users

	gateway *gateway.Gateway
	waiting sync.WaitGroup // requests in ways

	mu   sync.Mutex
	ways []*heldWay
}

func newEstate(t *testing.T) *estate { return newEstateFor(t, keysOfTests()) }

// newEstateFor is newEstate with some keys; without any, the keeper and the stranger are users of the machine.
func newEstateFor(t *testing.T, keys []Key) *estate {
	t.Helper()
	dir := t.TempDir()
	in, err := instance.Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	e := &estate{printed: make(chan struct{}, 8), keyless: len(keys) == 0}
	if e.store, err = sqlite.Open(t.Context(), filepath.Join(dir, "cove.db")); err != nil {
		t.Fatal(err)
	}
	log, vault := slog.New(slog.NewTextHandler(t.Output(), nil)), store.NewVault(e.store)
	caps := fake.New(fake.Options{}).Capabilities()
	caps.Files, caps.Listeners, caps.Networks = true, true, []cove.NetworkMode{cove.NetworkNone, cove.NetworkLimited}
	eng := fake.New(fake.Options{Host: fake.NewHost(), Capabilities: &caps,
		Programs: map[string]fake.Program{"python3": e.secretive, "robot": robot}})
	e.gateway = gateway.New(gateway.Options{Dir: filepath.Join(dir, "ways"), Approvals: &vault,
		Clock: clock.Real(), Log: log})
	approvals := gateway.NewApprovals(store.Auditor{Store: vault, Clock: clock.Real(), Log: log})
	approvals.Add(e.gateway)
	engines := engine.NewSet("fake", engine.Source{Name: "fake", Open: func() (engine.Engine, error) { return eng, nil }})
	e.executions = execution.New(execution.Options{
		Engines: engines, Images: hostAlone{}, Store: vault, Instance: in.ID, RunDir: dir,
		Spool: spool.New(spool.Options{Dir: dir, Memory: 1 << 20, Disk: 1 << 30}),
		OpenRoute: func(who cove.Principal, id cove.SandboxID, of cove.ExecutionID, _ egress.Network) (egress.Route, error) {
			return e.way(who, id, string(of))
		},
		Grants: grantsOfTests(), MaxConcurrent: 8, MaxQueued: 8, Clock: clock.Real(), Log: log,
	})
	e.sandboxes = sandbox.New(sandbox.Options{Engines: engines, Places: e.executions, Images: hostAlone{}, Store: vault,
		Grants: grantsOfTests(), Clock: clock.Real(), Log: log})
	e.processes = sandbox.NewProcesses(e.sandboxes)
	mirrors, err := repos.Open(repos.Options{Home: dir, Outlet: nowhere{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	runs := run.New(run.Options{
		Sandboxes: e.sandboxes, Processes: e.processes, Agents: robots{}, Work: workOfRuns{managed{e.sandboxes}, e},
		Places: e.executions,
		Store:  vault, Flush: func() {},
		Dir: filepath.Join(dir, "runs"), Clock: clock.Real(), Log: log,
	})
	err = e.sandboxes.Adopt(t.Context(), sandbox.Host{
		Workspaces: emptyWorkspaces(dir), Disks: emptyDisks{emptyWorkspaces(dir), mirrors.Disks()}, Routes: routes{e},
		Successor: runs, Recorders: runs, Dir: filepath.Join(dir, "sandboxes"), Most: 20,
	})
	if err == nil {
		err = runs.Recover(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	profiles := func() ([]api.Profile, error) {
		return []api.Profile{{Name: "crew", Spec: api.Spec{Env: map[string]string{"TOKEN": secret}}}}, nil
	}
	e.Server, err = New(Options{
		Backup:   func(_ context.Context, file string) (api.Backup, error) { return api.Backup{File: file}, nil },
		Executor: e.executions, Pool: e.executions.Pool,
		Approvals: approvals, Sandboxes: e.sandboxes, Processes: e.processes, Repositories: mirrors,
		Work: managed{e.sandboxes}, Runs: runs, Agents: fakeAgents{}, Generator: &fakeGenerator{},
		Credentials: noCredentials(), Settings: func() map[string]string { return nil },
		Profiles: profiles, Store: vault, CheckPath: hostpath.Rules{}.Check,
		CheckProject: hostpath.CheckProject, Version: "test", Log: log,
		Keys: keys, Grants: grantsOfTests(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		runs.Leave()
		e.executions.Close(ctx)
		if err := e.sandboxes.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		runs.Close()
		e.gateway.Close()
		e.waiting.Wait()
		e.store.Close()
		in.Release()
	})
	return e
}

// users are the users of the machine that the keeper and the stranger are where no key is needed.
var users = map[string]uint32{keeper: 4242, stranger: 4243}

// principal is who the keeper or the stranger is.
func (e *estate) principal(who string) cove.Principal {
	if e.keyless {
		return cove.LocalUser(users[who])
	}
	return cove.KeyHolder(strings.TrimPrefix(who, "cove_"))
}

// keysOfTests are the two keys of the tests of objects, and one for each scope, named for it.
func keysOfTests() []Key {
	keys := []Key{key("keeper", keeper), key("stranger", stranger)}
	for _, s := range access.Scopes {
		keys = append(keys, key(string(s), "cove_"+string(s)))
	}
	return append(keys, key("few", few), key("rich", rich))
}

// grantsOfTests are the grants of the keys that are named for scopes, and quotas of others.
func grantsOfTests() access.Grants {
	grants := access.Grants{cove.KeyHolder("few"): grantOfFew, cove.KeyHolder("rich"): grantOfRich}
	for _, s := range access.Scopes {
		grants[cove.KeyHolder(string(s))] = access.Grant{Scopes: []access.Scope{s}}
	}
	return grants
}

// secret is part of every answer that shows what the keeper's objects hold.
const secret = "secret report 4711"

// secretive prints the secret where its code waits for being killed.
func (e *estate) secretive(p *fake.Process) int {
	if code, _ := p.ReadFile(cove.WorkDir + "/main.py"); string(code) == "wait" {
		fmt.Fprint(p.Stdout, secret)
		e.printed <- struct{}{}
		<-p.Context.Done()
	}
	return 0
}

// robot is an agent whose result is its prompt; with the prompt "wait" it thinks until it is killed.
func robot(p *fake.Process) int {
	if p.Args[1] == "wait" {
		line, _ := json.Marshal(api.Message{Version: api.MessageVersion, Type: api.MessageThinking, Content: "hm"})
		fmt.Fprintf(p.Stdout, "%s\n", line)
		<-p.Context.Done()
		return 0
	}
	line, _ := json.Marshal(api.Message{Version: api.MessageVersion, Type: api.MessageResult, Content: p.Args[1],
		Session: "s1"})
	fmt.Fprintf(p.Stdout, "%s\n", line)
	return 0
}

// robots are the agents of the tests: the robot.
type robots struct{}

func (robots) Ready(context.Context, cove.Principal, fit.Equipment, *cove.Network) error { return nil }

func (r robots) Install(_ context.Context, q fit.Want, _ func(workspace.Step)) (fit.Equipment, error) {
	return r.Equip(q, false)
}

func (robots) Equip(fit.Want, bool) (fit.Equipment, error) {
	return fit.Equipment{
		Agent: "robot",
		Command: func(t agent.Task) (agent.Command, error) {
			return agent.Command{Args: []string{"robot", t.Prompt}}, nil
		},
		Parser: func(before api.AgentUsage) agent.Parser {
			return agent.Agent{Title: "Robot", Output: agent.FormatMessages}.NewParser(before)
		},
	}, nil
}

// managed finds the work of a sandbox as package daemon does, with the sandboxes, and takes nothing over.
type managed struct{ sandboxes *sandbox.Sandboxes }

func (m managed) open(ctx context.Context, who cove.Principal, ref string) error {
	w, err := m.sandboxes.OpenWork(ctx, who, ref)
	if err == nil {
		w.Close()
	}
	return err
}

func (m managed) Import(ctx context.Context, who cove.Principal, ref string) (work.Imported, error) {
	return work.Imported{}, m.open(ctx, who, ref)
}

func (m managed) Diff(ctx context.Context, who cove.Principal, ref string, _ repos.Work, _ repos.DiffStyle,
	_ io.Writer) error {
	return m.open(ctx, who, ref)
}

func (m managed) Send(ctx context.Context, who cove.Principal, ref string, _ io.Writer) error {
	return m.open(ctx, who, ref)
}

func (m managed) Log(ctx context.Context, who cove.Principal, ref string, _ repos.Work, _ bool, _ io.Writer) error {
	return m.open(ctx, who, ref)
}

func (m managed) Commits(ctx context.Context, who cove.Principal, ref string, _ repos.Work) ([]repos.Commit, error) {
	return nil, m.open(ctx, who, ref)
}

func (m managed) Held(ctx context.Context, who cove.Principal, ref string) (repos.Held, error) {
	return repos.Held{}, m.open(ctx, who, ref)
}

func (m managed) Changes(ctx context.Context, who cove.Principal, ref string, _ repos.Work,
	_ repos.ChangeStyle) ([]repos.Change, error) {
	return nil, m.open(ctx, who, ref)
}

func (m managed) Apply(ctx context.Context, who cove.Principal, ref string, _ repos.Work, _ string,
	_ repos.ApplyStyle) (repos.Applied, error) {
	return repos.Applied{}, m.open(ctx, who, ref)
}

func (m managed) Push(ctx context.Context, who cove.Principal, ref string, _ work.Push) (work.Pushed, error) {
	return work.Pushed{}, m.open(ctx, who, ref)
}

func (m managed) Pull(ctx context.Context, who cove.Principal, ref string, _ forge.Pull) (forge.Opened, error) {
	return forge.Opened{}, m.open(ctx, who, ref)
}

// workOfRuns is managed as runs need it.
type workOfRuns struct {
	managed
	e *estate
}

func (w workOfRuns) Changes(ctx context.Context, who cove.Principal, ref string) ([]store.FileChange, error) {
	return w.e.changes, w.open(ctx, who, ref)
}

func (w workOfRuns) Patch(ctx context.Context, who cove.Principal, ref string, _ io.Writer) error {
	return w.open(ctx, who, ref)
}

func (w workOfRuns) Holds(ctx context.Context, who cove.Principal, ref string) (bool, error) {
	return false, w.open(ctx, who, ref)
}

// nowhere has no way out.
type nowhere struct{}

func (nowhere) Open(context.Context, cove.Principal, string, bool) (repos.Route, error) {
	return repos.Route{}, cove.Errorf(cove.Unavailable, "there is no way out")
}

// emptyWorkspaces are workspaces without files, all in one directory.
type emptyWorkspaces string

func (dir emptyWorkspaces) Create(ctx context.Context, s workspace.Spec,
	_ func(workspace.Step)) (workspace.Workspace, error) {
	return dir.Open(ctx, s.ID)
}

func (dir emptyWorkspaces) Open(_ context.Context, id cove.SandboxID) (workspace.Workspace, error) {
	return workspace.Workspace{ID: id, Root: filepath.Dir(string(dir)), Directory: string(dir), Home: string(dir)}, nil
}

func (emptyWorkspaces) CheckRemove(cove.SandboxID, bool) error             { return nil }
func (emptyWorkspaces) Remove(context.Context, cove.SandboxID, bool) error { return nil }
func (emptyWorkspaces) List(context.Context) ([]cove.SandboxID, error)     { return nil, nil }
func (emptyWorkspaces) Used(context.Context, cove.SandboxID) (workspace.Used, error) {
	return workspace.Used{}, nil
}
func (emptyWorkspaces) Full(cove.SandboxID) (bool, error) { return false, nil }
func (emptyWorkspaces) Bounds(context.Context) error      { return nil }
func (emptyWorkspaces) Resize(context.Context, cove.SandboxID, workspace.Disk, bool) error {
	return nil
}
func (emptyWorkspaces) Still(_ context.Context, _ cove.SandboxID, _ bool, f func() error) error {
	return f()
}

func (emptyWorkspaces) Device(cove.SandboxID) (string, error) { return "", nil }

func (emptyWorkspaces) Free() (hostdisk.Room, error) { return hostdisk.Room{}, nil }

// emptyDisks are those of empty workspaces, beside the uploads of a store.
type emptyDisks struct {
	emptyWorkspaces
	store workspace.Disks
}

func (d emptyDisks) Uploaded(who cove.Principal, but string, f func(int64) error) error {
	return d.store.Uploaded(who, but, f)
}

type hostAlone struct{}

func (hostAlone) Resolve(context.Context, string) (engine.Rootfs, error) {
	return engine.Rootfs{Kind: engine.RootfsHost}, nil
}

func (hostAlone) Hold(context.Context, string) (func(), error) {
	return nil, errors.New("there are no images")
}

// heldWay is a route of a real gateway that no sandbox is connected to. One request waits in it for an answer.
type heldWay struct {
	*gateway.Route
	hold approval.Hold
}

func (e *estate) way(who cove.Principal, id cove.SandboxID, name string) (*heldWay, error) {
	documents, err := policy.Parse("p.yaml", []byte("mode: limited\nrules: [{hosts: api.example.com, action: ask}]"))
	if err != nil {
		return nil, err
	}
	opened, err := e.gateway.Open(gateway.Spec{Sandbox: id, Name: name, Owner: who, Policy: []*policy.Document{documents}})
	if err != nil {
		return nil, err
	}
	host, err := policy.ParseHost("api.example.com")
	if err != nil {
		return nil, err
	}
	w := &heldWay{Route: opened}
	_, changed := opened.Holds()
	e.waiting.Go(func() {
		opened.Decide(context.Background(), policy.Request{Layer: policy.LayerHTTP, Host: host, Port: 443,
			Method: "GET", Path: "/"})
	})
	<-changed
	holds, _ := opened.Holds()
	w.hold = holds[0]
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ways = append(e.ways, w)
	return w, nil
}

func (*heldWay) Bind(*engine.Binding, engine.Rootfs) error { return nil }
func (*heldWay) Env() map[string]string                    { return nil }
func (*heldWay) Serve([]*os.File) error                    { return nil }
func (*heldWay) Certificate() []byte                       { return []byte(secret) }

// ask sends a request with a key, or through the owner's door, and returns the
// status and the body. A stream that does not end is read for a moment.
func (e *estate) ask(t *testing.T, who, method, path, body string) (int, string) {
	t.Helper()
	patience := 20 * time.Second
	if method == http.MethodGet && strings.HasSuffix(path, "/stream") {
		patience = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return e.answer(ctx, who, method, path, body)
}

// leaving sends a request whose caller leaves when leave is called; answered is closed when it is over.
func (e *estate) leaving(t *testing.T, who, method, path, body string) (leave func(), answered chan struct{}) {
	ctx, cancel := context.WithCancel(t.Context())
	answered = make(chan struct{})
	go func() {
		defer close(answered)
		e.answer(ctx, who, method, path, body)
	}()
	return cancel, answered
}

func (e *estate) answer(ctx context.Context, who, method, path, body string) (int, string) {
	switch {
	case who == machine:
		ctx = context.WithValue(context.WithValue(ctx, doorKey{}, fromOwner), verdictKey{}, verdict{})
	case e.keyless:
		ctx = context.WithValue(context.WithValue(ctx, doorKey{}, fromLoopback), localUserKey{},
			&localUser{uid: users[who], found: true})
	default:
		ctx = context.WithValue(ctx, doorKey{}, fromNetwork)
	}
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if e.keyless {
		r.Host = "localhost"
	} else if who != machine {
		r.Header.Set("X-API-Key", who)
	}
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	} else if body != "" {
		r.Header.Set("Content-Type", "application/octet-stream")
	}
	if strings.HasSuffix(path, "/terminal") || strings.Contains(path, "/ports/") {
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
			"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
			r.Header.Set(name, value)
		}
	}
	if strings.HasSuffix(path, "/decisions/stream") {
		r.Header.Set("Last-Event-ID", "0")
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// begin begins an execution that goes on until it is killed, with a network and
// input that is to come, and returns its id once its program has printed the secret.
func (e *estate) begin(t *testing.T, who string) string {
	t.Helper()
	before := e.running(t)
	var asking sync.WaitGroup
	asking.Go(func() {
		code, text := e.ask(t, who, "POST", "/execute/stream",
			`{"language":"python","code":"wait","stdin_stream":true,"permissions":{"network":{"enabled":true,"allow":["api.example.com"]}}}`)
		if code != http.StatusOK {
			t.Errorf("begin: %d %s", code, text)
		}
	})
	t.Cleanup(asking.Wait)
	var begun string
	await.That(t, "an execution begins", func() bool {
		for id := range e.running(t) {
			if !before[id] {
				begun = id
			}
		}
		return begun != ""
	})
	t.Cleanup(func() { e.ask(t, machine, "DELETE", "/executions/"+begun, "") })
	<-e.printed
	return begun
}

func (e *estate) running(t *testing.T) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for _, x := range get[api.ExecutionList](t, e, machine, "/executions?status=running").Executions {
		ids[x.ID] = true
	}
	return ids
}

// get reads what a path has for a caller.
func get[T any](t *testing.T, e *estate, who, path string) T {
	t.Helper()
	code, text := e.ask(t, who, "GET", path, "")
	return decode[T](t, reply{&http.Response{StatusCode: code}, text}, http.StatusOK)
}

// routes are the routes of the estate's sandboxes.
type routes struct{ e *estate }

func (r routes) OpenRoute(who cove.Principal, id cove.SandboxID, name string, _ egress.Network) (egress.Route, error) {
	return r.e.way(who, id, name)
}

func (routes) CheckRoute(cove.Principal, egress.Network) error { return nil }

func (r routes) OpenBeside(who cove.Principal, id cove.SandboxID, of store.Sandbox,
	n egress.Network) (egress.Route, error) {
	return r.OpenRoute(who, id, of.Name, n)
}

func (routes) ForgetRoute(cove.SandboxID) error { return nil }

func (routes) RepositoryNetwork(cove.Principal, store.SandboxRepository, bool) (egress.Network, error) {
	return egress.Network{Mode: cove.NetworkNone}, nil
}
