// Package sandbox manages long-lived sandboxes: it provisions them from a request, with a workspace and an egress
// route, starts, stops, pauses and destroys them, adopts those of an earlier server, and runs commands, terminals and
// agents' programs in them. It knows contracts only.
//
// Its types build on each other, and call downward only:
//
//	Processes    commands, terminals and programs inside
//	Sandboxes    the life cycle that callers ask for, and checkouts in shared sandboxes
//	reconciler   removal, and records that fit what runs
//	group        the services of a sandbox, whose life is that of the sandbox
//	supervisor   the running part of a sandbox: engine, route, services, programs
//	records      the recorded part
//	residents    the sandboxes that this process holds, and their locks
//
// Order of locks: Sandboxes.sharing, then the turn of a checkout, then the turn of the sandbox that it is in, then the
// turns of services of that sandbox, then mu.
// Nothing is waited for under mu.
package sandbox

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// Sandboxes manages the long-lived sandboxes of a machine. Its methods may be called concurrently.
type Sandboxes struct {
	*reconciler
	sharing chan struct{} // holds one value: its holder looks for shared sandboxes, and makes them
}

// New makes Sandboxes, which show what is recorded until Adopt.
func New(o Options) *Sandboxes {
	rs := &residents{
		Auditor: store.Auditor{Store: o.Store, Clock: o.Clock, Log: o.Log},
		o:       o, held: map[cove.SandboxID]*resident{}, ended: make(chan struct{}),
	}
	v := &supervisor{records: &records{rs}}
	v.halt = group{v}.halt
	return &Sandboxes{
		reconciler: &reconciler{v},
		sharing:    make(chan struct{}, 1),
	}
}

// Adopt makes this process the one that holds the sandboxes, of which there may be one at a time: it corrects the
// records, takes over the sandboxes that run, and finishes what other servers have begun. It is called once. An error
// names the sandboxes for which that failed; the others are held.
func (s *Sandboxes) Adopt(ctx context.Context, with Host) error {
	s.mu.Lock()
	s.host = &with
	s.mu.Unlock()
	err := s.reconcile(ctx)
	s.mu.Lock()
	s.owner = true
	s.mu.Unlock()
	return err
}

// RunReconciler reconciles records and sandboxes at every interval until ctx ends, and ends those that are idle.
func (s *Sandboxes) RunReconciler(ctx context.Context, interval time.Duration) {
	for {
		if s.owns() == nil {
			s.reconcile(ctx) // which logs its errors, as tend does
			idler{s.reconciler}.tend(ctx)
		}
		timer := s.o.Clock.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Close stops changes of sandboxes, waits for those under way until ctx ends, and closes the engines. The sandboxes run
// on, without a route until another server adopts them.
func (s *Sandboxes) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	defer s.end()
	defer context.AfterFunc(ctx, s.end)()
	s.calls.Wait()        // their records are written last
	countCPU(s.residents) // for the next server begins with what it finds
	s.leave()
	defer s.serving.Wait() // they end with the connections to their guests
	return s.o.Engines.Close()
}
