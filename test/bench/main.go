//go:build linux

// Command bench measures Cove beside whatever peers are installed, in one run and in turn, so that a machine whose
// speed drifts is fair to all: a plain process, bubblewrap, runc and docker; its gateway beside a reverse proxy of Go's
// standard library and mitmproxy; and agents in it beside the same ones by themselves. It prints tables of medians with
// ratios, and writes every sample as JSON.
//
//	go run ./test/bench [-rounds 30] [-json bench.json] [-part PART] [-only NAME] [-row ROW]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// contender does one thing once.
type contender struct {
	name   string
	run    func(ctx context.Context) error
	settle func() error // what comes after what is measured; may be nil
	why    string       // when run is nil: why it is not measured
}

// match is contenders doing the same thing.
type match struct {
	title      string
	note       string
	base       string // the contender that ratios are relative to
	contenders []contender
	rounds     int
	// between runs: for the one before to be cleaned up, and for what is kept ready to be there again
	rest time.Duration
}

// shortRest is enough for one sandbox of those that are kept ready.
const shortRest = 15 * time.Millisecond

// Result is the samples of one contender, in milliseconds.
type Result struct {
	Match   string    `json:"match"`
	Name    string    `json:"name"`
	Skipped string    `json:"skipped,omitempty"`
	MS      []float64 `json:"ms,omitempty"`
	Min     float64   `json:"min_ms,omitempty"`
	P50     float64   `json:"p50_ms,omitempty"`
	P99     float64   `json:"p99_ms,omitempty"`
	Ratio   float64   `json:"ratio_to_cove,omitempty"` // of the medians
}

// Report is what -json writes.
type Report struct {
	Machine string             `json:"machine"`
	Kernel  string             `json:"kernel"`
	CPUs    int                `json:"cpus"`
	Time    time.Time          `json:"time"`
	Results []Result           `json:"results"`
	Network [][]Cell           `json:"network"`
	Figures map[string]float64 `json:"figures"`
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "role" {
		if err := roles[os.Args[2]]([]byte(os.Args[3]), json.NewEncoder(os.Stdout)); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	var a asked
	flag.IntVar(&a.rounds, "rounds", 30, "samples of each contender; the network is measured in a sixth as many rounds")
	flag.StringVar(&a.out, "json", "bench.json", "where to write every sample")
	flag.StringVar(&a.part, "part", "", "sandboxes, network or agents; all if empty, agents only if they are installed")
	flag.StringVar(&a.only, "only", "", "only contenders whose name contains this, and Cove")
	flag.StringVar(&a.row, "row", "", "of the network, only rows whose name contains this")
	flag.Parse()
	if !slices.Contains([]string{"", "sandboxes", "network", "agents"}, a.part) {
		fmt.Fprintf(os.Stderr, "bench: -part %s: it is sandboxes, network or agents\n", a.part)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, a); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// asked is what the command line says.
type asked struct {
	rounds               int
	out, part, only, row string
}

func bench(ctx context.Context, a asked) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root: the peers do, and they should be measured alike")
	}
	dir, err := os.MkdirTemp("", "cove-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	cove, err := newCove(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cove.close()) }()
	report := Report{Machine: runtime.GOARCH, Kernel: kernel(), CPUs: runtime.NumCPU(), Time: time.Now().UTC(),
		Figures: map[string]float64{}}
	if a.part == "" || a.part == "sandboxes" {
		if err := report.sandboxes(ctx, dir, cove, a); err != nil {
			return err
		}
	}
	if a.part == "" || a.part == "network" {
		if err := report.network(ctx, dir, cove, a); err != nil {
			return err
		}
	}
	if _, err := os.Stat(agentsDir); a.part == "agents" || a.part == "" && err == nil {
		if err := report.agents(ctx, dir, a); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println("\nevery sample:", a.out)
	return os.WriteFile(a.out, append(data, '\n'), 0o644)
}

// sandboxes measures what it takes to run something contained.
func (r *Report) sandboxes(ctx context.Context, dir string, cove *coveUnderTest, a asked) error {
	peers, stop := newPeers(ctx, dir)
	defer stop()
	r.Figures["server_at_rest_mib"] = residentMiB(cove.pid())
	for _, m := range matches(cove, peers, a.rounds) {
		results, err := m.play(ctx, a.only)
		if err != nil {
			return err
		}
		r.Results = append(r.Results, results...)
		m.print(results)
	}
	if err := cove.figures(ctx, r.Figures); err != nil {
		return err
	}
	printFigures(r.Figures)
	return nil
}

// network measures what it takes to go through a gateway.
func (r *Report) network(ctx context.Context, dir string, cove *coveUnderTest, a asked) (err error) {
	n, err := newNetwork(ctx, dir, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.play(ctx, cove, max(a.rounds/6, 1)); err != nil {
		return err
	}
	r.Network = n.table()
	n.print(r.Network)
	return nil
}

// matches are what is measured.
func matches(c *coveUnderTest, p peers, rounds int) []match {
	return []match{
		{
			title: "first command: make a sandbox, run /bin/true in it, have its exit code", base: "cove", rounds: rounds,
			note: "cove: namespaces, root, limits and seccomp are made for the request, in a guest process that was waiting\n" +
				"cove (nothing ready): that process is made for the request too\nall with the same limits, but for bubblewrap, " +
				"which has none",
			contenders: []contender{
				{name: "cove", run: c.first(c.ready)},
				{name: "cove (nothing ready)", run: c.first(c.unready)},
				{name: "plain process", run: plain("/bin/true")},
				p.bubblewrap("/bin/true"), p.runc("/bin/true"), p.docker("/bin/true"),
			},
		},
		{
			title: "a Python one-liner", base: "cove, POST /execute", rounds: rounds,
			note: "cove: over HTTP on loopback, recorded and audited, in a fresh sandbox",
			contenders: []contender{
				{name: "cove, POST /execute", run: c.execute("python", "print(1)")},
				{name: "plain process", run: plain("/usr/bin/python3", "-c", "print(1)")},
				p.bubblewrap("/usr/bin/python3", "-c", "print(1)"),
				p.runc("/usr/bin/python3", "-c", "print(1)"),
				p.docker("/usr/bin/python3", "-c", "print(1)"),
			},
		},
		{
			title: "other one-liners through POST /execute", base: "bash", rounds: max(rounds/3, 5),
			contenders: []contender{
				{name: "bash", run: c.execute("bash", "echo 1")},
				{name: "bash, plain process", run: plain("bash", "-c", "echo 1")},
				c.language("node", "console.log(1)"),
				c.language("perl", "print 1"),
				c.language("ruby", "puts 1"),
			},
		},
	}
}

// play has every contender run once in each round, after a round that does not count.
func (m match) play(ctx context.Context, only string) ([]Result, error) {
	results := make([]Result, len(m.contenders))
	for i, c := range m.contenders {
		results[i] = Result{Match: m.title, Name: c.name, Skipped: c.why}
		if only != "" && !strings.Contains(c.name, only) && !strings.HasPrefix(c.name, "cove") {
			results[i].Skipped = "not asked for"
		}
	}
	for round := range m.rounds + 1 {
		for i, c := range m.contenders {
			if results[i].Skipped != "" {
				continue
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			begin := time.Now()
			err := c.run(ctx)
			took := time.Since(begin)
			if err == nil && c.settle != nil {
				err = c.settle()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				results[i].MS = append(results[i].MS, milliseconds(took))
			}
			time.Sleep(max(m.rest, shortRest))
		}
	}
	base := 0.0
	for i := range results {
		r := &results[i]
		if len(r.MS) == 0 {
			continue
		}
		sorted := slices.Sorted(slices.Values(r.MS))
		r.Min, r.P50, r.P99 = sorted[0], sorted[len(sorted)/2], sorted[len(sorted)*99/100]
		if r.Name == m.base {
			base = r.P50
		}
	}
	for i := range results {
		if base > 0 {
			results[i].Ratio = results[i].P50 / base
		}
	}
	return results, nil
}

func (m match) print(results []Result) {
	fmt.Printf("\n%s\n", m.title)
	fmt.Printf("%9s %9s %9s %9s\n", "min ms", "p50 ms", "p99 ms", "ratio")
	for _, r := range results {
		if r.Skipped != "" {
			fmt.Printf("%9s %9s %9s %9s   %s: %s\n", "-", "-", "-", "-", r.Name, r.Skipped)
			continue
		}
		fmt.Printf("%9.2f %9.2f %9.2f %8.2f×   %s\n", r.Min, r.P50, r.P99, r.Ratio, r.Name)
	}
	if m.note != "" {
		fmt.Println("  " + strings.ReplaceAll(m.note, "\n", "\n  "))
	}
}

func printFigures(figures map[string]float64) {
	fmt.Println("\nfigures")
	names := make([]string, 0, len(figures))
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Printf("  %-36s %.2f\n", name, figures[name])
	}
}

func kernel() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// binary finds one of the programs that "make build" made.
func binary(name string) (string, error) {
	path, err := filepath.Abs(filepath.Join("bin", name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run \"make build\" first", err)
	}
	return path, nil
}
