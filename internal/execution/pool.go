package execution

import (
	"cmp"
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/pool"
)

// Pool has the sandboxes that are prepared for executions.
type Pool struct {
	kept  *pool.Pool
	plain func(ctx context.Context, p Plain) (pool.Recipe, error)
}

// Plain describes executions that ask for nothing but this. What is empty or zero is the default.
type Plain struct {
	Language, Image, Engine string
	Limits                  cove.Limits
}

// Warm keeps n sandboxes prepared for plain executions of a language, with the default limits, in an image; empty is
// the default one. Errors: those of the language, the image and the engine; InvalidArgument for more than the pool may
// have; Unsupported where none can be prepared for them.
func (p *Pool) Warm(ctx context.Context, language, image string, n int) error {
	r, err := p.plain(ctx, Plain{Language: language, Image: image})
	if err != nil {
		return err
	}
	if t := p.kept.Terms(r.Key); n < 0 || n > t.Most {
		return cove.Errorf(cove.InvalidArgument, "%d sandboxes cannot be kept prepared for %.64q", n, language).
			WithHint("the pool has at most %d of a kind; raise %s", t.Most, t.Setting)
	}
	p.kept.Warm(r, n)
	return nil
}

// Configure sets how many sandboxes are prepared for plain executions. What the terms leave at zero, but Least, is as
// for others of the engine. Errors: those of Warm.
func (p *Pool) Configure(ctx context.Context, of Plain, t pool.Terms) error {
	r, err := p.plain(ctx, of)
	if err != nil {
		return err
	}
	usual := p.kept.Terms(r.Key)
	t.Most, t.Age, t.Refill = cmp.Or(t.Most, usual.Most), cmp.Or(t.Age, usual.Age), cmp.Or(t.Refill, usual.Refill)
	t.Usual = min(usual.Usual, t.Most)
	if t.Least > t.Most {
		return cove.Errorf(cove.InvalidArgument, "%d sandboxes cannot be kept prepared for %.64q", t.Least, of.Language).
			WithHint("the pool has at most %d of a kind; raise %s, or give the entry a most of its own", t.Most, usual.Setting)
	}
	p.kept.Configure(r, t)
	return nil
}

// Status describes the sandboxes that are prepared, by their keys, and counts what became of requests.
func (p *Pool) Status() ([]pool.Status, pool.Totals) { return p.kept.Status() }

// Drain destroys the sandboxes that are prepared, and forgets what was asked for and what Warm has asked for. It
// returns when they are gone. Errors: Unavailable for those that are left.
func (p *Pool) Drain(ctx context.Context) error { return p.kept.Drain(ctx) }
