package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
)

// Who asks in the tests of who sees what: the key that made an object, another
// key, and the owner of the machine.
const (
	keeper   = "cove_keeper"
	stranger = "cove_stranger"
	machine  = "" // through the owner's door
)

// estate is a server with real services and a real store behind it, above the
// in-memory engine.
type estate struct {
	*Server
	store   *sqlite.Store
	manager *sandbox.Manager

	mu   sync.Mutex
	ways []*heldWay
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	dir := t.TempDir()
	in, err := instance.Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	e := &estate{}
	if e.store, err = sqlite.Open(t.Context(), filepath.Join(dir, "cove.db")); err != nil {
		t.Fatal(err)
	}
	caps := fake.New(fake.Options{}).Capabilities()
	caps.Files, caps.Listeners, caps.Networks = true, true, []cove.NetworkMode{cove.NetworkNone, cove.NetworkLimited}
	eng := fake.New(fake.Options{Host: fake.NewHost(), Capabilities: &caps, Programs: map[string]fake.Program{"python3": secretive}})
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e.manager = sandbox.New(sandbox.Options{
		Engines: engine.NewSet("fake", engine.Source{Name: "fake", Open: func() (engine.Engine, error) { return eng, nil }}),
		Images:  hostAlone{}, Store: store.NewVault(e.store), Instance: in.ID, RunDir: dir,
		OpenWay: func(cove.Principal, cove.SandboxID, cove.ExecutionID, sandbox.Network) (sandbox.Way, error) {
			return e.way(), nil
		},
		MaxConcurrent: 8, MaxQueued: 8, Clock: clock.Real(), Log: log,
	})
	e.Server, err = New(Options{Executor: e.manager, Store: store.NewVault(e.store), CheckPath: hostpath.Check, Version: "test", Log: log,
		Keys: []Key{key("keeper", keeper), key("stranger", stranger)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.manager.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		e.store.Close()
		in.Release()
	})
	return e
}

// secretive says what only its caller may hear, and goes on until it is killed if
// its code says so.
func secretive(p *fake.Process) int {
	fmt.Fprint(p.Stdout, "secret report 4711")
	if code, _ := p.ReadFile(cove.WorkDir + "/main.py"); strings.Contains(string(code), "wait") {
		<-p.Context.Done()
	}
	return 0
}

type hostAlone struct{}

func (hostAlone) Resolve(context.Context, string) (engine.Rootfs, error) {
	return engine.Rootfs{Kind: engine.RootfsHost}, nil
}

func (hostAlone) Hold(context.Context, string) (func(), error) {
	return nil, errors.New("there are no images")
}

// heldWay leads nowhere, and one request waits in it for an answer.
type heldWay struct {
	hold approval.Hold
}

func (e *estate) way() *heldWay {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &heldWay{hold: approval.Hold{ID: cove.NewHoldID(), Subject: approval.Subject{Host: "api.example.com", Port: 443}, Since: time.Now(), Until: time.Now().Add(time.Hour)}}
	e.ways = append(e.ways, w)
	return w
}

func (*heldWay) Bind(*engine.Binding, engine.Rootfs) error   { return nil }
func (*heldWay) Env() map[string]string                      { return nil }
func (*heldWay) Serve([]*os.File) error                      { return nil }
func (*heldWay) Extend(...*policy.Document) (int, error)     { return 0, nil }
func (*heldWay) Replace(...*policy.Document) (int, error)    { return 0, nil }
func (*heldWay) Rename(string)                               {}
func (*heldWay) Certificate() []byte                         { return []byte("secret report 4711, the certificate") }
func (w *heldWay) Holds() ([]approval.Hold, <-chan struct{}) { return []approval.Hold{w.hold}, nil }
func (*heldWay) Denied() []string                            { return nil }
func (*heldWay) Concealed(from io.Reader) io.Reader          { return from }
func (*heldWay) Shut()                                       {}
func (*heldWay) Close()                                      {}
func (*heldWay) Models() []model.ProviderUsage               { return nil }
func (w *heldWay) Answer(context.Context, cove.Principal, cove.HoldID, approval.Answer) (approval.Hold, error) {
	return w.hold, nil
}

// ask sends a request with a key, or through the owner's door, and returns the
// status and the body. A stream without an end is read for a moment.
func (e *estate) ask(t *testing.T, who, method, path, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	d := fromNetwork
	if who == machine {
		d = fromOwner
	}
	r := httptest.NewRequestWithContext(context.WithValue(ctx, doorKey{}, d), method, path, strings.NewReader(body))
	if who != machine {
		r.Header.Set("X-API-Key", who)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// begin begins an execution that goes on until it is killed, with a network, and
// returns its id once its program runs.
func (e *estate) begin(t *testing.T, who string) string {
	t.Helper()
	before := e.running(t)
	var asking sync.WaitGroup
	asking.Go(func() {
		code, text := e.ask(t, who, "POST", "/execute", `{"language":"python","code":"wait","permissions":{"network":{"enabled":true,"allow":["api.example.com"]}}}`)
		if code != http.StatusOK {
			t.Errorf("begin: %d %s", code, text)
		}
	})
	t.Cleanup(asking.Wait)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, id := range e.running(t) {
			if !slices.Contains(before, id) {
				t.Cleanup(func() { e.ask(t, machine, "DELETE", "/executions/"+id, "") })
				for time.Now().Before(deadline) {
					if code, _ := e.ask(t, machine, "GET", "/executions/"+id+"/ca", ""); code == http.StatusOK {
						return id
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
	}
	t.Fatal("nothing begins")
	return ""
}

func (e *estate) running(t *testing.T) (ids []string) {
	t.Helper()
	for _, x := range get[api.ExecutionList](t, e, machine, "/executions?status=running").Executions {
		ids = append(ids, x.ID)
	}
	return ids
}

// get reads what a path has for somebody.
func get[T any](t *testing.T, e *estate, who, path string) T {
	t.Helper()
	code, text := e.ask(t, who, "GET", path, "")
	return decode[T](t, reply{&http.Response{StatusCode: code}, text}, http.StatusOK)
}

// TestKeysSeeTheirOwnExecutions: an execution, what it says, what it may reach and
// what becomes of that is for the key that asked for it, and for the machine's
// owner. For another key it is not there.
func TestKeysSeeTheirOwnExecutions(t *testing.T) {
	e := newEstate(t)
	id := e.begin(t, keeper)
	hold := string(e.ways[0].hold.ID)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	remembered := approval.Approval{ID: cove.NewApprovalID(), Policy: "p", Subject: e.ways[0].hold.Subject, Who: cove.KeyHolder("keeper"), Time: time.Now(), Until: time.Now().Add(time.Hour)}
	must(e.store.Approve(t.Context(), remembered))
	must(e.store.AppendDecisions(t.Context(), 100, api.Decision{Time: time.Now(), Execution: id, Client: "key:keeper", Host: "api.example.com", Verdict: api.VerdictAllow}))

	execution := "/executions/" + id
	requests := []struct{ method, path, body string }{
		{"GET", execution, ""},
		{"GET", execution + "/stream", ""},
		{"POST", execution + "/network", `{"allow":["evil.example"]}`},
		{"GET", execution + "/ca", ""},
		{"POST", "/network/holds/" + hold, `{"allow":true}`},
		{"DELETE", "/network/approvals/" + string(remembered.ID), ""},
		{"DELETE", execution, ""},
	}
	for _, r := range requests {
		code, text := e.ask(t, stranger, r.method, r.path, r.body)
		if code != http.StatusNotFound || strings.Contains(text, "4711") {
			t.Errorf("a stranger: %s %s: %d %s", r.method, r.path, code, text)
		}
	}
	lists := []struct{ path, has string }{
		{"/executions", id}, {"/network/holds", hold}, {"/network/holds?execution=" + id, hold}, {"/network/approvals", string(remembered.ID)},
		{"/network/decisions", "api.example.com"}, {"/network/decisions?execution=" + id, "api.example.com"},
	}
	for _, l := range lists {
		for _, who := range []string{keeper, stranger, machine} {
			code, text := e.ask(t, who, "GET", l.path, "")
			if code != http.StatusOK || strings.Contains(text, l.has) != (who != stranger) {
				t.Errorf("%q: %s: %d %s", who, l.path, code, text)
			}
		}
	}
	for _, r := range requests {
		if r.path == execution+"/stream" {
			continue // it goes on
		}
		if code, text := e.ask(t, keeper, r.method, r.path, r.body); code >= 300 {
			t.Errorf("whose it is: %s %s: %d %s", r.method, r.path, code, text)
		}
	}
	for _, who := range []string{keeper, machine} {
		if code, text := e.ask(t, who, "GET", execution+"/stream", ""); code != http.StatusOK || !strings.Contains(text, "4711") {
			t.Errorf("%q follows: %d %s", who, code, text)
		}
	}
	if code, text := e.ask(t, stranger, "GET", execution+"/stream", ""); code != http.StatusNotFound {
		t.Errorf("a stranger follows what has ended: %d %s", code, text)
	}

	// What each did is in the log, and each reads what it did itself.
	for who, want := range map[string][]string{keeper: {"kill", "execute"}, stranger: nil, machine: {"kill", "execute"}} {
		got := get[api.AuditList](t, e, who, "/audit?object="+id)
		for _, action := range want {
			if !slices.ContainsFunc(got.Records, func(r api.AuditRecord) bool { return r.Action == action }) {
				t.Errorf("%q misses the record of %s: %+v", who, action, got.Records)
			}
		}
		if who == stranger && len(got.Records) > 0 {
			t.Errorf("a stranger reads %+v", got.Records)
		}
		for _, r := range got.Records {
			if who != machine && r.Hash != "" {
				t.Errorf("%q is told a hash, over records that are not its own: %+v", who, r)
			}
		}
	}
	for who, want := range map[string]int{keeper: http.StatusForbidden, stranger: http.StatusForbidden, machine: http.StatusOK} {
		if code, text := e.ask(t, who, "GET", "/audit/verify", ""); code != want {
			t.Errorf("%q verifies: %d %s", who, code, text)
		}
	}
}

// TestOwnersExecutionsAreTheOwners: what the machine's owner runs is not for keys.
func TestOwnersExecutionsAreTheOwners(t *testing.T) {
	e := newEstate(t)
	id := e.begin(t, machine)
	for _, r := range []struct{ method, path string }{{"GET", "/executions/" + id}, {"DELETE", "/executions/" + id}, {"POST", "/network/holds/" + string(e.ways[0].hold.ID)}} {
		body := ""
		if r.method == "POST" {
			body = `{"allow":true}`
		}
		if code, text := e.ask(t, keeper, r.method, r.path, body); code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", r.method, r.path, code, text)
		}
	}
	if l := get[api.ExecutionList](t, e, keeper, "/executions"); len(l.Executions) > 0 {
		t.Errorf("%+v", l)
	}
}
