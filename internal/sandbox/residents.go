package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
)

// residents are the long-lived sandboxes that this process holds, with their locks.
type residents struct {
	store.Auditor
	o       Options
	calls   sync.WaitGroup // changes of sandboxes, and commands; added to under mu while not closed
	serving sync.WaitGroup // the terminals and programs of sandboxes
	ended   chan struct{}  // closed when Close does not wait any more
	endOnce sync.Once

	mu     sync.Mutex
	held   map[cove.SandboxID]*resident
	host   *Host // nil until Adopt
	owner  bool  // this process holds the sandboxes
	closed bool

	enrolling sync.Mutex // held while a name is chosen and recorded; the last in the order of locks
}

// call counts a caller, for whom Close waits.
func (rs *residents) call() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		return cove.ShuttingDown()
	}
	rs.calls.Add(1)
	return nil
}

func (rs *residents) end() { rs.endOnce.Do(func() { close(rs.ended) }) }

// atEnd calls f when Close does not wait any more, unless stop is called before.
func (rs *residents) atEnd(f func()) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		select {
		case <-rs.ended:
			f()
		case <-stopped:
		}
	}()
	return sync.OnceFunc(func() { close(stopped) })
}

// resident is a long-lived sandbox in this process.
type resident struct {
	id   cove.SandboxID
	turn chan struct{} // holds one value: who takes it may change its life

	// residents.mu guards the rest.
	box  *provision.Sandbox // nil while it does not run, or in another process
	open opened
	made []hostpath.Made // in mounts, until it ended last; nil once a caller has been told

	doomed   bool // it is to be removed, for which its record lacks room
	keepWork bool // when it is doomed: its work stays
	retried  bool // another attempt is due
}

// opened is the part of a running sandbox on the host, beside the engine's.
type opened struct {
	route egress.Route // nil without a network
	git   workGit      // of a repository that is not inside
	env   []string
	ttys  *terminals.Set
	runs  *serviceProgram // of a service, once it is started; nil in every other sandbox
	cpu   *cpuMeter
	left  chan struct{} // closed when its end needs no watch any more
	close func()        // the way and services, and lets go of the image
}

// owns returns an error unless this process holds the sandboxes.
func (rs *residents) owns() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.ownsLocked()
}

func (rs *residents) ownsLocked() error {
	switch {
	case rs.closed:
		return cove.ShuttingDown()
	case !rs.owner:
		return cove.Errorf(cove.Unavailable, "only a server has long-lived sandboxes").
			WithHint("start one with \"cove serve\"")
	}
	return nil
}

// residentLocked returns the resident of an id, new if there is none. mu must be held.
func (rs *residents) residentLocked(id cove.SandboxID) *resident {
	r := rs.held[id]
	if r == nil {
		r = &resident{id: id, turn: make(chan struct{}, 1)}
		rs.held[id] = r
	}
	return r
}

// tell returns what a sandbox made in mounts until it ended, once. Its turn must be held.
func (rs *residents) tell(r *resident) []hostpath.Made {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	made := r.made
	r.made = nil
	return made
}

// drop forgets a resident that does not run. Its turn must be held.
func (rs *residents) drop(r *resident) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.held[r.id] == r && r.box == nil {
		delete(rs.held, r.id)
	}
}

// enter waits for the turn of a sandbox, in which its life may change; leave ends the turn.
func (rs *residents) enter(ctx context.Context, id cove.SandboxID) (r *resident, leave func(), err error) {
	rs.mu.Lock()
	if err := rs.ownsLocked(); err != nil {
		rs.mu.Unlock()
		return nil, nil, err
	}
	rs.mu.Unlock()
	return rs.turnOf(ctx, id)
}

// turnOf waits for the turn of a sandbox while another one's is held, to which it belongs.
func (rs *residents) turnOf(ctx context.Context, id cove.SandboxID) (r *resident, leave func(), err error) {
	if err := rs.call(); err != nil {
		return nil, nil, err
	}
	rs.mu.Lock()
	r = rs.residentLocked(id)
	rs.mu.Unlock()
	select {
	case r.turn <- struct{}{}:
		return r, func() { rs.giveTurn(r); rs.calls.Done() }, nil
	case <-ctx.Done():
		rs.calls.Done()
		return nil, nil, cove.Errorf(cove.Canceled,
			"the caller went away while something else was done with the sandbox: %w", ctx.Err())
	}
}

// tryEnter takes the turn of a sandbox, or returns nil when it is taken.
func (rs *residents) tryEnter(id cove.SandboxID) (r *resident, leave func()) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		return nil, nil
	}
	r = rs.residentLocked(id)
	select {
	case r.turn <- struct{}{}:
	default:
		return nil, nil
	}
	rs.calls.Add(1)
	return r, func() { rs.giveTurn(r); rs.calls.Done() }
}

// giveTurn ends the turn of a sandbox. The disk of one that does not run is not mounted beyond it.
func (rs *residents) giveTurn(r *resident) {
	if err := rs.rest(r); err != nil {
		rs.o.Log.Error("the disk of a sandbox that does not run cannot be written out", "sandbox", r.id, "error", err)
	}
	<-r.turn
}

// rest writes out and unmounts the disk of a sandbox that is stopped. Its turn must be held.
func (rs *residents) rest(r *resident) error {
	rs.mu.Lock()
	host, runs := rs.host, r.box != nil
	rs.mu.Unlock()
	if host == nil || runs {
		return nil
	}
	ctx := context.Background()
	record, err := rs.own().Sandbox(ctx, r.id)
	if err == nil && record.State == cove.StateStopped {
		err = host.Disks.Still(ctx, r.id, false, func() error { return nil })
	}
	if cove.ErrorCode(err) == cove.NotFound {
		return nil
	}
	return err
}

// running returns the running part of r, if it runs or is paused.
func (rs *residents) running(r *resident) (*provision.Sandbox, opened) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return r.box, r.open
}

// whyLeft returns the reason why this process lets go of a sandbox.
func (rs *residents) whyLeft() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		return cove.Errorf(cove.Shutdown, "the server shuts down; the program goes on")
	}
	return cove.Errorf(cove.Conflict, "the sandbox does not run any more").WithHint("start it with \"cove start\"")
}

// own returns the records as Cove itself sees them: for recovery, reaping and pruning, and for the life of a sandbox
// that was found for its caller.
func (rs *residents) own() store.Records { return rs.o.Store.For(cove.System("")) }

func (rs *residents) correct(record *store.Sandbox) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.held[record.ID]; r != nil && r.doomed {
		record.State, record.Spec.KeepWork = cove.StateDestroying, r.keepWork
	}
}

// lostGrace is the time in which the end of a sandbox shows after the connection to its guest has ended.
const lostGrace = time.Second

// whyLost returns the reason for the end of a connection to a guest.
func (rs *residents) whyLost(sb engine.Sandbox) error {
	select {
	case <-sb.Done():
	case <-rs.ended:
	case <-rs.o.Clock.After(lostGrace):
	}
	return rs.whyLeft()
}

// meterPatience is how long a count of all running sandboxes may take.
const meterPatience = 10 * time.Second

// countCPU counts the CPU time of the running sandboxes.
func countCPU(rs *residents) {
	ctx, cancel := context.WithTimeout(context.Background(), meterPatience)
	defer cancel()
	for meter, sb := range metered(rs) {
		meter.count(ctx, sb)
	}
}

// metered returns the sandboxes that run in this process.
func metered(rs *residents) map[*cpuMeter]engine.Sandbox {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	all := map[*cpuMeter]engine.Sandbox{}
	for _, r := range rs.held {
		if r.box != nil {
			all[r.open.cpu] = r.box
		}
	}
	return all
}
