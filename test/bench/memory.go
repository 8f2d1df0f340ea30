//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/bench/result"
	"github.com/cove-sandbox/cove/test/holdings"
)

// keeping is a kind of prepared sandbox whose memory is measured.
type keeping struct {
	name     string
	warm     string // the language that the pool is told to keep it for
	language string // that the pool lists; empty where no interpreter is in it
	counts   []int
	settings []string // of the server, beside those that let the pool grow
}

// keepings are the rows of the table of memory. perl has no parked form, so a sandbox that is kept for it is empty.
var keepings = []keeping{
	{name: "empty", warm: "perl", counts: []int{10, 100, 1000}},
	{name: "python, parked", warm: "python", language: "python", counts: []int{10, 100},
		settings: []string{"COVE_SANDBOX_POOL_ZYGOTES=false"}},
	{name: "python, zygote", warm: "python", language: "python", counts: []int{10, 100, 1000}},
	{name: "node, parked", warm: "node", language: "node", counts: []int{10, 100}},
	{name: "bash, parked", warm: "bash", language: "bash", counts: []int{10, 100}},
}

// The columns of the table of memory.
const (
	machine = "of the machine: what it has less available"
	private = "private memory of its processes"
	charged = "charged to its control group"
)

func memoryName(kind string, count int) string {
	return fmt.Sprintf("a prepared sandbox, %s, of %d", kind, count)
}

// memory measures what a prepared sandbox takes of the machine's memory: the more there are, the more is shared.
func memory(ctx context.Context, b *build, most int) (all []result.Result, err error) {
	for _, k := range keepings {
		results, err := k.measure(ctx, b, most)
		all = append(all, results...)
		for _, r := range results {
			fmt.Printf("%-42s %9.2f MiB %s %s\n", r.Scenario, r.P50, r.Contender, r.Skipped+r.Failure)
		}
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		if err != nil {
			return all, fmt.Errorf("memory of %s: %w", k.name, err)
		}
	}
	return all, nil
}

func (k keeping) measure(ctx context.Context, b *build, most int) (all []result.Result, err error) {
	own := &build{bin: b.bin, dir: filepath.Join(b.dir, "memory-"+strings.ReplaceAll(k.name, ", ", "-"))}
	if err := os.Mkdir(own.dir, 0o755); err != nil {
		return nil, err
	}
	s, err := own.server(ctx, append([]string{"COVE_SANDBOX_POOL_SIZE=1000", "COVE_SANDBOX_POOL_MEMORY_MB=10000000",
		"COVE_SANDBOX_POOL_MAX_AGE=1h"}, k.settings...)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	group, before := s.group(), holdings.Available()
	each := 0.0 // MiB, as measured with fewer
	for _, count := range k.counts {
		record := func(what string, value float64, why string) {
			r := result.Result{Part: "memory", Scenario: memoryName(k.name, count), Group: k.name, X: float64(count),
				Contender: what, Unit: "MiB", Skipped: why, Failure: ""}
			if why == "" {
				r.Samples = []float64{value}
			}
			one := []result.Result{r}
			result.Summarise(one)
			all = append(all, one...)
		}
		if need := each * float64(count); count > most || need > 0.8*before {
			why := fmt.Sprintf("%d of %s: they need %.0f MiB of the %.0f that are available", count, k.name, need, before)
			if count > most {
				why = fmt.Sprintf("%d of %s: not asked for", count, k.name)
			}
			record(machine, 0, why)
			continue
		}
		if err := k.fill(ctx, s, count); err != nil {
			return all, err
		}
		less, charge := before-holdings.Available(), float64(holdings.Charged(group))/(1<<20)
		each = max(less, charge) / float64(count)
		record(machine, less/float64(count), "")
		record(charged, charge/float64(count), "")
		record(private, holdings.Private(group)/float64(count), "")
	}
	return all, client.PoolOf(s.owner).Drain(ctx)
}

// fill waits until so many are prepared.
func (k keeping) fill(ctx context.Context, s *server, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	pool := client.PoolOf(s.owner)
	if _, err := pool.Warm(ctx, api.PoolWarm{Language: k.warm, Count: count}); err != nil {
		return err
	}
	for {
		p, err := pool.Status(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(p.Kinds, func(p api.PoolKind) bool { return p.Language == k.language })
		if at < 0 || p.Kinds[at].Failures > 0 {
			return fmt.Errorf("of %d, the pool could not prepare some: %+v", count, p)
		}
		if p.Kinds[at].Ready >= count {
			return pause(ctx, time.Second) // what has made them is at rest
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// group is the name of the control group of the server's sandboxes.
func (s *server) group() string {
	for _, setting := range slices.Backward(s.cmd.Env) {
		if name, ok := strings.CutPrefix(setting, "COVE_SANDBOX_CGROUP_PARENT="); ok {
			return name
		}
	}
	return "cove"
}

// residentMiB is the resident memory of a process.
func residentMiB(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kb, _ := strconv.ParseFloat(fields[0], 64)
	return kb / 1024
}
