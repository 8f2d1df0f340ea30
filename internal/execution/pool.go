package execution

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/pool"
)

// Pool has the sandboxes that are prepared for executions.
type Pool struct {
	kept *pool.Pool
	size int // of a kind at most
	// plain returns the recipe for executions that ask for nothing but a language, and an image.
	plain func(ctx context.Context, language, image string) (pool.Recipe, error)
}

// Warm keeps n sandboxes prepared for plain executions of a language, with the default limits, in an image; empty is
// the default one. Errors: those of the language, the image and the engine; InvalidArgument for more than the pool may
// have; Unsupported where none can be prepared for them.
func (p *Pool) Warm(ctx context.Context, language, image string, n int) error {
	if n < 0 || n > p.size {
		return cove.Errorf(cove.InvalidArgument, "%d sandboxes cannot be kept prepared for %.64q", n, language).
			WithHint("the pool has at most %d of a kind; raise sandbox.pool.size", p.size)
	}
	r, err := p.plain(ctx, language, image)
	if err == nil {
		p.kept.Warm(r, n)
	}
	return err
}

// Status describes the sandboxes that are prepared, by their keys, and counts what became of requests.
func (p *Pool) Status() ([]pool.Status, pool.Totals) { return p.kept.Status() }

// Drain destroys the sandboxes that are prepared, and forgets what was asked for and what Warm has asked for. It
// returns when they are gone. Errors: Unavailable for those that are left.
func (p *Pool) Drain(ctx context.Context) error { return p.kept.Drain(ctx) }
