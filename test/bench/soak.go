//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/holdings"
)

// soaking is a number of runs, and the clients that ask for them.
type soaking struct{ runs, clients int }

const (
	// warming is how many runs fill the caches of the server before anything is counted.
	warming = 500
	// A server may keep this much more memory after all of the runs than after those: history and statistics.
	mostMoreMiB = 16
)

// soak runs snippets, each in a sandbox of its own, and fails if one fails, or if the machine holds more afterwards.
func soak(ctx context.Context, dir string, how soaking) (err error) {
	b := &build{dir: dir}
	s, err := b.server(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := s.runMany(ctx, soaking{min(warming, how.runs), how.clients}); err != nil {
		return err
	}
	before, err := s.rest(ctx, nil)
	if err != nil {
		return err
	}
	kernel, memory := holdings.KernelMemory(), residentMiB(s.pid())
	fmt.Printf("after %d runs: %v; server %.1f MiB; kernel: %v\n", min(warming, how.runs), before, memory, kernel)
	begin := time.Now()
	if err := s.runMany(ctx, how); err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := s.rest(ctx, before)
	if err != nil {
		return err
	}
	more := residentMiB(s.pid()) - memory
	fmt.Printf("after %d more: %v; server %.1f MiB more; %.0f runs/s, none failed; kernel: %v\n", how.runs, after, more,
		float64(how.runs)/took.Seconds(), holdings.KernelMemory())
	if more > mostMoreMiB {
		err = fmt.Errorf("the server keeps %.1f MiB more, and %d would do", more, mostMoreMiB)
	}
	if kept := holdings.KernelLeaked(kernel, holdings.KernelMemory(), how.runs); kept != "" {
		err = errors.Join(err, errors.New(kept))
	}
	return err
}

// runMany runs one-liners of all runtimes in turn.
func (s *server) runMany(ctx context.Context, how soaking) error {
	var next, done atomic.Int64
	errs := make([]error, how.clients)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i := range how.clients {
		all.Go(func() {
			for errs[i] == nil && stop.Err() == nil {
				n := next.Add(1) - 1
				if n >= int64(how.runs) {
					return
				}
				l := languages[n%int64(len(languages))]
				if errs[i] = s.execute(l.name, l.code)(stop); errs[i] != nil {
					errs[i] = fmt.Errorf("run %d, %s: %w", n, l.name, errs[i])
					cancel()
				}
				if d := done.Add(1); d%2000 == 0 {
					fmt.Printf("%6d runs, server %.1f MiB\n", d, residentMiB(s.pid()))
				}
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// rest drains the pool and counts what the machine holds, when that is no more than before; else it fails after a
// while. Without before, it is when nothing has become less for a second.
func (s *server) rest(ctx context.Context, before map[string]int) (held map[string]int, err error) {
	if err := client.PoolOf(s.owner).Drain(ctx); err != nil {
		return nil, err
	}
	for _, c := range []*client.Client{s.client, s.owner} {
		c.Close() // idle connections are descriptors of the server
	}
	holder := holdings.Holder{Dir: s.dir, RunDir: filepath.Join(s.dir, "server"), Home: filepath.Join(s.dir, "home"),
		Cgroups: s.group()}
	count := func() map[string]int {
		held := holder.Count()
		descriptors, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid()))
		held["descriptors of the server"] = len(descriptors)
		return held
	}
	held = count()
	calm := 0
	for begin := time.Now(); time.Since(begin) < patience; {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
		now := count()
		if calm++; holdings.Leaked(now, held) != "" { // there was more
			calm = 0
		}
		held = now
		if calm >= 10 && (before == nil || holdings.Leaked(before, held) == "") {
			return held, nil
		}
	}
	if before == nil {
		return held, fmt.Errorf("the server does not come to rest: %v", held)
	}
	return held, fmt.Errorf("a minute after the last run there is more than before: %s", holdings.Leaked(before, held))
}
