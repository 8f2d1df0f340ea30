package sandbox

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Every transition of a sandbox has a deadline.
const (
	prepareTimeout = 60 * time.Second // an engine may import an image first
	bindTimeout    = 30 * time.Second
	destroyTimeout = 30 * time.Second
)

// box is one sandbox and where it is in its life. Only the transitions of
// cove's table happen.
type box struct {
	template engine.Template
	sandbox  engine.Sandbox // nil until prepared

	mu    sync.Mutex
	state cove.State
}

// become moves to the next state, or says why that cannot be.
func (b *box) become(next cove.State) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.CanBecome(next) {
		return cove.Errorf(cove.Conflict, "sandbox %s is %s and cannot become %s", b.template.ID, b.state, next)
	}
	b.state = next
	return nil
}

// open makes a sandbox and binds it. binding is called once, while the sandbox
// is being prepared; what it returns is closed, also with an error. On error
// nothing is left.
func open(ctx context.Context, eng engine.Engine, t engine.Template, binding func() (engine.Binding, error)) (*box, error) {
	bx := &box{template: t, state: cove.StatePreparing}
	if err := bx.bring(ctx, eng, binding); err != nil {
		bx.become(cove.StateFailed)
		bx.close()
		return nil, err
	}
	return bx, nil
}

func (b *box) bring(ctx context.Context, eng engine.Engine, binding func() (engine.Binding, error)) (err error) {
	prepare, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	var what engine.Binding
	var refused error
	bound := make(chan struct{})
	go func() { // and not Prepare, which takes longer: a goroutine may have to wait for its thread
		defer close(bound)
		if what, refused = binding(); refused != nil {
			cancel()
		}
	}()
	b.sandbox, err = eng.Prepare(prepare, b.template)
	<-bound
	defer what.Close()
	if refused != nil {
		return refused
	}
	if err != nil {
		return late(ctx, err, "preparing the sandbox", prepareTimeout)
	}
	if err := b.become(cove.StateReady); err != nil {
		return err
	}
	bind, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	if err := b.sandbox.Bind(bind, what); err != nil {
		return late(ctx, err, "binding the sandbox", bindTimeout)
	}
	return b.become(cove.StateRunning)
}

// openOut makes a sandbox and, with openWay, its way out, which is open before
// anything runs, and closes b. own are the sockets that b itself has asked for. On
// error nothing is left.
func openOut(ctx context.Context, eng engine.Engine, t engine.Template, b engine.Binding, openWay func() (Way, error)) (bx *box, way Way, own []*os.File, err error) {
	defer func() {
		if err != nil && way != nil {
			way.Close()
		}
	}()
	mine := len(b.Listeners)
	bx, err = open(ctx, eng, t, func() (engine.Binding, error) {
		if openWay == nil {
			return b, nil
		}
		opened, err := openWay()
		if err != nil {
			return b, err
		}
		way = opened
		err = way.Bind(&b, t.Rootfs)
		return b, err
	})
	if err != nil {
		return nil, way, nil, err
	}
	if own, err = serve(bx.sandbox.Listeners(), mine, way); err != nil {
		bx.close()
	}
	return bx, way, own, err
}

// serve opens a way on the sockets that it has asked for, which come after the
// first of all; those it returns.
func serve(sockets []*os.File, first int, way Way) (own []*os.File, err error) {
	if len(sockets) < first {
		err = cove.Errorf(cove.Internal, "%d sockets of a sandbox, want %d and those of its way out", len(sockets), first)
	} else if way != nil {
		err = way.Serve(sockets[first:])
		sockets = sockets[:first]
	}
	if err != nil {
		for _, f := range sockets {
			f.Close()
		}
		return nil, err
	}
	return sockets, nil
}

// late names the deadline that was missed, unless the caller's own was.
func late(ctx context.Context, err error, doing string, limit time.Duration) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return cove.Errorf(cove.Unavailable, "%s took longer than %s", doing, limit).WithHint("the machine may be overloaded; run \"cove doctor\"")
	}
	return err
}

// close destroys the sandbox.
func (b *box) close() error {
	if err := b.become(cove.StateDestroying); err != nil {
		return err
	}
	if b.sandbox != nil {
		ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
		defer cancel()
		if err := b.sandbox.Destroy(ctx); err != nil {
			b.become(cove.StateFailed)
			return err
		}
	}
	return b.become(cove.StateDestroyed)
}
