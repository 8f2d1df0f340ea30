package archtest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// boundsFile holds the numbers that may only fall, one a line: the check, its
// subject, and the most that is allowed. What is not in it is zero.
const boundsFile = "testdata/bounds.txt"

var lower = flag.Bool("lower", false, "write what was counted into "+boundsFile+" wherever it is below its bound")
var raise = flag.Bool("raise", false,
	"write it wherever it is above, too: after a merge of work that did not know its bounds")

// finding is what a check found in one subject (a package, a tree, a file): how much, and where.
type finding struct {
	count int
	sites []string
}

type findings map[string]finding

// add counts one more in subject, at site.
func (f findings) add(subject, site string) {
	was := f[subject]
	f[subject] = finding{count: was.count + 1, sites: append(was.sites, site)}
}

// hold compares the findings of a check with its bounds. A count above its bound
// fails, and so does a count below it, so that a bound only falls.
func (f findings) hold(t *testing.T, check string) {
	t.Helper()
	all := readBounds(t)
	bounds := all[check]
	subjects := slices.Sorted(maps.Keys(f))
	for subject := range bounds {
		if _, found := f[subject]; !found {
			subjects = append(subjects, subject)
		}
	}
	changed := false
	for _, subject := range subjects {
		found, most := f[subject], bounds[subject]
		sites := strings.Join(found.sites, "\n\t")
		switch {
		case found.count > most && *raise:
			all.set(check, subject, found.count)
			changed = true
		case found.count > most:
			t.Errorf("%s: %s has %d, at most %d allowed\n\t%s", check, subject, found.count, most, sites)
		case found.count < most && *lower:
			all.set(check, subject, found.count)
			changed = true
		case found.count < most:
			t.Errorf("%s: %s has %d: lower the bound to %d (go test ./internal/archtest -lower)",
				check, subject, found.count, found.count)
		}
	}
	if changed {
		all.write(t)
	}
}

// bounds are the committed numbers, by check and subject.
type bounds map[string]map[string]int

func readBounds(t *testing.T) bounds {
	t.Helper()
	data, err := os.ReadFile(boundsFile)
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseBounds(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parseBounds(text string) (bounds, error) {
	all := bounds{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q is not a check, a subject and a number", boundsFile, line)
		}
		most, err := strconv.Atoi(fields[2])
		if err != nil || most <= 0 {
			return nil, fmt.Errorf("%s: %q: a bound is a number above zero; remove the line for zero", boundsFile, line)
		}
		if _, twice := all[fields[0]][fields[1]]; twice {
			return nil, fmt.Errorf("%s: %s %s is bounded twice", boundsFile, fields[0], fields[1])
		}
		all.set(fields[0], fields[1], most)
	}
	return all, nil
}

func (b bounds) set(check, subject string, most int) {
	if b[check] == nil {
		b[check] = map[string]int{}
	}
	b[check][subject] = most
	if most == 0 {
		delete(b[check], subject)
	}
}

const boundsHeader = `# Numbers that may only fall: a check of internal/archtest, its subject, the most that is allowed.
# A subject without a line has zero. "go test ./internal/archtest -lower" lowers what has fallen;
# a number is raised by hand, with the reason in the commit.
`

func (b bounds) String() string {
	var text strings.Builder
	text.WriteString(boundsHeader)
	for _, check := range slices.Sorted(maps.Keys(b)) {
		text.WriteString("\n")
		for _, subject := range slices.Sorted(maps.Keys(b[check])) {
			fmt.Fprintf(&text, "%s %s %d\n", check, subject, b[check][subject])
		}
	}
	return text.String()
}

func (b bounds) write(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(boundsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestParseBounds(t *testing.T) {
	text := boundsHeader + "\nlong-lines cli 3\nlong-lines test 20\n"
	all, err := parseBounds(text)
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != text {
		t.Errorf("read and written:\n%s\nwant:\n%s", all, text)
	}
	all.set("long-lines", "cli", 0)
	if want := boundsHeader + "\nlong-lines test 20\n"; all.String() != want {
		t.Errorf("after a fall to zero:\n%s\nwant:\n%s", all, want)
	}
	for _, bad := range []string{"long-lines cli", "long-lines cli 0", "long-lines cli many", "a b 1\na b 2"} {
		if _, err := parseBounds(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestBoundsAreOfChecks fails on a bound that no check reads: a check was renamed.
func TestBoundsAreOfChecks(t *testing.T) {
	checks := []string{"arrows", "contexts-in-fields", "large-rooms", "large-types", "long-files", "long-lines",
		"phrases", "product-size", "wide-interfaces"}
	for check := range readBounds(t) {
		if !slices.Contains(checks, check) {
			t.Errorf("%s bounds %q, which is no check", boundsFile, check)
		}
	}
}

// toolingTrees are Go files that no user runs.
var toolingTrees = []string{"test/...", "packaging/...", "internal/archtest",
	"internal/deps", "internal/engine/enginetest/...", "internal/store/storetest",
	"internal/git/gittest", "internal/egress/policy/policytest",
	"internal/terminal/terminaltest"}

// isProduct reports whether a file, named from the root, is Go code of the product.
func isProduct(file string) bool {
	if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") {
		return false
	}
	return !slices.ContainsFunc(toolingTrees, func(tree string) bool { return matches(tree, path.Dir(file)) })
}

// treeOf names the tree that a file belongs to: "cove" for the root package, a
// directory below internal, or a directory of the root.
func treeOf(file string) string {
	first, rest, deeper := strings.Cut(file, "/")
	if !deeper {
		return "cove"
	}
	if second, _, deeper := strings.Cut(rest, "/"); first == "internal" && deeper {
		return first + "/" + second
	}
	return first
}
