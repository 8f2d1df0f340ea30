//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/test/bench/result"
)

const compareUsage = `usage: go run ./test/bench compare [-pairs N] [-row TEXT] [-threshold PERCENT] OLD [NEW]
       make bench-compare OLD=... [NEW=...] [PAIRS=N]

Tells whether Cove has become slower. OLD and NEW are each a directory of
Cove's programs, or a git revision, which is checked out beside the working
tree and built. NEW is bin if it is absent: what "make build" has made of the
working tree.

    make bench-compare OLD=HEAD                     # what is not committed yet
    make bench-compare OLD=v1.0.0 NEW=main          # two revisions
    make bench-compare OLD=/usr/local/bin NEW=bin   # what is installed

Servers of both run beside each other. In each pair one and then the other does
the same thing, and in the next pair the other way round, so that what else the
machine does meets both. For each row, the ratio is the median of the pairs'
ratios, and its interval that of a sign test, with 95 % confidence for all rows
together. It is SLOWER where the ratio is 1.10 or more and the interval leaves
out 1; same where the interval leaves out a change of 10 %; undecided where it
is wider: use more pairs. Fails if a row is slower, or could not be measured.

`

// comparing is what the command line of compare says.
type comparing struct {
	old, new  string
	pairs     int
	row       string
	threshold float64 // percent
}

func parseCompare(args []string, out io.Writer) (c comparing, err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), compareUsage)
		flags.PrintDefaults()
	}
	flags.IntVar(&c.pairs, "pairs", 60, "`N` pairs of runs for each row")
	flags.StringVar(&c.row, "row", "", "only rows whose name contains `TEXT`")
	flags.Float64Var(&c.threshold, "threshold", 10, "the smallest regression that counts, in `PERCENT`")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() < 1 || flags.NArg() > 2 || flags.Arg(0) == "" || c.pairs < 1 || c.threshold <= 0 {
		return c, errors.New("name OLD, or OLD and NEW; see compare -h")
	}
	if c.old, c.new = flags.Arg(0), flags.Arg(1); c.new == "" {
		c.new = "bin"
	}
	return c, nil
}

// compared are the rows of a comparison.
var compared = []struct {
	name string
	of   func(ctx context.Context, b *build) (contender, error)
}{
	{"print(1) in python, as prepared as it can be", prepared(languages[0])},
	{"console.log(1) in node, as prepared as it can be", prepared(languages[1])},
	{"echo 1 in bash, as prepared as it can be", prepared(languages[2])},
	{"echo 1 in sh, no pool", func(ctx context.Context, b *build) (contender, error) {
		s, err := b.server(ctx, forms[0].settings...)
		return contender{run: s.execute("sh", "echo 1")}, err
	}},
	{"print(1) in python, no pool", func(ctx context.Context, b *build) (contender, error) {
		s, err := b.server(ctx, forms[0].settings...)
		return contender{run: s.execute("python", "print(1)")}, err
	}},
	{"echo 1 in sh: 20 at once, all done", func(ctx context.Context, b *build) (contender, error) {
		s, err := b.server(ctx)
		return contender{run: atOnce(20, s.execute("sh", "echo 1"))}, err
	}},
	{"a long-lived sandbox and its first command", func(ctx context.Context, b *build) (contender, error) {
		s, err := b.server(ctx)
		return s.stays(""), err
	}},
	{"cove version", commandOf("version")},
	{"cove run bash -c true, with a server", commandOf("run", "bash", "-c", "true")},
}

// prepared runs a snippet when the pool, if the build has one, has had time to prepare for it.
func prepared(l language) func(ctx context.Context, b *build) (contender, error) {
	return func(ctx context.Context, b *build) (contender, error) {
		s, err := b.server(ctx)
		if err != nil {
			return contender{}, err
		}
		run := s.execute(l.name, l.code)
		return contender{run: run, prepare: func(ctx context.Context) error {
			if !s.pools(ctx) {
				return pause(ctx, shortRest)
			}
			_, err := s.untilKept(ctx, func(k api.PoolKind) bool { return k.Language == l.name }, run)
			return err
		}}, nil
	}
}

func commandOf(args ...string) func(ctx context.Context, b *build) (contender, error) {
	return func(ctx context.Context, b *build) (contender, error) {
		s, err := b.server(ctx)
		if err != nil {
			return contender{}, err
		}
		program, err := binaryIn(b.bin, "cove")
		return contender{run: s.command(program, args...)}, err
	}
}

// atOnce does something n times at the same time.
func atOnce(n int, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { errs[i] = run(ctx) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
}

// compare builds what has to be built, measures both, and fails if a row has become slower or cannot be measured.
func compare(ctx context.Context, dir string, c comparing) (err error) {
	builds := [2]*build{}
	for i, what := range []string{c.old, c.new} {
		name := []string{"old", "new"}[i]
		builds[i] = &build{dir: filepath.Join(dir, name)}
		if err := os.Mkdir(builds[i].dir, 0o755); err != nil {
			return err
		}
		if builds[i].bin, err = programsOf(ctx, what, filepath.Join(builds[i].dir, "tree")); err != nil {
			return fmt.Errorf("%s (%s): %w", name, what, err)
		}
		defer func() { err = errors.Join(err, builds[i].close()) }()
	}
	var rows []int
	for i := range compared {
		if strings.Contains(compared[i].name, c.row) {
			rows = append(rows, i)
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("no row has %q in its name", c.row)
	}
	fmt.Printf("%-52s %9s %9s %8s %16s %4s\n", "medians in ms", "old", "new", "ratio", "interval", "n")
	slower, failed := 0, 0
	for _, i := range rows {
		row := compared[i]
		samples, err := inPairs(ctx, builds, row.of, c.pairs)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed++
			fmt.Printf("%-52s %v\n", row.name, err)
			continue
		}
		// Each row has its share of the errors that all rows together may make (Bonferroni).
		found := result.Compare(row.name, samples[0], samples[1], 1+c.threshold/100, 1-0.05/float64(len(rows)))
		fmt.Println(found)
		if found.Conclusion == result.Slower {
			slower++
		}
	}
	if slower+failed > 0 {
		return fmt.Errorf("of %d rows, %d are slower and %d could not be measured", len(rows), slower, failed)
	}
	return nil
}

// inPairs runs something of both builds in pairs, of which every second one begins with the new build. A pair before
// them does not count.
func inPairs(ctx context.Context, builds [2]*build, of func(context.Context, *build) (contender, error),
	pairs int) (samples [2][]float64, err error) {
	var both [2]contender
	for i, b := range builds {
		if both[i], err = of(ctx, b); err != nil {
			return samples, err
		}
	}
	for pair := range pairs + 1 {
		for turn := range both {
			for _, b := range builds {
				b.calm(ctx)
			}
			i := (pair + turn) % 2
			o, _ := both[i].round(ctx, one)
			if o.failure != nil {
				return samples, fmt.Errorf("%s: %w", []string{"old", "new"}[i], o.failure)
			}
			if pair > 0 {
				samples[i] = append(samples[i], o.samples...)
			}
			time.Sleep(shortRest)
		}
	}
	return samples, nil
}

// programsOf returns the directory of a build's programs. A revision is checked out at tree, and built there.
func programsOf(ctx context.Context, what, tree string) (string, error) {
	if info, err := os.Stat(what); err == nil && info.IsDir() {
		if _, err := binaryIn(what, "cove"); err != nil {
			return "", err
		}
		return filepath.Abs(what)
	}
	revision, err := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", "--end-of-options",
		what+"^{commit}").Output()
	if err != nil {
		return "", errors.New("neither a directory nor a revision of this repository")
	}
	// An archive, not a worktree: nothing of it is left in the repository however this ends.
	checkout := fmt.Sprintf(`mkdir "$1" && git archive %s | tar -x -C "$1"`, strings.TrimSpace(string(revision)))
	if out, err := exec.CommandContext(ctx, "sh", "-c", checkout, "sh", tree).CombinedOutput(); err != nil {
		return "", fmt.Errorf("checking out: %w: %s", err, out)
	}
	goBuild := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "bin/", "./cmd/...")
	goBuild.Dir, goBuild.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := goBuild.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w: %s", err, out)
	}
	return filepath.Join(tree, "bin"), nil
}
