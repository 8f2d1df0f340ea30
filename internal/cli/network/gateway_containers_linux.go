package network

import (
	"cmp"
	"context"
	"os"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/containers"
)

// following attaches containers as they start, and forgets those that are removed.
type following struct {
	attaching
	engine       containers.Engine
	chosen       containers.Choice
	registration api.GatewayRegistration

	ended    chan ending
	attached map[string]*followed // by id
	wait     sync.WaitGroup       // attachments
}

// followed is a container that exists.
type followed struct {
	containers.Container
	client   string
	before   bool                 // there was a client of that name already, which stays
	last     containers.Container // as it was when it was attached last, or could not be
	attached bool
	stop     func() // ends an attachment by a sidecar
}

// ending is how an attachment has ended.
type ending struct {
	id  string
	err error
}

// containers attaches the containers of a choice until ctx ends, or the one that has a name is removed.
func (a attaching) containers(ctx context.Context, engine containers.Engine, chosen containers.Choice,
	g api.GatewayRegistration) error {
	f := &following{attaching: a, engine: engine, chosen: chosen, registration: g, ended: make(chan ending),
		attached: map[string]*followed{}}
	ctx, stop := context.WithCancel(ctx)
	defer f.wait.Wait()
	defer stop()
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default: // the change is to be looked at yet
		}
	}
	f.wait.Go(func() { engine.Watch(ctx, chosen, session.SoonestRetry, changed) })
	for {
		select {
		case <-changes:
			if gone, err := f.look(ctx); gone || err != nil {
				return err
			}
		case e := <-f.ended:
			if err := f.end(ctx, e); err != nil {
				return err
			}
			changed() // it may run again
		case <-ctx.Done():
			return cove.Errorf(cove.Canceled, "it was ended")
		}
	}
}

// look attaches what runs and forgets what was removed. It reports whether the one container of a name was.
func (f *following) look(ctx context.Context) (gone bool, err error) {
	all, err := f.engine.List(ctx, f.chosen)
	if err != nil {
		return false, err
	}
	exist := map[string]bool{}
	for _, c := range all {
		exist[c.ID] = true
		if err := f.see(ctx, c); err != nil {
			return false, err
		}
	}
	for id, c := range f.attached {
		if exist[id] {
			continue
		}
		delete(f.attached, id)
		f.Say.Line("the container %s was removed", ui.Printable(c.Name))
		if !c.before {
			if err := f.gateway.RemoveGatewayClient(ctx, c.client); err != nil && cove.ErrorCode(err) != cove.NotFound {
				return false, err
			}
		}
		gone = f.chosen.Name != ""
	}
	if len(all) == 0 && f.chosen.Name != "" && !gone {
		return false, cove.Errorf(cove.NotFound, "there is no container %.80q", f.chosen.Name).
			WithHint("start it first, or attach all that have a label: --label KEY=VALUE")
	}
	return gone, nil
}

// see attaches a container that runs and is not attached.
func (f *following) see(ctx context.Context, c containers.Container) error {
	known := f.attached[c.ID]
	if known == nil {
		known = &followed{client: cmp.Or(f.registration.Name, f.chosen.Client(c))}
		before, err := f.known(ctx, known.client)
		if err != nil {
			return err
		}
		known.before = before != nil
		f.attached[c.ID] = known
		if c.Privileged {
			f.Say.Line("the container %s is privileged: its programs can leave it, past the gateway", ui.Printable(c.Name))
		}
		if c.PID == 0 {
			f.Say.Line("the container %s does not run: it is attached when it does", ui.Printable(c.Name))
		}
	}
	known.Container = c
	if known.attached && (c.PID == 0 || c.Started != known.last.Started) {
		known.stop()
	}
	if c.PID == 0 || known.attached || c == known.last {
		return nil
	}
	known.last, known.attached = c, true
	g := f.registration
	g.Name = known.client
	life, stop := context.WithCancel(ctx)
	known.stop = stop
	f.wait.Go(func() {
		defer stop()
		err := f.attach(life, c, g)
		if life.Err() != nil && ctx.Err() == nil {
			err = nil // the container has stopped
		}
		select {
		case f.ended <- ending{c.ID, err}:
		case <-ctx.Done():
		}
	})
	return nil
}

// attach attaches a container until it stops or ctx ends: by its network namespace, or by a sidecar where that cannot
// be entered, since the engine is on another machine, or this user is not root.
func (f *following) attach(ctx context.Context, c containers.Container, g api.GatewayRegistration) error {
	if err := suits(c); err != nil {
		return err
	}
	if f.chosen.Label != "" {
		if err := f.engine.Vouched(ctx, c, f.chosen.Label); err != nil {
			return err
		}
	}
	if os.Geteuid() != 0 || !c.Has(c.PID) {
		return f.beside(ctx, f.engine, c, g)
	}
	return f.process(ctx, c.PID, g, func() error {
		if c.Has(c.PID) {
			return nil
		}
		return cove.Errorf(cove.NotFound, "the container %s has stopped", ui.Printable(c.Name))
	})
}

// end takes note of an attachment's end. Where one container is meant, what kept it from being attached is the error;
// of several, one must not end the others.
func (f *following) end(ctx context.Context, e ending) error {
	c := f.attached[e.id]
	if ctx.Err() != nil || c == nil {
		return nil
	}
	c.attached = false
	switch code := cove.ErrorCode(e.err); {
	case e.err == nil, code == cove.NotFound: // the process has ended
		f.Say.Line("the container %s has stopped", ui.Printable(c.Name))
	case f.chosen.Name != "":
		return e.err
	default: // until it starts again
		f.Say.Line("the container %s is not attached: %v", ui.Printable(c.Name), e.err)
	}
	return nil
}

// suits refuses a container whose programs have another way out.
func suits(c containers.Container) error {
	name := ui.Printable(c.Name)
	start := func(what string) error {
		return cove.Errorf(cove.Forbidden, "the container %s has %s, past the gateway", name, what).
			WithHint("start it with --network none")
	}
	of, shares := strings.CutPrefix(c.Network, "container:")
	switch {
	case shares:
		return cove.Errorf(cove.Forbidden, "the container %s has the network of another", name).
			WithHint("attach that one: --container %.12s", of)
	case c.Network == "host":
		return start("this machine's network")
	case c.Network != "none":
		return start("a network of its engine (" + ui.Printable(c.Network) + ")")
	}
	return nil
}
