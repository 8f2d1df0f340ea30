//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of "go test -json" (see "go doc test2json").
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// name identifies a test: the package below the module, and the test.
type name struct{ pkg, test string }

func (n name) String() string {
	if n.test == "" {
		return n.pkg
	}
	return n.pkg + " " + n.test
}

// results is what came in so far.
type results struct {
	out     io.Writer
	outcome map[name]string   // "pass", "fail", "skip"; "run" while it does
	order   []name            // in order of their outcome
	output  map[name][]string // of tests that have not passed, and of packages
	build   map[string][]string
	left    int // processes that were left running
}

func newResults(out io.Writer) *results {
	return &results{out: out, outcome: map[name]string{}, output: map[name][]string{}, build: map[string][]string{}}
}

// take handles one line of the log. What is no event is shown as it is: the go
// command says what it cannot express in JSON in words.
func (r *results) take(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprint(r.out, string(line))
		return
	}
	n := name{pkg: short(e.Package), test: e.Test}
	switch e.Action {
	case "build-output":
		r.build[e.ImportPath] = append(r.build[e.ImportPath], e.Output)
	case "run":
		r.outcome[n] = "run"
	case "output":
		r.output[n] = append(r.output[n], e.Output)
	case "pass", "fail", "skip":
		if e.Test != "" {
			r.outcome[n] = e.Action
			r.order = append(r.order, n)
			if e.Action == "pass" {
				delete(r.output, n)
			}
			return
		}
		r.endPackage(n, e)
	}
}

// short is a package below the module; the module itself is ".".
func short(pkg string) string {
	const module = "github.com/cove-sandbox/cove"
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

func (r *results) endPackage(n name, e event) {
	word := map[string]string{"pass": "ok  ", "fail": "FAIL", "skip": "none"}[e.Action]
	if e.Action == "skip" {
		return // no test files
	}
	fmt.Fprintf(r.out, "%s  %6.1f s  %s\n", word, e.Elapsed, n.pkg)
	if e.Action != "fail" {
		delete(r.output, n)
		return
	}
	failed := false
	for other, o := range r.outcome {
		if other.pkg != n.pkg {
			continue
		}
		if o == "run" { // it was running when the package died
			r.outcome[other] = "fail"
			r.order = append(r.order, other)
			o = "fail"
		}
		failed = failed || o == "fail"
	}
	if !failed { // it did not build, or died outside any test
		r.outcome[n] = "fail"
		r.order = append(r.order, n)
		r.output[n] = append(r.output[n], r.build[e.FailedBuild]...)
	}
}

// requirement is one line of the must-run list.
type requirement struct{ name }

func parseRequirements(in io.Reader) ([]requirement, error) {
	var all []requirement
	s := bufio.NewScanner(in)
	for n := 1; s.Scan(); n++ {
		line, _, _ := strings.Cut(s.Text(), "#")
		fields := strings.Fields(line)
		switch len(fields) {
		case 0:
			continue
		case 2:
			all = append(all, requirement{name{pkg: fields[0], test: fields[1]}})
		default:
			return nil, fmt.Errorf("line %d: want a package and a test, got %q", n, s.Text())
		}
	}
	return all, s.Err()
}

// conclude prints the end of the report and says whether all is well.
func (r *results) conclude(must []requirement) bool {
	var passed, failed, skipped []name
	for _, n := range r.order {
		switch r.outcome[n] {
		case "pass":
			passed = append(passed, n)
		case "fail":
			failed = append(failed, n)
		case "skip":
			skipped = append(skipped, n)
		}
	}
	for n, o := range r.outcome {
		if o == "run" && !slices.Contains(failed, n) { // the log broke off
			failed = append(failed, n)
		}
	}
	for _, n := range failed {
		fmt.Fprintf(r.out, "\n--- FAIL: %s\n%s", n, strings.Join(r.output[n], ""))
	}
	r.printSkips(skipped)
	missed := r.missed(must)
	for _, m := range missed {
		fmt.Fprintf(r.out, "must run: %s\n", m)
	}
	fmt.Fprintf(r.out, "\ntests: %d passed, %d failed, %d skipped\n", len(passed),
		len(failed)+len(missed)+r.left, len(skipped))
	return len(failed) == 0 && len(missed) == 0 && r.left == 0 && len(passed) > 0
}

// missed are the requirements that are not met, in words. A failure is reported as such already.
func (r *results) missed(must []requirement) []string {
	var all []string
	for _, m := range must {
		switch r.outcome[m.name] {
		case "pass", "fail", "run":
		case "skip":
			all = append(all, fmt.Sprintf("%s was skipped: %s", m, r.reason(m.name)))
		default:
			all = append(all, fmt.Sprintf("%s did not run", m))
		}
	}
	return all
}

// printSkips groups the skipped tests by the reason they gave.
func (r *results) printSkips(skipped []name) {
	if len(skipped) == 0 {
		return
	}
	var reasons []string
	byReason := map[string][]name{}
	for _, n := range skipped {
		why := r.reason(n)
		if byReason[why] == nil {
			reasons = append(reasons, why)
		}
		byReason[why] = append(byReason[why], n)
	}
	fmt.Fprintf(r.out, "\nskipped:\n")
	for _, why := range reasons {
		names := byReason[why]
		fmt.Fprintf(r.out, "  %4d  %s (%s", len(names), why, names[0])
		if len(names) > 1 {
			fmt.Fprint(r.out, ", …")
		}
		fmt.Fprintln(r.out, ")")
	}
}

// place is the file and line that a test's message begins with; one that a
// suite or another report passes on has several.
var place = regexp.MustCompile(`^(\w+\.go:\d+: )+`)

// reason is what a skipped test said: its last line that is not the test runner's own, without file and line.
func (r *results) reason(n name) string {
	for _, line := range slices.Backward(r.output[n]) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "---") || strings.HasPrefix(text, "===") {
			continue
		}
		return place.ReplaceAllString(text, "")
	}
	return "no reason was given"
}
