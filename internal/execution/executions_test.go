package execution_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var owner = cove.MachineOwner()

// house is an Executions with its surroundings: the in-memory engine, whose python3 is script, and a real store.
type house struct {
	*execution.Executions
	engine *fake.Engine
	store  store.Store
	clock  clock.Clock
	runDir string
	id     cove.InstanceID
	away   atomic.Bool // the engine cannot be opened

	mu      sync.Mutex
	outputs []*spool.Output // of results, guarded by mu; released at the end
}

// Execute is Execute of its Executions.
func (h *house) Execute(ctx context.Context, who cove.Principal, r execution.Request, started func(cove.ExecutionID),
	out process.Output) (execution.Result, error) {
	result, err := h.Executions.Execute(ctx, who, r, started, out)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outputs = append(h.outputs, result.Output)
	return result, err
}

type option func(*execution.Options)

func newHouse(t *testing.T, script fake.Program, with ...option) *house {
	t.Helper()
	return newHouseOf(t, script, func(s store.Store) store.Store { return s }, with...)
}

// newHouseOf is newHouse with a store in the place of the real one.
func newHouseOf(t *testing.T, script fake.Program, records func(store.Store) store.Store, with ...option) *house {
	t.Helper()
	runDir := t.TempDir()
	in, err := instance.Hold(runDir)
	if err != nil {
		t.Fatal(err)
	}
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "cove.db"))
	if err != nil {
		t.Fatal(err)
	}
	h := &house{
		engine: fake.New(fake.Options{Programs: map[string]fake.Program{"python3": script}}),
		store:  st, clock: clock.Real(), runDir: runDir, id: in.ID,
	}
	o := execution.Options{
		Engines: engine.NewSet("fake", engine.Source{Name: "fake",
			Open: func() (engine.Engine, error) {
				if h.away.Load() {
					return nil, cove.Errorf(cove.Unavailable, "the engine is away")
				}
				return h.engine, nil
			}}),
		Images: oneImage{}, Store: store.NewVault(records(st)), Instance: in.ID, RunDir: runDir, Spool: newSpool(t),
		MaxConcurrent: 4, MaxQueued: 4, Clock: h.clock, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, f := range with {
		f(&o)
	}
	h.Executions, h.clock = execution.New(o), o.Clock
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		h.Close(ctx)
		for _, o := range h.outputs {
			o.Release()
		}
		if err := o.Engines.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := h.engine.Live(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		st.Close()
		in.Release()
	})
	return h
}

// newSpool returns a spool in which nothing is left at the end of a test.
func newSpool(t *testing.T) *spool.Spool {
	s := spool.New(spool.Options{Dir: t.TempDir(), Memory: 1 << 20, Disk: 1 << 30})
	t.Cleanup(func() {
		if memory, disk := s.Used(); memory != 0 || disk != 0 {
			t.Errorf("outputs still take %d bytes of memory and %d of disk", memory, disk)
		}
	})
	return s
}

// stdout returns the standard output of a result.
func stdout(t *testing.T, r execution.Result) string {
	t.Helper()
	s, err := r.Output.Stdout().String(1 << 30)
	if err != nil {
		t.Error(err)
	}
	return s
}

// oneImage has the image "oci:there".
type oneImage struct{}

func (oneImage) Resolve(_ context.Context, ref string) (engine.Rootfs, error) {
	if ref != "oci:there" {
		return engine.Rootfs{}, cove.Errorf(cove.ImageMissing, "no image %s", ref)
	}
	return engine.Rootfs{Kind: engine.RootfsDir, Dir: os.TempDir(), Digest: "sha256:1"}, nil
}

func python(code string) execution.Request {
	return execution.Request{Language: "python", Code: []byte(code)}
}

func (oneImage) Hold(context.Context, string) (func(), error) { return func() {}, nil }

// output collects what it is sent.
type output struct {
	mu             sync.Mutex
	stdout, stderr strings.Builder
	err            error
}

func (o *output) Stdout(p []byte) error { return o.write(&o.stdout, p) }
func (o *output) Stderr(p []byte) error { return o.write(&o.stderr, p) }

func (o *output) write(to *strings.Builder, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	to.Write(p)
	return o.err
}

func say(p *fake.Process) int {
	fmt.Fprint(p.Stdout, "hello")
	fmt.Fprint(p.Stderr, "oh")
	return 3
}

// untilKilled runs until somebody kills it.
func untilKilled(p *fake.Process) int {
	fmt.Fprint(p.Stdout, "begun")
	<-p.Context.Done()
	return 0
}

func TestExecute(t *testing.T) {
	h := newHouse(t, say)
	var out output
	var id cove.ExecutionID
	r, err := h.Execute(t.Context(), owner, python("print(1)"), func(x cove.ExecutionID) { id = x }, &out)
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 3 || stdout(t, r) != "hello" || out.stdout.String() != "hello" || out.stderr.String() != "oh" ||
		r.ID != id || r.Limit != "" {
		t.Errorf("result %+v, streamed %q %q", r, out.stdout.String(), out.stderr.String())
	}
	stored, err := h.store.Get(t.Context(), id)
	if err != nil || stored.Status != cove.StatusCompleted || stored.Output != "hello" || stored.ExitCode != 3 ||
		stored.FinishedAt == nil {
		t.Errorf("stored %+v, %v", stored, err)
	}
	log, err := h.store.Audit(t.Context(), store.AuditQuery{Object: string(id), Limit: 10})
	if err != nil || len(log.Records) != 1 || log.Records[0].Verdict != "ok" {
		t.Errorf("audit %+v, %v", log, err)
	}
}

// TestRecordHasTheSpec as it was in force, without the values of variables.
func TestRecordHasTheSpec(t *testing.T) {
	h := newHouse(t, say, func(o *execution.Options) { o.Defaults.Isolation = cove.IsolationContainer })
	q := python("pass")
	q.Env, q.Limits = map[string]string{"TOKEN": "secret"}, cove.Limits{Memory: 64 << 20}
	q.Labels = map[string]string{"team": "a"}
	r, err := h.Execute(t.Context(), owner, q, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := h.store.Get(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r.Limits != stored.Spec.Limits || r.Record().Spec.Limits != stored.Spec.Limits || r.Limits.Timeout == 0 {
		t.Errorf("the result has the limits %+v, its record %+v", r.Limits, stored.Spec.Limits)
	}
	spec := stored.Spec
	if spec.Engine != "fake" || spec.Isolation != cove.IsolationContainer || spec.User != cove.CodeUser ||
		spec.Labels["team"] != "a" ||
		spec.Limits.Memory != 64<<20 || spec.Limits.PIDs == 0 || spec.Env != nil {
		t.Errorf("%+v", spec)
	}
}

// TestTimeouts: the machine's owner may have code take hours, a caller with a key a minute.
func TestTimeouts(t *testing.T) {
	h := newHouse(t, say)
	q := python("pass")
	q.Limits.Timeout = 2 * time.Hour
	if _, err := h.Execute(t.Context(), owner, q, nil, nil); err != nil {
		t.Errorf("the owner: %v", err)
	}
	_, err := h.Execute(t.Context(), cove.KeyHolder("ci"), q, nil, nil)
	if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), "0.001 s to 60 s") {
		t.Errorf("a key: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	h := newHouse(t, say)
	tests := map[string]struct {
		change func(*execution.Request)
		code   cove.Code
		says   string
	}{
		"unknown language": {func(r *execution.Request) { r.Language = "cobol" }, cove.InvalidArgument, "cobol"},
		"no code":          {func(r *execution.Request) { r.Code = nil }, cove.InvalidArgument, "no code"},
		"too much code": {func(r *execution.Request) { r.Code = make([]byte, execution.MaxCode+1) },
			cove.TooLarge, "at most"},
		"not UTF-8":       {func(r *execution.Request) { r.Code = []byte{0xff} }, cove.InvalidArgument, "UTF-8"},
		"negative memory": {func(r *execution.Request) { r.Limits.Memory = -1 }, cove.InvalidArgument, "out of range"},
		"absurd CPUs": {func(r *execution.Request) { r.Limits.CPUs = 1e9 }, cove.InvalidArgument,
			"cpus of 1000000000 is out of range (ask for 0.01 to 64"},
		"timeout too long": {func(r *execution.Request) { r.Limits.Timeout = 25 * time.Hour }, cove.InvalidArgument,
			"timeout of 90000 s is out of range (ask for 0.001 s to 86400 s"},
		"file that climbs": {func(r *execution.Request) { r.Files = []provision.File{{Path: "../x"}} },
			cove.InvalidArgument, "relative"},
		"file of a long name": {func(r *execution.Request) {
			r.Files = []provision.File{{Path: "a/" + strings.Repeat("x", 256) + "/b"}}
		}, cove.InvalidArgument, "255 bytes"},
		"absolute file": {func(r *execution.Request) { r.Files = []provision.File{{Path: "/etc/x"}} },
			cove.InvalidArgument, "relative"},
		"NUL in an argument": {func(r *execution.Request) { r.Args = []string{"a\x00b"} }, cove.InvalidArgument, "NUL"},
		"too many arguments": {func(r *execution.Request) { r.Args = []string{strings.Repeat("x", 1<<20)} },
			cove.TooLarge, "at most"},
		"loader variable": {func(r *execution.Request) { r.Env = map[string]string{"LD_PRELOAD": "x"} },
			cove.Forbidden, "LD_PRELOAD"},
		"mount over /proc": {func(r *execution.Request) { r.Mounts = []cove.Mount{{Source: "/tmp", Target: "/proc"}} },
			cove.InvalidArgument, "/proc"},
		"mount over the code": {func(r *execution.Request) { r.Mounts = []cove.Mount{{Source: "/tmp", Target: "/work/."}} },
			cove.InvalidArgument, "over what is on the host"},
		"mount as the code": {func(r *execution.Request) {
			r.Mounts = []cove.Mount{{Source: "/tmp",
				Target: "/work/main.py"}}
		}, cove.InvalidArgument, "over what is on the host"},
		"file into a mount": {func(r *execution.Request) {
			r.Mounts, r.Files = []cove.Mount{{Source: "/tmp", Target: "/work/data"}}, []provision.File{{Path: "data/x"}}
		}, cove.InvalidArgument, "over what is on the host"},
		"file over the code": {func(r *execution.Request) {
			r.Files = []provision.File{{Path: "main.py",
				Data: []byte("other")}}
		}, cove.InvalidArgument, "another name"},
		"missing image": {func(r *execution.Request) { r.Image = "oci:nowhere" }, cove.ImageMissing, "nowhere"},
		"isolation it lacks": {func(r *execution.Request) { r.Isolation = cove.IsolationMicroVM }, cove.Unsupported,
			"isolation microvm (it has container)"},
		"malformed network": {func(r *execution.Request) { r.Network = &cove.Network{Enabled: true, Allow: []string{"a b"}} },
			cove.InvalidArgument, "a b"},
		"the program of an image with code": {func(r *execution.Request) { r.Language, r.Image = "Image", "x" },
			cove.InvalidArgument, "no code"},
		"the program of no image": {func(r *execution.Request) { r.Language, r.Code = "image", nil },
			cove.InvalidArgument, "no image is named"},
		"an entrypoint of a language": {func(r *execution.Request) { r.Entrypoint = []string{"id"} },
			cove.InvalidArgument, "not for python"},
		"an empty entrypoint": {func(r *execution.Request) {
			r.Language, r.Image, r.Code, r.Entrypoint = "image", "x", nil, []string{""}
		}, cove.InvalidArgument, "--entrypoint"},
		"unknown engine": {func(r *execution.Request) { r.Engine = "vax" }, cove.InvalidArgument, "vax"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := python("print(1)")
			tt.change(&r)
			_, err := h.Execute(t.Context(), owner, r, nil, nil)
			if cove.ErrorCode(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v (%s), want %s that says %q", err, cove.ErrorCode(err), tt.code, tt.says)
			}
		})
	}
	if n := h.engine.Prepared(); n != 0 {
		t.Errorf("%d sandboxes were made for refused requests", n)
	}
}

func TestEscapeAttemptIsRefusedAndRecorded(t *testing.T) {
	h := newHouse(t, say)
	r, err := h.Execute(t.Context(), owner, execution.Request{Language: "bash",
		Code: []byte("nsenter -t 1 -m -u -i -n -p sh\necho x > /sys/fs/cgroup/rdma/release_agent\n")}, nil, nil)
	if cove.ErrorCode(err) != cove.Forbidden || len(r.Events) == 0 {
		t.Fatalf("got %+v, %v", r, err)
	}
	page, err := h.store.List(t.Context(), store.Query{Status: cove.StatusRefused, Limit: 10})
	if err != nil || len(page.Executions) != 1 || len(page.Executions[0].Events) == 0 {
		t.Errorf("stored %+v, %v", page, err)
	}
}

func TestTimeout(t *testing.T) {
	manual := clocktest.NewManual(time.Now())
	h := newHouse(t, untilKilled, func(o *execution.Options) { o.Clock = manual })
	done := make(chan execution.Result)
	go func() {
		r, err := h.Execute(t.Context(), owner, python("while True: pass"), nil, nil)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	manual.BlockUntil(1)
	manual.Jump(time.Hour) // the wall clock is not what bounds a run
	select {
	case r := <-done:
		t.Fatalf("a jump of the wall clock ended it: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	manual.Advance(10 * time.Second)
	r := <-done
	if r.Limit != cove.LimitTimeout || r.ExitCode != -1 || stdout(t, r) != "begun" {
		t.Errorf("%+v", r)
	}
	if r.Status() != cove.StatusTimeout {
		t.Errorf("status %s", r.Status())
	}
}

func TestKill(t *testing.T) {
	h := newHouse(t, untilKilled)
	started := make(chan cove.ExecutionID, 1)
	done := make(chan execution.Result)
	go func() {
		r, _ := h.Execute(t.Context(), owner, python("wait"), func(id cove.ExecutionID) { started <- id }, nil)
		done <- r
	}()
	id := <-started
	if err := h.Kill(t.Context(), owner, id); err != nil {
		t.Fatal(err)
	}
	if r := <-done; !r.Killed || r.ExitCode != -1 {
		t.Errorf("%+v", r)
	}
	if err := h.Kill(t.Context(), owner, id); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("killing twice: %v", err)
	}
	if err := h.Kill(t.Context(), owner, cove.NewExecutionID()); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("killing nothing: %v", err)
	}
}

func TestCallerLeaves(t *testing.T) {
	h := newHouse(t, untilKilled)
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan cove.ExecutionID, 1)
	done := make(chan execution.Result)
	go func() {
		r, _ := h.Execute(ctx, owner, python("wait"), func(id cove.ExecutionID) { started <- id }, nil)
		done <- r
	}()
	id := <-started
	cancel()
	<-done
	stored, err := h.store.Get(t.Context(), id)
	if err != nil || stored.Status != cove.StatusKilled {
		t.Errorf("stored %+v, %v", stored, err)
	}
}

// TestCloseWaitsForRecords: a caller that leaves while Executions closes is
// recorded before Close returns, because the store is closed next.
func TestCloseWaitsForRecords(t *testing.T) {
	finishing := make(chan struct{})
	var slow *slowStore
	h := newHouseOf(t, untilKilled, func(s store.Store) store.Store {
		slow = &slowStore{Store: s, finishing: finishing}
		return slow
	})
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan cove.ExecutionID, 1)
	go h.Execute(ctx, owner, python("wait"), func(id cove.ExecutionID) { started <- id }, nil)
	<-started
	cancel()
	<-finishing
	h.Close(t.Context())
	if !slow.finished.Load() {
		t.Error("Close returned before the end of the execution was recorded")
	}
	if _, err := h.Execute(t.Context(), owner, python("x"), nil, nil); cove.ErrorCode(err) != cove.Shutdown {
		t.Errorf("after Close: %v", err)
	}
}

// slowStore takes its time to record an end.
type slowStore struct {
	store.Store
	finishing chan struct{}
	finished  atomic.Bool
}

func (s *slowStore) Finish(ctx context.Context, e store.Execution, r store.Record) error {
	close(s.finishing)
	time.Sleep(200 * time.Millisecond) // sleep: the store is slow
	defer s.finished.Store(true)
	return s.Store.Finish(ctx, e, r)
}

// TestUnrecorded: an answer says that its result is not in the history, which has no other end of it, and gets this one
// when it can be written to again.
func TestUnrecorded(t *testing.T) {
	full := &fullStore{}
	h := newHouseOf(t, say, func(s store.Store) store.Store { full.Store = s; return full })
	recorded := func(id cove.ExecutionID) (store.Execution, int) {
		t.Helper()
		e, err := h.store.Get(t.Context(), id)
		log, err2 := h.store.Audit(t.Context(), store.AuditQuery{Object: string(id), Limit: 10})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return e, len(log.Records)
	}
	good, err := h.Execute(t.Context(), owner, python("x"), nil, nil)
	if e, lines := recorded(good.ID); err != nil || good.Unrecorded || e.Output != "hello" || lines != 1 {
		t.Fatalf("%+v, %+v, %v", good, e, err)
	}
	unrecorded(t, h, full, recorded, "the reaper", func() error { return h.Reap(t.Context()) })
	unrecorded(t, h, full, recorded, "the next end", func() error {
		_, err := h.Execute(t.Context(), owner, python("x"), nil, nil)
		return err
	})
	unrecorded(t, h, full, recorded, "the close", func() error { h.Close(t.Context()); return nil })
}

func unrecorded(t *testing.T, h *house, full *fullStore, recorded func(cove.ExecutionID) (store.Execution, int),
	name string, again func() error) {
	t.Helper()
	full.is.Store(true)
	r, err := h.Execute(t.Context(), owner, python("x"), nil, nil)
	e, lines := recorded(r.ID)
	if err != nil || !r.Unrecorded || stdout(t, r) != "hello" || e.Status != cove.StatusRunning || lines != 0 {
		t.Errorf("%s: %+v, %+v, %d lines, %v", name, r, e, lines, err)
	}
	if e := h.Known(e); e.Status != cove.StatusCompleted || e.Output != "hello" {
		t.Errorf("%s: known as %+v", name, e)
	}
	full.is.Store(false)
	if err := again(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { e, lines = recorded(r.ID); return e.Status != cove.StatusRunning })
	if e.Status != cove.StatusCompleted || e.Output != "hello" || e.OutputGone != "" || lines != 1 {
		t.Errorf("%s: afterwards %+v, %d lines", name, e, lines)
	}
}

// fullStore records no end while it is full.
type fullStore struct {
	store.Store
	is atomic.Bool
}

func (s *fullStore) Finish(ctx context.Context, e store.Execution, r store.Record) error {
	if s.is.Load() {
		return cove.Errorf(cove.StorageFull, "the disk is full")
	}
	return s.Store.Finish(ctx, e, r)
}

// TestRetriesBesideCallers: outcomes that wait are written by one at a time, for which no caller waits but Close.
func TestRetriesBesideCallers(t *testing.T) {
	stuck := &stuckStore{retried: make(chan struct{}, 10), free: make(chan struct{})}
	h := newHouseOf(t, say, func(s store.Store) store.Store { stuck.Store = s; return stuck })
	first, err := h.Execute(t.Context(), owner, python("x"), nil, nil)
	if err != nil || !first.Unrecorded {
		t.Fatalf("%+v, %v", first, err)
	}
	for range 3 {
		if r, err := h.Execute(t.Context(), owner, python("x"), nil, nil); err != nil || r.Unrecorded {
			t.Errorf("%+v, %v", r, err)
		}
	}
	<-stuck.retried
	close(stuck.free)
	h.Close(t.Context())
	if len(stuck.retried) > 0 {
		t.Errorf("it was written %d times more", len(stuck.retried))
	}
	if e, err := h.store.Get(t.Context(), first.ID); err != nil || e.Output != "hello" {
		t.Errorf("%+v, %v", e, err)
	}
}

// stuckStore refuses the first end, and then hangs on it.
type stuckStore struct {
	store.Store
	mu            sync.Mutex
	first         cove.ExecutionID
	retried, free chan struct{}
}

func (s *stuckStore) Finish(ctx context.Context, e store.Execution, r store.Record) error {
	s.mu.Lock()
	begun := s.first == ""
	if begun {
		s.first = e.ID
	}
	again := s.first == e.ID
	s.mu.Unlock()
	if begun {
		return cove.Errorf(cove.Unavailable, "another process has held the database")
	}
	if again {
		s.retried <- struct{}{}
		<-s.free
	}
	return s.Store.Finish(ctx, e, r)
}

// TestEscapeAttemptOnAFullDisk: where no execution can begin, the audit log has the attempt.
func TestEscapeAttemptOnAFullDisk(t *testing.T) {
	h := newHouseOf(t, say, func(s store.Store) store.Store { return beginless{s} })
	_, err := h.Execute(t.Context(), owner, execution.Request{Language: "bash",
		Code: []byte("echo x > /sys/fs/cgroup/rdma/release_agent\n")}, nil, nil)
	if cove.ErrorCode(err) != cove.Forbidden {
		t.Fatal(err)
	}
	log, err := h.store.Audit(t.Context(), store.AuditQuery{Verdict: "deny", Limit: 10})
	if err != nil || len(log.Records) != 1 || log.Records[0].Who != owner.String() {
		t.Errorf("%+v, %v", log, err)
	}
}

// beginless begins no execution, as on a full disk.
type beginless struct{ store.Store }

func (beginless) Begin(context.Context, store.Execution) error {
	return cove.Errorf(cove.StorageFull, "the disk is full")
}

// TestRecordedBeforeTheID: an execution can be read and killed from the moment its id is given.
func TestRecordedBeforeTheID(t *testing.T) {
	h := newHouseOf(t, say, func(s store.Store) store.Store { return &lateStore{s} })
	_, err := h.Execute(t.Context(), owner, python("x"), func(id cove.ExecutionID) {
		if e, err := h.store.Get(t.Context(), id); err != nil || e.Status != cove.StatusRunning {
			t.Errorf("%+v, %v", e, err)
		}
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

// lateStore takes its time to record a beginning.
type lateStore struct{ store.Store }

func (s *lateStore) Begin(ctx context.Context, e store.Execution) error {
	time.Sleep(20 * time.Millisecond) // sleep: the store is slow
	return s.Store.Begin(ctx, e)
}

func TestReceiverFails(t *testing.T) {
	h := newHouse(t, untilKilled)
	r, err := h.Execute(t.Context(), owner, python("wait"), nil, &output{err: errors.New("broken pipe")})
	if err != nil || !r.Killed {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestInputIsStreamed(t *testing.T) {
	h := newHouse(t, func(p *fake.Process) int { io.Copy(p.Stdout, p.Stdin); return 0 })
	r := python("echo")
	text := strings.Repeat("0123456789", 60_000)
	r.Stdin = strings.NewReader(text)
	res, err := h.Execute(t.Context(), owner, r, nil, nil)
	if err != nil || stdout(t, res) != text {
		t.Errorf("%d bytes came back, %v", res.Output.Stdout().Size(), err)
	}
}

func TestOutputLimit(t *testing.T) {
	h := newHouse(t, func(p *fake.Process) int { fmt.Fprint(p.Stdout, strings.Repeat("x", 5000)); return 0 })
	r := python("flood")
	r.Limits.Stdout = 1024
	res, err := h.Execute(t.Context(), owner, r, nil, nil)
	if err != nil || len(stdout(t, res)) != 1024 || !res.Truncated || res.Limit != "" {
		t.Errorf("%d bytes, truncated %v, limit %q, %v", res.Output.Stdout().Size(), res.Truncated, res.Limit, err)
	}
}

// TestNoRoomForOutput: the caller that listens receives an output up to its limit, also where there is no room to keep
// it. What was kept is the same for the result and the history, and the result says that it is not all.
func TestNoRoomForOutput(t *testing.T) {
	const limit = 3 << 20
	text := strings.Repeat("0123456789abcdef", 1<<18)
	for _, room := range []int64{0, 2 << 20} {
		small := spool.New(spool.Options{Dir: t.TempDir(), Memory: 1 << 10, Disk: room})
		h := newHouse(t, func(p *fake.Process) int { fmt.Fprint(p.Stdout, text); return 3 },
			func(o *execution.Options) { o.Spool = small })
		r := python("flood")
		r.Limits.Stdout = limit
		var out output
		res, err := h.Execute(t.Context(), owner, r, nil, &out)
		if err != nil {
			t.Fatal(err)
		}
		got := stdout(t, res)
		if res.ExitCode != 3 || res.Limit != "" || !res.Truncated || int64(len(got)) > room+17<<10 || len(got) == 0 ||
			!strings.HasPrefix(text, got) || out.stdout.String() != text[:limit] {
			t.Errorf("%d of disk: %d bytes, %d for the caller, truncated %v, %q", room, len(got), out.stdout.Len(),
				res.Truncated, res.Limit)
		}
		if _, _, err := h.Recorded(t.Context(), owner, res.ID); room == 0 && cove.ErrorCode(err) != cove.Overloaded {
			t.Errorf("while there is no room: %v", err)
		}
		res.Output.Release()
		e, o, err := h.Recorded(t.Context(), owner, res.ID)
		if err != nil || !e.Truncated {
			t.Fatalf("recorded: %+v, %v", e, err)
		}
		kept, err := o.Stdout().String(1 << 30)
		if want := got[:min(len(got), store.MaxOutput)]; err != nil || kept != want {
			t.Errorf("the history has %d bytes, want %d: %v", len(kept), len(want), err)
		}
		o.Release()
	}
}

// TestEndsTogether: the texts of many large outputs are not in memory at once, and no end waits for ever.
func TestEndsTogether(t *testing.T) {
	text := strings.Repeat("\xff0123456789abcdef", 1<<17) // more than the history has
	h := newHouse(t, func(p *fake.Process) int { fmt.Fprint(p.Stdout, text); fmt.Fprint(p.Stderr, text); return 0 },
		func(o *execution.Options) { o.MaxConcurrent = 16 })
	want := strings.ToValidUTF8(text, "\uFFFD")[:store.MaxOutput]
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			r := python("flood")
			r.Limits.Stdout, r.Limits.Stderr = 4<<20, 4<<20
			res, err := h.Execute(t.Context(), owner, r, nil, nil)
			if err != nil || res.Truncated || res.Unrecorded {
				t.Errorf("%+v, %v", res, err)
				return
			}
			e, err := h.store.Get(t.Context(), res.ID)
			if err != nil || !e.Truncated || !strings.HasPrefix(want, e.Output) ||
				len(e.Output) < store.MaxOutput-2 || e.Stderr != e.Output {
				t.Errorf("the history has %d and %d bytes: %v", len(e.Output), len(e.Stderr), err)
			}
		})
	}
	all.Wait()
}

func TestEngineFaults(t *testing.T) {
	boom := cove.Errorf(cove.Unavailable, "boom")
	tests := map[string]struct {
		faults fake.Faults
		code   cove.Code
	}{
		"prepare fails": {fake.Faults{Prepare: boom}, cove.Unavailable},
		"no more files": {fake.Faults{Prepare: os.NewSyscallError("pipe2", syscall.EMFILE)}, cove.Overloaded},
		"bind fails":    {fake.Faults{Bind: boom}, cove.Unavailable},
		"guest dies":    {fake.Faults{DieAfter: 20 * time.Millisecond}, cove.Internal},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, untilKilled)
			h.engine.Inject(tt.faults)
			_, err := h.Execute(t.Context(), owner, python("x"), nil, nil)
			if cove.ErrorCode(err) != tt.code {
				t.Fatalf("got %v (%s), want %s", err, cove.ErrorCode(err), tt.code)
			}
			page, err := h.store.List(t.Context(), store.Query{Limit: 10})
			if err != nil || len(page.Executions) != 1 || page.Executions[0].Status != cove.StatusFailed ||
				page.Executions[0].Error == "" {
				t.Errorf("stored %+v, %v", page.Executions, err)
			}
			// The place is free again.
			h.engine.Inject(fake.Faults{})
			r := python("x")
			r.Limits.Timeout = 50 * time.Millisecond
			for range 6 {
				if _, err := h.Execute(t.Context(), owner, r, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestOverload(t *testing.T) {
	h := newHouse(t, untilKilled, func(o *execution.Options) { o.MaxConcurrent, o.MaxQueued = 1, 1 })
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	for range 2 {
		runs.Go(func() { h.Execute(ctx, owner, python("x"), nil, nil) })
	}
	eventually(t, func() bool { return h.Load().Running == 1 && h.Load().Waiting == 1 })
	_, err := h.Execute(t.Context(), owner, python("x"), nil, nil)
	if cove.ErrorCode(err) != cove.Overloaded {
		t.Errorf("got %v", err)
	}
	cancel()
	runs.Wait()
	eventually(t, func() bool { return h.Load().Running == 0 && h.Load().Waiting == 0 })
}

func TestManyAtOnce(t *testing.T) {
	h := newHouse(t, say, func(o *execution.Options) { o.MaxConcurrent, o.MaxQueued = 8, 100 })
	var runs sync.WaitGroup
	for range 60 {
		runs.Go(func() {
			if r, err := h.Execute(t.Context(), owner, python("x"), nil, nil); err != nil || stdout(t, r) != "hello" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	runs.Wait()
}

func TestCloseKillsWhatDoesNotEnd(t *testing.T) {
	h := newHouse(t, untilKilled)
	done := make(chan execution.Result)
	started := make(chan cove.ExecutionID, 1)
	go func() {
		r, _ := h.Execute(t.Context(), owner, python("x"), func(id cove.ExecutionID) { started <- id }, nil)
		done <- r
	}()
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	h.Close(ctx)
	r := <-done
	if !r.Killed || !r.Shutdown {
		t.Errorf("%+v", r)
	}
	if stored, err := h.store.Get(t.Context(), r.ID); err != nil || stored.Status != cove.StatusShutdown ||
		!strings.Contains(stored.Error, "run it again") {
		t.Errorf("stored %+v, %v", stored, err)
	}
	if _, err := h.Execute(t.Context(), owner, python("x"), nil, nil); cove.ErrorCode(err) != cove.Shutdown {
		t.Errorf("after Close: %v", err)
	}
}

func TestReap(t *testing.T) {
	h := newHouse(t, say)
	if _, err := h.Execute(t.Context(), owner, python("x"), nil, nil); err != nil { // opens the engine
		t.Fatal(err)
	}
	dead := cove.NewInstanceID() // never held a lock
	lost := store.Execution{ID: cove.NewExecutionID(), Language: "python", Status: cove.StatusRunning, ExitCode: -1,
		CreatedAt: time.Now(), Instance: dead}
	if err := h.store.Begin(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	h.engine.LeaveBehind("a group")
	if err := h.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, err := h.store.Get(t.Context(), lost.ID)
	if err != nil || stored.Status != cove.StatusFailed {
		t.Errorf("%+v, %v", stored, err)
	}
	log, _ := h.store.Audit(t.Context(), store.AuditQuery{Action: "sweep", Limit: 10})
	if len(log.Records) != 1 {
		t.Errorf("audit %+v", log)
	}
	ids, err := instance.List(h.runDir)
	if err != nil || !slices.Equal(ids, []cove.InstanceID{h.id}) {
		t.Errorf("instances %v, %v", ids, err)
	}
}

// TestReapOpensWhatWasUsed: an engine that only a dead instance has used is opened, to sweep it. What cannot be opened
// is an error, and the instance stays for the next time.
func TestReapOpensWhatWasUsed(t *testing.T) {
	h := newHouse(t, say)
	crashed, err := instance.Hold(h.runDir)
	if err == nil {
		err = instance.Note(h.runDir, crashed.ID, "fake")
	}
	if err != nil {
		t.Fatal(err)
	}
	crashed.Lock().Close() // as the kernel does at the end of the process
	h.engine.LeaveBehind("a group")
	h.away.Store(true)
	if err := h.Reap(t.Context()); cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "fake") {
		t.Errorf("without the engine: %v", err)
	}
	if used := instance.Noted(h.runDir, crashed.ID); !slices.Equal(used, []string{"fake"}) {
		t.Errorf("without the engine, the instance has used %q", used)
	}
	h.away.Store(false)
	if err := h.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	log, _ := h.store.Audit(t.Context(), store.AuditQuery{Action: "sweep", Limit: 10})
	ids, err := instance.List(h.runDir)
	if len(log.Records) != 1 || err != nil || !slices.Equal(ids, []cove.InstanceID{h.id}) {
		t.Errorf("swept %+v; instances %v, %v", log, ids, err)
	}
}

func TestReapLeavesTheLivingAlone(t *testing.T) {
	h := newHouse(t, say)
	other, err := instance.Hold(h.runDir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	theirs := store.Execution{ID: cove.NewExecutionID(), Language: "python", Status: cove.StatusRunning, ExitCode: -1,
		CreatedAt: time.Now(), Instance: other.ID}
	if err := h.store.Begin(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if err := h.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stored, err := h.store.Get(t.Context(), theirs.ID); err != nil ||
		stored.Status != cove.StatusRunning {
		t.Errorf("%+v, %v", stored, err)
	}
	if !instance.Alive(h.runDir, other.ID) {
		t.Error("the lock of a living instance is gone")
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	await.That(t, "the execution gets there", ok)
}

func TestRetentionSurvivesClockJumps(t *testing.T) {
	manual := clocktest.NewManual(time.Now())
	h := newHouse(t, say, func(o *execution.Options) { o.Clock, o.Retention = manual, time.Hour })
	if _, err := h.Execute(t.Context(), owner, python("print(1)"), nil, nil); err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		t.Helper()
		if err := h.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		page, err := h.store.List(t.Context(), store.Query{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Executions)
	}
	for _, jump := range []time.Duration{10_000 * time.Hour, -20_000 * time.Hour, 10_000 * time.Hour} {
		manual.Jump(jump)
		if kept() != 1 {
			t.Errorf("a jump of %v took the history with it", jump)
		}
	}
	manual.Advance(2 * time.Hour)
	if kept() != 0 {
		t.Error("what is beyond its retention is still there")
	}
}
