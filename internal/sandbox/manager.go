package sandbox

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/store"
)

// Images turns what a user calls an image into a root filesystem.
type Images interface {
	Resolve(ctx context.Context, ref string) (engine.Rootfs, error)
	// Hold keeps an image from being removed until release is called.
	Hold(ctx context.Context, digest string) (release func(), err error)
}

// Way is the way out of one sandbox.
type Way interface {
	// Bind adds what it needs inside a root filesystem to a binding.
	Bind(*engine.Binding, engine.Rootfs) error
	// Env is what leads programs to it.
	Env() map[string]string
	// Serve opens it, on the sockets that Bind asked for, in their order. It
	// takes them over.
	Serve(sockets []*os.File) error
	// Extend adds to the policy, at once, and says how many connections that
	// has cut.
	Extend(...*policy.Document) (cut int, err error)
	// Replace puts documents in the place of the policy, in the same way.
	Replace(...*policy.Document) (cut int, err error)
	// Rename says what the sandbox is called from now on.
	Rename(name string)
	// Certificate is that of the sandbox's own authority, as PEM.
	Certificate() []byte
	// Holds lists what waits for an answer, the oldest first, and a channel that
	// is closed when that changes.
	Holds() ([]approval.Hold, <-chan struct{})
	// EndBy limits how long what waits is shown to wait.
	EndBy(time.Time)
	// Denied lists what was tried and not allowed, as "--allow" takes it.
	Denied() []string
	// Models is what has been used of models, by provider.
	Models() []model.ProviderUsage
	// Concealed reads from without the values of credentials that are set, in which
	// their places are filled; offsets stay.
	Concealed(from io.Reader) io.Reader
	// Shut ends what uses it and lets nothing through from now on; all is recorded
	// when it returns. Close also removes it, which takes longer.
	Shut()
	Close()
}

// Options make a Manager. All are required.
type Options struct {
	Engines  *engine.Set // Close closes them
	Defaults cove.Spec   // as configured, beneath what is asked for
	Images   Images
	// NextWay names a sandbox for which OpenWay is called next, and may have
	// something ready by that name; nil: any name does.
	NextWay       func() cove.SandboxID
	OpenWay       func(who cove.Principal, id cove.SandboxID, of cove.ExecutionID, n Network) (Way, error)
	Store         store.Vault
	Instance      cove.InstanceID
	RunDir        string
	Bounds        runtime.Bounds
	MaxConcurrent int           // executions at once
	MaxQueued     int           // executions waiting for one to end
	Retention     time.Duration // how long finished executions are kept; 0 is for ever
	Clock         clock.Clock
	Log           *slog.Logger
}

// Manager runs executions. Its methods may be called concurrently.
type Manager struct {
	o       Options
	queue   *queue
	clean   sync.WaitGroup // destructions under way
	born    time.Time      // when the manager was made, by the wall clock
	began   clock.Instant  // and by the monotonic one
	calls   sync.WaitGroup // of Execute and changes of lasting sandboxes; added to under mu while not closed
	looking sync.WaitGroup // for the ends of lasting sandboxes
	serving sync.WaitGroup // the terminals of lasting sandboxes

	ending context.Context // ends when Close does not wait any more
	end    context.CancelFunc

	mu        sync.Mutex
	running   map[cove.ExecutionID]*execution
	commands  map[cove.ExecutionID]*command
	residents map[cove.SandboxID]*resident
	sharing   chan struct{} // holds one value: who puts it in may look for shared sandboxes, and make them
	lasting   *Lasting      // nil until AdoptSandboxes
	owner     bool          // of the lasting sandboxes
	closed    bool
}

// New makes a Manager.
func New(o Options) *Manager {
	ending, end := context.WithCancel(context.Background())
	return &Manager{
		ending: ending, end: end, residents: map[cove.SandboxID]*resident{}, sharing: make(chan struct{}, 1),
		o: o, queue: newQueue(o.MaxConcurrent, o.MaxQueued),
		running: map[cove.ExecutionID]*execution{}, commands: map[cove.ExecutionID]*command{}, born: o.Clock.Now(), began: o.Clock.Monotonic(),
	}
}

// Open opens the default engine, which otherwise happens when it is first
// needed.
func (m *Manager) Open() error {
	_, err := m.o.Engines.Get("")
	return err
}

// Active counts executions that have a sandbox or are getting one.
func (m *Manager) Active() int { return m.queue.active() }

// Queued counts executions that wait.
func (m *Manager) Queued() int { return m.queue.waiting() }

// Health maps each engine to "ok", engine.Unused, or the reason why it cannot be used.
func (m *Manager) Health(context.Context) map[string]string { return m.o.Engines.Health() }

// Kill ends a running execution of the principal's. Errors: NotFound, Conflict when it has
// ended or runs in another process of Cove.
func (m *Manager) Kill(ctx context.Context, who cove.Principal, id cove.ExecutionID) error {
	e, err := m.find(ctx, who, id)
	if err != nil {
		return err
	}
	e.end(endKilled)
	m.audit(ctx, who, store.Record{Action: "kill", Object: string(id), Verdict: "ok"})
	return nil
}

// Models returns what a running execution of the principal's has used of models so far;
// nothing if it does not run here.
func (m *Manager) Models(who cove.Principal, id cove.ExecutionID) []api.ModelUsage {
	m.mu.Lock()
	e := m.running[id]
	m.mu.Unlock()
	if e == nil || !who.Sees(e.who) {
		return nil
	}
	if way := e.wayOut(); way != nil {
		return model.API(way.Models())
	}
	return nil
}

// ExtendNetwork adds to the policy of a running execution of the principal's, and returns how
// many of its connections that has cut. Errors:
// InvalidArgument, NotFound, Conflict when it has ended, runs in another process
// of Cove, or has no network.
func (m *Manager) ExtendNetwork(ctx context.Context, who cove.Principal, id cove.ExecutionID, documents []*policy.Document) (cut int, err error) {
	way, err := m.wayOf(ctx, who, id)
	if err != nil {
		return 0, err
	}
	if cut, err = way.Extend(documents...); err == nil {
		m.audit(ctx, who, store.Record{Action: "network", Object: string(id), Verdict: "ok", Detail: describe(documents)})
	}
	return cut, err
}

// Certificate returns that of the authority which a running execution of the principal's
// trusts, as PEM. Errors: NotFound, Conflict, as ExtendNetwork's.
func (m *Manager) Certificate(ctx context.Context, who cove.Principal, id cove.ExecutionID) ([]byte, error) {
	way, err := m.wayOf(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return way.Certificate(), nil
}

// wayOf finds the way out of a running execution of the principal's.
func (m *Manager) wayOf(ctx context.Context, who cove.Principal, id cove.ExecutionID) (Way, error) {
	e, err := m.find(ctx, who, id)
	if err != nil {
		return nil, err
	}
	way := e.wayOut()
	if way == nil {
		return nil, cove.Errorf(cove.Conflict, "execution %s has no network, or not yet", id).WithHint("start it with --network or --allow")
	}
	return way, nil
}

// describe lists the rules of documents, for the record.
func describe(documents []*policy.Document) string {
	var ids []string
	for _, d := range documents {
		for _, r := range d.Rules {
			ids = append(ids, r.ID)
		}
	}
	return strings.Join(ids, ", ")
}

// Close stops accepting executions, gives those that run until ctx ends, kills
// the rest, and closes the engines. Sandboxes that last go on, without a way
// out until another process has them.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.queue.close()
	select {
	case <-m.queue.empty():
	case <-ctx.Done():
		m.killAll()
		<-m.queue.empty()
	}
	m.clean.Wait()
	defer m.end()
	defer context.AfterFunc(ctx, m.end)()
	m.calls.Wait() // their records are written last
	m.leaveResidents()
	defer m.serving.Wait() // they end with the connections to their guests
	return m.o.Engines.Close()
}

func (m *Manager) killAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.running {
		e.end(endKilled)
	}
}

// own returns the records as Cove itself sees them: for recovery, reaping and
// pruning, and for the life of a sandbox that was found for its caller.
func (m *Manager) own() store.Records { return m.o.Store.For(cove.System("")) }

// audit records what a principal did; a log that cannot be written is reported,
// because the record must not be missing silently.
func (m *Manager) audit(ctx context.Context, who cove.Principal, r store.Record) {
	r.Time = m.o.Clock.Now().UTC()
	if err := m.o.Store.For(who).Append(context.WithoutCancel(ctx), r); err != nil {
		m.o.Log.Error("cannot write the audit log", "action", r.Action, "object", r.Object, "error", err)
	}
}
