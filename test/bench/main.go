//go:build linux

// Command bench measures Cove beside whatever peers are installed, in one run and in turn, so that a machine whose
// speed drifts is fair to all; its gateway beside a reverse proxy of Go's standard library and mitmproxy; and agents in
// it beside the same ones by themselves. It writes one table with ratios, every sample as JSON, and charts.
//
//	go run ./test/bench [-rounds 30] [-out DIR] [-part PART,…] [-only NAME] [-row ROW]
//	go run ./test/bench compare OLD [NEW]
//	go run ./test/bench soak [-runs 20000]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/test/bench/result"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "role" {
		if err := roles[os.Args[2]]([]byte(os.Args[3]), json.NewEncoder(os.Stdout)); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	do, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := inDirectory(ctx, do); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// work is done with a directory for what it makes.
type work func(ctx context.Context, dir string) error

// parse turns a command line into what is to be done. Help goes to out.
func parse(args []string, out io.Writer) (work, error) {
	switch {
	case len(args) > 0 && args[0] == "compare":
		c, err := parseCompare(args[1:], out)
		return func(ctx context.Context, dir string) error { return compare(ctx, dir, c) }, err
	case len(args) > 0 && args[0] == "soak":
		var how soaking
		flags := flag.NewFlagSet("soak", flag.ContinueOnError)
		flags.SetOutput(out)
		flags.IntVar(&how.runs, "runs", 20_000, "how many snippets are run, each in a sandbox of its own")
		flags.IntVar(&how.clients, "clients", 8, "how many ask for them at the same time")
		err := flags.Parse(args[1:])
		if err == nil && (flags.NArg() > 0 || how.runs < 1 || how.clients < 1) {
			err = fmt.Errorf("%q cannot be understood; see -h", args)
		}
		return func(ctx context.Context, dir string) error { return soak(ctx, dir, how) }, err
	}
	a, err := parseBench(args, out)
	return func(ctx context.Context, dir string) error { return bench(ctx, dir, a) }, err
}

// asked is what the command line of the benchmark says.
type asked struct {
	rounds         int
	most           int // prepared sandboxes
	out, only, row string
	parts          []string
}

func (a asked) wants(part string) bool { return len(a.parts) == 0 || slices.Contains(a.parts, part) }

// parts are the parts of the benchmark, in order.
var parts = []string{"start", "one-liners", "command-line", "sustained", "packages", "builds", "memory", "disk",
	"network", "agents"}

func parseBench(args []string, out io.Writer) (a asked, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&a.rounds, "rounds", 30, "how much is measured: with 30, a contender has 100 samples, one at a time")
	flags.IntVar(&a.most, "most", 1000, "the most prepared sandboxes whose memory is measured")
	flags.StringVar(&a.out, "out", "bench-results", "directory of the table (README.md), results.json and the charts")
	flags.StringVar(&a.only, "only", "", "of the peers, only those whose name contains this")
	flags.StringVar(&a.row, "row", "", "of the network, only rows whose name contains this")
	flags.Func("part", "only these parts, separated by commas: "+strings.Join(parts, ", "), func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			if !slices.Contains(parts, part) {
				return fmt.Errorf("there is no part %q", part)
			}
			a.parts = append(a.parts, part)
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	if flags.NArg() > 0 || a.rounds < 1 {
		return a, fmt.Errorf("%q cannot be understood; see -h", args)
	}
	return a, nil
}

func inDirectory(ctx context.Context, do work) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: the peers do, and they should be measured alike")
	}
	dir, err := os.MkdirTemp("", "cove-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return do(ctx, dir)
}

// report is a benchmark that is under way.
type report struct{ result.Report }

func bench(ctx context.Context, dir string, a asked) (err error) {
	cove, err := newCove(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cove.close()) }()
	begun := time.Now()
	r := &report{result.Report{Machine: describe(ctx, &cove.build), Begun: begun.UTC(), Figures: map[string]float64{}}}
	r.Figures["server at rest, MiB"] = residentMiB(cove.pid())
	if err := r.sandboxes(ctx, dir, cove, a); err != nil {
		return err
	}
	if a.wants("network") {
		if err := r.network(ctx, dir, cove, a); err != nil {
			return err
		}
	}
	if _, err := os.Stat(agentsDir); a.wants("agents") && (err == nil || len(a.parts) > 0) {
		if err := r.agents(ctx, dir, a); err != nil {
			return err
		}
	}
	r.Took, r.Targets = time.Since(begun).Seconds(), result.Judge(targets, r.Results)
	r.Machine = append(r.Machine, [2]string{"load after", firstLine(os.ReadFile("/proc/loadavg"))})
	if err := r.write(a.out); err != nil {
		return err
	}
	fmt.Printf("\n%.0f seconds; the table: %s\n", r.Took, filepath.Join(a.out, "README.md"))
	return nil
}

// sandboxes measures what it takes to run something contained.
func (r *report) sandboxes(ctx context.Context, dir string, cove *coveUnderTest, a asked) error {
	b := &cove.build
	p, stop := peers{why: map[string]string{}}, func() {}
	if a.wants("start") || a.wants("one-liners") || a.wants("builds") {
		p, stop = newPeers(ctx, dir)
	}
	defer stop()
	npmOnce := sync.OnceValue(func() error { return npmProject(ctx, b) })
	for _, part := range []struct {
		name   string
		length time.Duration // that 30 rounds may take
		of     func() ([]scenario, error)
	}{
		{"start", 140 * time.Second, func() ([]scenario, error) { return startScenarios(ctx, cove, p, a.rounds) }},
		{"one-liners", 120 * time.Second, func() ([]scenario, error) { return snippetScenarios(ctx, b, p, a.rounds), nil }},
		{"command-line", 10 * time.Second, func() ([]scenario, error) { return commandScenarios(ctx, b, a.rounds) }},
		{"packages", 3 * time.Minute, func() ([]scenario, error) {
			return packageScenarios(ctx, b, a.rounds, npmOnce())
		}},
		{"builds", 8 * time.Minute, func() ([]scenario, error) { return buildScenarios(ctx, b, p, a.rounds, npmOnce()) }},
		{"sustained", 70 * time.Second, func() ([]scenario, error) { return sustainedScenarios(ctx, b, a.rounds) }},
	} {
		if !a.wants(part.name) {
			continue
		}
		begin := time.Now()
		scenarios, err := part.of()
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		results, err := playAll(ctx, b, scenarios, a.only, part.length*time.Duration(max(a.rounds, 30))/30)
		r.Results = append(r.Results, results...)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s: %.0f seconds\n", part.name, time.Since(begin).Seconds())
	}
	r.Figures["server after load, MiB"] = residentMiB(cove.pid())
	if a.wants("memory") {
		results, err := memory(ctx, b, a.most)
		r.Results = append(r.Results, results...)
		if err != nil {
			return err
		}
	}
	if a.wants("disk") {
		return cove.storm(ctx, r.Figures)
	}
	return nil
}

// network measures what it takes to go through a gateway.
func (r *report) network(ctx context.Context, dir string, cove *coveUnderTest, a asked) (err error) {
	n, err := newNetwork(ctx, dir, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.play(ctx, cove, share(3, a.rounds)); err != nil {
		return err
	}
	table := n.table()
	n.print(table)
	r.Results = append(r.Results, results(table)...)
	return nil
}

// results are the cells of the network's table.
func results(table [][]Cell) (all []result.Result) {
	for _, row := range table {
		begin := len(all)
		for _, c := range row {
			name, unit, _ := strings.Cut(c.Row, ": ")
			if unit == "" || strings.Contains(unit, " ") {
				name, unit = c.Row, ""
			}
			all = append(all, result.Result{Part: "network", Scenario: "network: " + name, Contender: c.Name, Unit: unit,
				Skipped: c.Skipped, Samples: c.Samples})
		}
		result.Summarise(all[begin:])
	}
	return all
}
