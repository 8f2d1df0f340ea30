package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeExecutor runs do instead of a sandbox.
type fakeExecutor struct {
	do func(ctx context.Context, r execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error)
	follow followFunc
	health map[string]string
	store  store.Vault

	mu       sync.Mutex
	extended []*policy.Document
	holds    []approval.Hold
	answered []approval.Answer
	revoked  []cove.ApprovalID
	killed   []cove.ExecutionID
	killErr  error
	last     execution.Request
	who      cove.Principal // who asked for it
	active   int
}

func (f *fakeExecutor) Execute(ctx context.Context, who cove.Principal, r execution.Request,
	started func(cove.ExecutionID), out process.Output) (execution.Result, error) {
	f.mu.Lock()
	f.last, f.who = r, who
	f.active++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.active--
		f.mu.Unlock()
	}()
	if f.do != nil {
		return f.do(ctx, r, started, out)
	}
	id := cove.NewExecutionID()
	started(id)
	if out != nil {
		out.Stdout([]byte("hello\n"))
		out.Stderr([]byte("oops\n"))
	}
	return finished(id), nil
}

// Do does a job whose output is passed on and kept.
func (f *fakeExecutor) Do(ctx context.Context, _ cove.Principal, j execution.Job,
	out process.Output) (execution.Result, error) {
	kept := &keptOutput{to: out}
	r, err := j.Do(ctx, someAgent, kept)
	r.ID, r.Language, r.Output = someAgent, j.Language, spool.Text(kept.stdout.String(), kept.stderr.String())
	return r, err
}

// someAgent is the execution of every job.
const someAgent cove.ExecutionID = "ex_0123456789abcdefghjkmnpqrs"

type keptOutput struct {
	to             process.Output
	stdout, stderr bytes.Buffer
}

func (k *keptOutput) Stdout(p []byte) error {
	k.stdout.Write(p)
	if k.to == nil {
		return nil
	}
	return k.to.Stdout(p)
}

func (k *keptOutput) Stderr(p []byte) error {
	k.stderr.Write(p)
	if k.to == nil {
		return nil
	}
	return k.to.Stderr(p)
}

func finished(id cove.ExecutionID) execution.Result {
	return execution.Result{ID: id, Output: spool.Text("hello\n", "oops\n"), Language: "python",
		Engine: "fake", ExitCode: 3, Started: time.Unix(1_900_000_000, 0), Duration: 1500 * time.Millisecond,
		Usage: cove.Usage{CPUTime: 20 * time.Millisecond, MemoryPeak: 8 << 20, PIDsPeak: 2, BytesWritten: 10, DiskUsed: 4096}}
}

func (f *fakeExecutor) request() execution.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *fakeExecutor) Kill(_ context.Context, _ cove.Principal, id cove.ExecutionID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = append(f.killed, id)
	return f.killErr
}

func (f *fakeExecutor) ExtendNetwork(_ context.Context, _ cove.Principal, id cove.ExecutionID,
	documents []*policy.Document) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extended = append(f.extended, documents...)
	return 2, f.killErr
}

func (f *fakeExecutor) Recorded(ctx context.Context, who cove.Principal,
	id cove.ExecutionID) (store.Execution, *spool.Output, error) {
	e, err := f.store.For(who).Get(ctx, id)
	o := spool.Text(e.Output, e.Stderr)
	e.Output, e.Stderr = "", ""
	return e, o, err
}

func (f *fakeExecutor) Known(e store.Execution) store.Execution { return e }

func (f *fakeExecutor) Certificate(context.Context, cove.Principal, cove.ExecutionID) ([]byte, error) {
	return []byte("a certificate"), f.killErr
}

func (f *fakeExecutor) Models(cove.Principal, cove.ExecutionID) []model.ProviderUsage {
	return []model.ProviderUsage{{Provider: "anthropic", Usage: model.Usage{Requests: 1}}}
}

func (f *fakeExecutor) Holds(cove.Principal) []approval.Hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.holds)
}

func (f *fakeExecutor) Answer(_ context.Context, p cove.Principal, id cove.HoldID, a approval.Answer,
	may func(approval.Hold) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.holds, func(h approval.Hold) bool { return h.ID == id })
	if i < 0 {
		return cove.Errorf(cove.NotFound, "nothing waits as %s", id)
	}
	if err := may(f.holds[i]); err != nil {
		return err
	}
	a, err := a.Normal()
	if err == nil {
		f.answered, f.who = append(f.answered, a), p
	}
	return err
}

func (f *fakeExecutor) Revoke(_ context.Context, _ cove.Principal, id cove.ApprovalID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revoked = append(f.revoked, id)
	return f.killErr
}

type followFunc = func(ctx context.Context, id cove.ExecutionID, from execution.Position, begun func(),
	out process.Output) error

func (f *fakeExecutor) Follow(ctx context.Context, _ cove.Principal, id cove.ExecutionID, from execution.Position,
	begun func(), out process.Output) error {
	if f.follow != nil {
		return f.follow(ctx, id, from, begun, out)
	}
	return cove.Errorf(cove.Conflict, "it does not run here")
}

func (f *fakeExecutor) Load() execution.Load {
	f.mu.Lock()
	defer f.mu.Unlock()
	return execution.Load{Running: f.active, Computing: 1, Waiting: 2, Wait: 1500 * time.Millisecond,
		Waits:   execution.Waits{Counts: [...]uint64{3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2}, Sum: 200 * time.Second},
		Refused: map[string]int64{"full": 7}}
}

func (f *fakeExecutor) Runtimes(context.Context, cove.Principal, string, string) ([]execution.Runtime, error) {
	return []execution.Runtime{{Name: "python", Version: "3.13",
		Limits: cove.Limits{Memory: 256 << 20, Timeout: 10 * time.Second}}}, nil
}

func (f *fakeExecutor) Health(context.Context) map[string]string {
	if f.health != nil {
		return f.health
	}
	return map[string]string{"fake": "ok", "docker": "not installed"}
}

// fakeStore holds what a test puts in; the rest of the contract is not asked for.
type fakeStore struct {
	store.Store
	executions map[cove.ExecutionID]store.Execution
	query      store.Query
	broken     error // of Check
	auditQuery store.AuditQuery
	verify     func() store.Verification
	approvals  []approval.Approval
	err        error

	decisionQuery store.DecisionQuery

	mu      sync.Mutex
	records []store.Record
	decided []decision.Decision // oldest first
}

func (f *fakeStore) Check(context.Context) error { return f.broken }

func (f *fakeStore) ListDecisions(_ context.Context, q store.DecisionQuery) (store.DecisionPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decisionQuery = q
	all := slices.Clone(f.decided)
	slices.Reverse(all)
	return store.DecisionPage{Decisions: all, Next: "more"}, f.err
}

func (f *fakeStore) DecisionsAfter(_ context.Context, client string, seq int64,
	limit int) ([]decision.Decision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []decision.Decision
	for _, d := range f.decided {
		if d.Seq > seq && len(all) < limit && (client == "" || client == d.Client) {
			all = append(all, d)
		}
	}
	return all, f.err
}

// decide records a decision about a host, of what the client of the harness runs.
func (f *fakeStore) decide(host string, v decision.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided = append(f.decided, decision.Decision{Seq: int64(len(f.decided) + 1),
		Time: time.Unix(1_900_000_000, 0).UTC(), Client: caller.String(), Host: host, Verdict: v, Count: 1})
}

func (f *fakeStore) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeStore) Append(_ context.Context, r store.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = append(f.records, r)
	return nil
}

func (f *fakeStore) Audit(_ context.Context, q store.AuditQuery) (store.AuditPage, error) {
	f.auditQuery = q
	return store.AuditPage{Records: f.audited(), Next: "more"}, f.err
}

func (f *fakeStore) Verify(context.Context) (store.Verification, error) {
	if f.verify != nil {
		return f.verify(), nil
	}
	return store.Verification{Records: 3, Head: "h"}, f.err
}

func (f *fakeStore) Approvals(context.Context, string, time.Time) ([]approval.Approval, error) {
	return f.approvals, f.err
}

func (f *fakeStore) audited() []store.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.records)
}

func (f *fakeStore) Get(_ context.Context, id cove.ExecutionID) (store.Execution, error) {
	if f.err != nil {
		return store.Execution{}, f.err
	}
	if e, ok := f.executions[id]; ok {
		e.Owner = cmp.Or(e.Owner, caller) // which is who asks
		return e, nil
	}
	return store.Execution{}, cove.Errorf(cove.NotFound, "no execution %q", id)
}

func (f *fakeStore) List(_ context.Context, q store.Query) (store.Page, error) {
	f.query = q
	var p store.Page
	for _, e := range f.executions {
		p.Executions = append(p.Executions, e)
	}
	return p, f.err
}

// caller is who asks over loopback, where no key is needed: the user of this process.
var caller = cove.LocalUser(uint32(os.Getuid()))

// harness is a server on loopback (and on a unix socket, for the owner) with a client for each.
type harness struct {
	t       *testing.T
	s       *Server
	fake    *fakeExecutor
	store   *fakeStore
	url     string
	address string
	socket  string // path

	lasting      fakeLasting
	repositories fakeRepositories
	work         fakeWork
	runs         fakeRuns

	client *http.Client
	owner  *http.Client
	log    *lockedBuffer
	doc    document
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func start(t *testing.T, change func(*Options)) *harness {
	t.Helper()
	h := &harness{t: t, fake: &fakeExecutor{}, store: &fakeStore{executions: map[cove.ExecutionID]store.Execution{}},
		log: &lockedBuffer{}}
	o := Options{Executor: h.fake, Approvals: h.fake, Sandboxes: &h.lasting, Processes: &h.lasting,
		Repositories: &h.repositories, Work: &h.work, Runs: &h.runs, Agents: fakeAgents{}, Store: store.NewVault(h.store),
		Generator:   &fakeGenerator{},
		Credentials: noCredentials(),
		Settings:    func() map[string]string { return map[string]string{"engine": "0123456789ab"} },
		CheckPath:   hostpath.Rules{}.Check, CheckProject: hostpath.CheckProject, Version: "test",
		Log: slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if change != nil {
		change(&o)
	}
	h.fake.store = o.Store
	var err error
	if h.s, err = New(o); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket := t.TempDir() + "/s"
	local, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := h.s.ServeLocal(local); err != nil {
			t.Error(err)
		}
	})
	w := httptest.NewRecorder()
	h.s.all().mux.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	h.doc = loadDocument(t, w.Body.String())
	h.address, h.socket = ln.Addr().String(), socket
	h.url = "http://" + h.address
	h.client = &http.Client{Transport: &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	h.owner = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	t.Cleanup(func() {
		h.client.CloseIdleConnections()
		h.owner.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := h.s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		wg.Wait()
		os.Remove(socket)
	})
	return h
}

// reply is a response that has been read.
type reply struct {
	*http.Response
	body string
}

func (r reply) error(t *testing.T) api.Error {
	t.Helper()
	var e api.Error
	d := json.NewDecoder(strings.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatalf("status %d, body %q is not an error: %v", r.StatusCode, r.body, err)
	}
	if e.Error == "" || e.Code == "" || e.RequestID == "" || e.RequestID != r.Header.Get("X-Request-Id") {
		t.Errorf("incomplete error %q", r.body)
	}
	return e
}

func (h *harness) do(client *http.Client, method, path, body string, header ...string) reply {
	h.t.Helper()
	if body != "" {
		header = append([]string{"Content-Type", "application/json"}, header...)
	}
	return h.send(client, method, path, strings.NewReader(body), header...)
}

// send is do with a body whose length the request may not tell.
func (h *harness) send(client *http.Client, method, path string, body io.Reader, header ...string) reply {
	h.t.Helper()
	req, err := http.NewRequest(method, h.url+path, body)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.doc.check(method, req.URL.Path, resp.StatusCode, resp.Header, string(b)); err != nil {
		h.t.Errorf("undocumented: %v", err)
	}
	return reply{resp, string(b)}
}

func (h *harness) get(path string, header ...string) reply {
	return h.do(h.client, "GET", path, "", header...)
}

func (h *harness) post(path, body string, header ...string) reply {
	return h.do(h.client, "POST", path, body, header...)
}

const snippet = `{"language":"python","code":"print(1)"}`

func decode[T any](t *testing.T, r reply, status int) T {
	t.Helper()
	var v T
	if r.StatusCode != status {
		t.Fatalf("status %d, want %d: %s", r.StatusCode, status, r.body)
	}
	d := json.NewDecoder(strings.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
	return v
}

func TestExecute(t *testing.T) {
	h := start(t, nil)
	r := h.post("/execute",
		`{"language":"python","code":"print(1)","args":["a","b c"],"timeout":2.5,"env":{"A":"b"},"stdin":"in",
		"limits":{"memory_mb":64,"pids_limit":5,"disk_mb":2,"cpus":0.5,"inodes":100,"open_files":32,"stdout_kb":4,"stderr_kb":2},
		"files":[{"path":"d/x.txt","content":"aGk=","encoding":"base64","mode":448},{"path":"y","content":"é"}],"engine":"fake","isolation":"gvisor","image":"debian:stable"}`)
	e := decode[api.Execution](t, r, 200)
	if e.Output != "hello\n" || e.Stderr != "oops\n" || e.ExitCode != 3 || e.Status != api.StatusCompleted ||
		e.Duration != 1.5 || e.Usage.CPUTimeMS != 20 ||
		e.Usage.MemoryPeakMB != 8 || e.SecurityEvents == nil || e.FinishedAt == nil || e.ID == "" ||
		e.ID != r.Header.Get(api.ExecutionIDHeader) {
		t.Errorf("got %+v", e)
	}
	q := h.fake.request()
	want := cove.Limits{Memory: 64 << 20, CPUs: .5, PIDs: 5, Disk: 2 << 20, Inodes: 100, OpenFiles: 32, Stdout: 4 << 10,
		Stderr: 2 << 10, Timeout: 2500 * time.Millisecond}
	if q.Limits != want || string(q.Code) != "print(1)" || q.Env["A"] != "b" || fmt.Sprint(q.Args) != "[a b c]" ||
		h.fake.who != caller || q.Image != "debian:stable" ||
		q.Isolation != cove.IsolationGVisor {
		t.Errorf("the sandbox was asked for %+v", q)
	}
	if len(q.Files) != 2 || string(q.Files[0].Data) != "hi" || q.Files[0].Mode != 0o700 || q.Files[1].Mode != 0 ||
		string(q.Files[1].Data) != "é" {
		t.Errorf("files %+v", q.Files)
	}
	if r := h.post("/execute", `{"language":"python","code":"x","isolation":"jail"}`); r.StatusCode != 400 {
		t.Errorf("an isolation that there is not: status %d: %s", r.StatusCode, r.body)
	}
	if in, _ := io.ReadAll(q.Stdin); string(in) != "in" {
		t.Errorf("stdin %q", in)
	}
}

func TestOutputThatIsNotText(t *testing.T) {
	h := start(t, nil)
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		r := finished(id)
		r.Output = spool.Text("a\xffb\x00\x1b[2J\u2028", "")
		return r, nil
	}
	if e := decode[api.Execution](t, h.post("/execute", snippet), 200); e.Output != "a\uFFFDb\x00\x1b[2J\u2028" {
		t.Errorf("got %q", e.Output)
	}
}
