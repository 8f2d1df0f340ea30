//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// form is a way in which a server has a sandbox for code.
type form struct {
	name     string
	settings []string // of the server
	// ask changes a request that gives nothing but code into one for this form; may be nil.
	ask  func(*api.ExecuteRequest)
	only string // the language that has this form; empty: all of them have it
	// kept reports whether the pool keeps a kind of sandbox of this form for a language; nil: nothing is kept.
	kept func(k api.PoolKind, language string) bool
}

// forms are the rows of the table of one-liners, for each runtime.
var forms = []form{
	{name: "cove, cold", settings: []string{"COVE_SANDBOX_POOL_SIZE=0"}},
	{name: "cove, pooled", ask: withVariable, kept: func(k api.PoolKind, _ string) bool { return k.Language == "" }},
	{name: "cove, parked", settings: []string{"COVE_SANDBOX_POOL_ZYGOTES=false"}, kept: waiting},
	{name: "cove, zygote", only: "python", kept: waiting},
}

func waiting(k api.PoolKind, language string) bool { return k.Language == language }

// withVariable gives a program a variable, for which no interpreter can have been started before.
func withVariable(r *api.ExecuteRequest) { r.Env = map[string]string{"BENCH": "1"} }

// contender runs a snippet in this form, and fails if it was not run so.
func (f form) contender(ctx context.Context, b *build, language, code string) contender {
	if f.only != "" && f.only != language {
		return contender{name: f.name, why: "only " + f.only + " has one"}
	}
	s, err := b.server(ctx, f.settings...)
	if err != nil {
		return contender{name: f.name, why: err.Error()}
	}
	r := snippet(language, code)
	if f.ask != nil {
		f.ask(&r)
	}
	c := contender{name: f.name, run: s.asking(r)}
	if f.kept == nil {
		return c
	}
	var before int64
	kept := func(k api.PoolKind) bool { return f.kept(k, language) }
	c.prepare = func(ctx context.Context) (err error) {
		before, err = s.untilKept(ctx, kept, c.run)
		return err
	}
	c.settle = func() error {
		p, err := client.PoolOf(s.owner).Status(context.Background())
		if err == nil && hits(p, kept) == before {
			err = errors.New("it did not have a prepared sandbox")
		}
		return err
	}
	return c
}

// untilKept waits until a sandbox of a kind is prepared, and returns how many such have been used. If the pool does not
// know the kind, it is asked for once.
func (s *server) untilKept(ctx context.Context, kept func(api.PoolKind) bool, ask func(context.Context) error) (int64,
	error) {
	for {
		p, err := client.PoolOf(s.owner).Status(ctx)
		if err != nil {
			return 0, err
		}
		known := false
		for _, k := range p.Kinds {
			if !kept(k) {
				continue
			}
			known = true
			if k.Ready > 0 {
				time.Sleep(shortRest) // what has prepared it is done
				return hits(p, kept), nil
			}
			if k.Failures > 0 {
				return 0, fmt.Errorf("the pool could not prepare %d", k.Failures)
			}
		}
		if !known {
			if err := ask(ctx); err != nil {
				return 0, err
			}
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// pools reports whether the server has a pool.
func (s *server) pools(ctx context.Context) bool {
	_, err := client.PoolOf(s.owner).Status(ctx)
	return err == nil
}

// full reports whether the pool lacks nothing that it means to keep. A server without a pool lacks nothing.
func (s *server) full(ctx context.Context) bool {
	p, err := client.PoolOf(s.owner).Status(ctx)
	return err != nil || !slices.ContainsFunc(p.Kinds, func(k api.PoolKind) bool { return k.Ready < k.Size })
}

// hits counts executions that found a prepared sandbox of a kind.
func hits(p api.Pool, kept func(api.PoolKind) bool) (n int64) {
	for _, k := range p.Kinds {
		if kept(k) {
			n += k.Hits
		}
	}
	return n
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
