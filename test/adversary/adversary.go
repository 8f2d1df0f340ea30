// Package adversary owns the attacks on a sandbox: a table of real attempts from inside, each with a positive control
// and an oracle outside.
//
// # How a row proves something
//
// A row of the table makes attempts with the probe program (cmd/probe) inside a sandbox that an engine provides through
// the contract alone. Three things have to come together:
//
//   - the attempt is refused, with an error that refusal has;
//   - the control works: the allowed form inside, or the very same attempt
//     outside, unconfined, in a throw-away environment. A refusal whose control
//     did not work proves nothing and fails the row as not tested;
//   - the oracle agrees: what the host sees of the sandbox, its files, its
//     processes and its settings does not depend on what the attacker says.
//
// When a kernel has no such feature, inside and outside answer the same; then the row is skipped and says so.
//
// An engine's own test calls [Run]. Rows are subtests named by their id, so that a list of those which must not be
// skipped can name them:
//
//	go test -run 'TestAdversary/K2.packet$' ./internal/engine/native
package adversary

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Open makes an engine whose state is in the directory state; engines of
// several processes share one. The suite closes it.
type Open func(t testing.TB, state string) engine.Engine

// Options say what the suite has to know about the engine's surroundings.
type Options struct {
	// Rootfs is what the sandboxes are made of. The zero value is the host's own toolchain.
	Rootfs engine.Rootfs
	// HostPaths are substrings that an engine cannot keep out of a sandbox's
	// own view of its mounts, beside what every engine may show.
	HostPaths []string
	// Slow is for an engine whose sandboxes take long to make: of attempts that differ in form alone one is made, unless
	// COVE_TEST_LONG is set.
	Slow bool
	// Alike are rows that another engine has on the same kernel, and that say nothing of this one. They take minutes, and
	// run if COVE_TEST_LONG is set.
	Alike []string
	// Only are the beginnings of rows to run; nil is all, as it is if COVE_TEST_LONG is set.
	Only []string
	// Ahead has sandboxes prepared by a pool, for the rows about what executions without mounts and a network are given.
	Ahead Ahead
	// Root has programs be root inside.
	Root bool
	// Debuggers has programs trace others of their sandbox, and the rows be those about that.
	Debuggers bool
	// Layer makes the place where a sandbox of Rootfs keeps what it changes there, within limits (engine.Template).
	// Without, changes are in memory.
	Layer func(testing.TB, cove.Limits) string
}

// user is the user of sandboxes, unless a row names one.
func (o Options) user() cove.User {
	if o.Root {
		return cove.RootUser
	}
	return cove.CodeUser
}

func long() bool { return os.Getenv("COVE_TEST_LONG") != "" }

// row is one line of the table.
type row struct {
	id        string   // the row of PROBES.md and a case: "K2.packet"
	invariant string   // of SECURITY.md: "H3"
	what      string   // what the attacker wants
	attempts  []string // command lines of the probe program; every one must be refused
	deny      []string // the errors a refusal may have; nil is denied
	inside    []string // controls: must succeed in the sandbox
	// alone is for attempts that change more than the thread that makes them: each has a process of its own, inside and
	// outside. The others are made together, by one process for all rows.
	alone bool
	// engine says of a row about the way out that it depends on the engine.
	engine bool
	// test is for what no attempt alone can show. It runs after the attempts.
	test func(c *trial)
}

// denied is what a refusal by permission, by filter or by absence answers.
var denied = []string{"EPERM", "EACCES", "ENOSYS", "SIGSYS"}

// unmapped adds what the kernel answers to an id that the user namespace does not have.
var unmapped = append([]string{"EINVAL"}, denied...)

// hidden adds what names that are not there, masked files and read-only places answer.
var hidden = append([]string{"ENOENT", "ENOTDIR", "EROFS", "EMPTY", "NOTFOUND", "ENXIO", "ENODEV", "ELOOP"}, denied...)

// table is every row, in the order in which they run: harmless ones first.
func table() []row {
	return slices.Concat(kernelRows(), socketRows(), namespaceRows(), privilegeRows(), fileRows(), procRows(),
		terminalRows(), guestRows(), imageRows(), mountRows(), sharedRows(), overlayRows(), neighbourRows(), networkRows(),
		processRows(), exhaustionRows(), outputRows(), lifecycleRows(), fuzzRows(), crashRows())
}

// preparedRows are those about sandboxes that a pool can prepare. Limits of the sandbox, which no program in it can
// change, are exceeded in one way of preparing them, the last of the engine, unless COVE_TEST_LONG is set. A program
// starts in an empty container as in one that was just made. Where containers take long to make, empty ones have the
// rows about what is there before the program alone: files, processes, terminals, the guest and its neighbours. Neither
// has C7, about the descriptors, terminals and tables of the machine, which takes long.
func preparedRows(o Options) []row {
	last := Copied
	if o.Slow {
		last = Parked
	}
	rows := slices.Concat(fileRows(), procRows(), terminalRows(), guestRows(), neighbourRows())
	if !o.Slow || o.Ahead == last || long() {
		rows = slices.Concat(kernelRows(), socketRows(), namespaceRows(), privilegeRows(), rows, networkRows(), processRows())
	}
	if o.Ahead == last || long() {
		rows = slices.Concat(rows, exhaustionRows(), outputRows())
	}
	if o.Ahead == Copied {
		rows = slices.Concat(rows, zygoteRows())
	}
	if o.Slow && !long() {
		rows = slices.DeleteFunc(rows, func(r row) bool { return strings.HasPrefix(r.id, "C7.") })
	}
	return rows
}

// Run runs the table over an engine.
func Run(t *testing.T, open Open, o Options) {
	if actAsOwner(t, open) {
		return
	}
	if o.Rootfs.Kind == "" {
		o.Rootfs.Kind = engine.RootfsHost
	}
	rows := table()
	switch {
	case o.Ahead != "":
		rows = preparedRows(o)
	case o.Debuggers:
		rows = debuggerRows()
	case o.Root:
		rows = rootRows()
	}
	if o.Only != nil && !long() {
		rows = slices.DeleteFunc(rows, func(r row) bool {
			return !slices.ContainsFunc(o.Only, func(begin string) bool { return strings.HasPrefix(r.id, begin) })
		})
	}
	newSuite(t, open, o).runAll(t, rows)
}

func (s *suite) runAll(t *testing.T, rows []row) {
	for _, r := range rows {
		s.run(t, r)
	}
	s.summary(t, rows)
}

// run runs one row as a subtest and keeps how it ended.
func (s *suite) run(t *testing.T, r row) {
	t.Run(r.id, func(t *testing.T) {
		if slices.Contains(s.options.Alike, r.id) && !long() {
			t.Skip("the native engine has it on the same kernel: set COVE_TEST_LONG=1")
		}
		c, began := &trial{T: t, suite: s, row: r}, time.Now()
		defer func() {
			result := c.verdict()
			result.took = time.Since(began)
			s.results[r.id] = result
		}()
		c.run()
	})
}

// verdict is one word for the summary, and what was seen.
func (c *trial) verdict() result {
	switch {
	case c.Failed():
		return result{word: "HOLE OR NOT TESTED", note: c.note()}
	case c.Skipped():
		return result{word: "skipped", note: c.note()}
	}
	return result{word: "held", note: c.note()}
}

type result struct {
	word, note string
	took       time.Duration
}

// summary prints the whole table with its results, so that a reader sees what was tried.
func (s *suite) summary(t *testing.T, rows []row) {
	counts := map[string]int{}
	var b strings.Builder
	attempts := 0
	for _, r := range rows {
		res, ran := s.results[r.id]
		if !ran {
			continue // left out by -run
		}
		counts[res.word]++
		attempts += len(r.attempts)
		fmt.Fprintf(&b, "%-28s %-4s %-10s %6.2fs %s", r.id, r.invariant, res.word, res.took.Seconds(), r.what)
		if res.note != "" {
			fmt.Fprintf(&b, " [%s]", res.note)
		}
		b.WriteByte('\n')
	}
	t.Logf("%d probes with %d single attempts: %d held, %d skipped, %d failed\n%s",
		len(s.results), attempts, counts["held"], counts["skipped"], counts["HOLE OR NOT TESTED"], b.String())
	if path := os.Getenv("COVE_ADVERSARY_REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}
