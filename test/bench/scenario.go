//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/test/bench/result"
)

// contender does one thing once. One of run and why is given.
type contender struct {
	name    string
	prepare func(ctx context.Context) error // before each round, not measured; may be nil
	run     func(ctx context.Context) error
	settle  func() error // after each round, not measured; may be nil
	why     string       // when run is nil: why it is not measured
}

// scenario is contenders doing the same thing under the same load.
type scenario struct {
	part       string
	name       string
	group      string  // scenarios of a group are in one picture, and differ in x
	x          float64 //
	unit       string  // milliseconds if empty
	load       load
	rounds     int
	budget     time.Duration             // of each contender
	rest       time.Duration             // between rounds, for the one before to be cleaned up
	until      time.Time                 // no second round begins after that; never if zero
	calm       func(ctx context.Context) // waits until nothing of the round before is at work; may be nil
	contenders []contender
}

// budget is how long a contender may take in a scenario whose own is not given: then it has no further round, and
// fewer samples than others.
const budget = 5 * time.Second

// outcome is what a round of a contender has brought.
type outcome struct {
	samples       []float64
	last          []float64
	tried, failed int
	failure       error // the first
}

// load has a contender do its thing, and measures it.
type load func(ctx context.Context, run func(context.Context) error) outcome

// one at a time, in milliseconds.
func one(ctx context.Context, run func(context.Context) error) outcome {
	return arrivals(1, 0)(ctx, run)
}

// arrivals begins n of them, one after each pause whether the ones before are done or not; without a pause, all at
// once. The samples are milliseconds from when each was to begin.
func arrivals(n int, pause time.Duration) load {
	return func(ctx context.Context, run func(context.Context) error) (o outcome) {
		took, errs := make([]time.Duration, n), make([]error, n)
		begin := time.Now()
		var all sync.WaitGroup
		for i := range n {
			due := begin.Add(time.Duration(i) * pause)
			time.Sleep(time.Until(due))
			all.Go(func() {
				errs[i] = run(ctx)
				took[i] = time.Since(due)
			})
		}
		all.Wait()
		if pause == 0 && n > 1 {
			o.last = []float64{milliseconds(time.Since(begin))}
		}
		for i, err := range errs {
			if o.count(err) {
				o.samples = append(o.samples, milliseconds(took[i]))
			}
		}
		return o
	}
}

// sustained has clients do it again and again. The sample is how many were done in a second.
func sustained(clients int, length time.Duration) load {
	return func(ctx context.Context, run func(context.Context) error) outcome {
		each := make([]outcome, clients)
		begin := time.Now()
		var all sync.WaitGroup
		for i := range each {
			all.Go(func() {
				for time.Since(begin) < length {
					each[i].count(run(ctx))
				}
			})
		}
		all.Wait()
		took := time.Since(begin).Seconds()
		var o outcome
		for _, e := range each {
			o.add(e)
		}
		o.samples = []float64{float64(o.tried-o.failed) / took}
		return o
	}
}

// count counts a try, and reports whether it has not failed.
func (o *outcome) count(err error) bool {
	o.tried++
	if err == nil {
		return true
	}
	o.failed++
	if o.failure == nil {
		o.failure = err
	}
	return false
}

func (o *outcome) add(more outcome) {
	o.samples, o.last = append(o.samples, more.samples...), append(o.last, more.last...)
	o.tried, o.failed = o.tried+more.tried, o.failed+more.failed
	if o.failure == nil {
		o.failure = more.failure
	}
}

// round is one round of a contender, and how long it took.
func (c contender) round(ctx context.Context, l load) (o outcome, took time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begin := time.Now()
	if c.prepare != nil {
		if err := c.prepare(ctx); err != nil {
			o.count(fmt.Errorf("preparing: %w", err))
			return o, time.Since(begin)
		}
	}
	o = l(ctx, c.run)
	if c.settle != nil {
		if err := c.settle(); err != nil { // what was measured was not what it was to be
			o.samples, o.last, o.failed = nil, nil, o.tried
			if o.failure == nil {
				o.failure = err
			}
		}
	}
	return o, time.Since(begin)
}

// play has every contender do a round in turn, after one alone that does not count. Contenders whose name does not
// contain only are left out, except Cove's and the plain process.
func (s scenario) play(ctx context.Context, only string) ([]result.Result, error) {
	results, all := make([]result.Result, len(s.contenders)), make([]outcome, len(s.contenders))
	spent := make([]time.Duration, len(s.contenders))
	for i, c := range s.contenders {
		results[i] = result.Result{Part: s.part, Scenario: s.name, Group: s.group, X: s.x, Contender: c.name, Unit: s.unit,
			Skipped: c.why}
		if s.unit == "" {
			results[i].Unit = "ms"
		}
		if c.why == "" && only != "" && !strings.Contains(c.name, only) && !strings.HasPrefix(c.name, "cove") &&
			c.name != result.Plain {
			results[i].Skipped = "not asked for"
		}
	}
	for round := range s.rounds + 1 {
		if round > 1 && !s.until.IsZero() && time.Now().After(s.until) {
			break
		}
		for i, c := range s.contenders {
			if results[i].Skipped != "" || spent[i] > cmp.Or(s.budget, budget) {
				continue
			}
			l := s.load
			if round == 0 {
				l = one
			}
			if s.calm != nil {
				s.calm(ctx)
			}
			o, took := c.round(ctx, l)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if round > 0 {
				all[i].add(o)
				spent[i] += took
			}
			time.Sleep(max(s.rest, shortRest))
		}
	}
	for i, o := range all {
		r := &results[i]
		r.Samples, r.Last, r.Tried, r.Failed = o.samples, o.last, o.tried, o.failed
		if o.failure != nil {
			r.Failure = o.failure.Error()
		}
	}
	result.Summarise(results)
	return results, nil
}

// shortRest is enough for one sandbox of those that are prepared.
const shortRest = 15 * time.Millisecond

func (s scenario) print(results []result.Result) {
	fmt.Printf("\n%s\n%9s %9s %9s %9s %9s %8s\n", s.name, "p50", "p95", "p99", "x plain", "success", "samples")
	for _, r := range results {
		if r.Skipped != "" {
			fmt.Printf("%9s %9s %9s %9s %9s %8s   %s: %s\n", "-", "-", "-", "-", "-", "-", r.Contender, r.Skipped)
			continue
		}
		fmt.Printf("%9.2f %9.2f %9.2f %8.2f× %7.1f %% %8d   %s", r.P50, r.P95, r.P99, r.Ratio, 100*r.Success(),
			len(r.Samples), r.Contender)
		if last := result.Last.Of(r); last > 0 {
			fmt.Printf(", all done in %.0f ms", last)
		}
		fmt.Println(strings.TrimRight(" "+r.Failure, " "))
	}
}

// playAll plays scenarios one after the other, each of whose rounds begins when the build is calm. When so much time
// has passed, the scenarios that are left have one round each.
func playAll(ctx context.Context, b *build, scenarios []scenario, only string,
	length time.Duration) (all []result.Result, err error) {
	end := time.Now().Add(length)
	for _, s := range scenarios {
		s.calm, s.until = b.calm, end
		results, err := s.play(ctx, only)
		if err != nil {
			return all, fmt.Errorf("%s: %w", s.name, err)
		}
		s.print(results)
		all = append(all, results...)
	}
	return all, nil
}
