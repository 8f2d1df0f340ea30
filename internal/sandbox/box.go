package sandbox

import (
	"context"
	"errors"
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
// is being prepared. On error nothing is left.
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
	prepared := make(chan error, 1)
	go func() {
		var err error
		b.sandbox, err = eng.Prepare(prepare, b.template)
		prepared <- err
	}()
	what, refused := binding()
	if refused != nil {
		cancel()
	}
	err = <-prepared
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
