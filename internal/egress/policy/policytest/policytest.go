// Package policytest owns the hostile corpus: spellings of hosts, ports, authorities, paths and URLs with their
// expected outcome, for the tests of every parser and entry of the gateway.
package policytest

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

//go:embed corpus.txt
var corpus string

// Kind is the syntax of a case.
type Kind string

const (
	Host      Kind = "host"      // of a URL, a Host header, an SNI, a name in SOCKS
	Port      Kind = "port"      // after the colon
	Authority Kind = "authority" // of CONNECT, of a Host header: host:port, the port required
	Path      Kind = "path"      // of a request target, without its query
	URL       Kind = "url"       // absolute form
)

// Outcome is the expected outcome of a case under Policy.
type Outcome string

const (
	Malformed Outcome = "malformed" // not accepted at all: 400, never mended
	Denied    Outcome = "denied"    // understood and refused: 403
	Allowed   Outcome = "allowed"   // goes out as Canonical and in no other form
)

// Case is one row of the corpus.
type Case struct {
	Line      int
	Kind      Kind
	Input     string // as received, any bytes
	Outcome   Outcome
	Canonical string // the form that is judged and forwarded; empty if malformed
	Why       string
}

// Name returns the name of a subtest.
func (c Case) Name() string { return fmt.Sprintf("%s/%d_%.40q", c.Kind, c.Line, c.Input) }

// Cases returns the corpus, all of it or some kinds.
func Cases(t testing.TB, kinds ...Kind) []Case {
	t.Helper()
	var all []Case
	section := ""
	for i, line := range strings.Split(corpus, "\n") {
		if line == "" {
			continue
		}
		if title, ok := strings.CutPrefix(line, "#"); ok {
			section = strings.TrimSpace(title)
			continue
		}
		c, err := readCase(line)
		if err != nil {
			t.Fatalf("corpus.txt:%d: %v", i+1, err)
		}
		c.Line, c.Why = i+1, section
		if len(kinds) == 0 || slices.Contains(kinds, c.Kind) {
			all = append(all, c)
		}
	}
	return all
}

// readCase parses KIND "INPUT" OUTCOME [CANONICAL]. In the input, {N*X} is X N times.
func readCase(line string) (Case, error) {
	kind, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimLeft(rest, " ")
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return Case{}, fmt.Errorf("no quoted input: %w", err)
	}
	input, err := strconv.Unquote(quoted)
	if err != nil {
		return Case{}, err
	}
	f := strings.Fields(rest[len(quoted):])
	if len(f) == 0 || len(f) > 2 {
		return Case{}, fmt.Errorf("want an outcome and a canonical form after %s", quoted)
	}
	c := Case{Kind: Kind(kind), Input: repeat(input), Outcome: Outcome(f[0])}
	if len(f) == 2 {
		c.Canonical = repeat(f[1])
	}
	switch {
	case !slices.Contains([]Kind{Host, Port, Authority, Path, URL}, c.Kind):
		return Case{}, fmt.Errorf("unknown kind %q", kind)
	case !slices.Contains([]Outcome{Malformed, Denied, Allowed}, c.Outcome):
		return Case{}, fmt.Errorf("unknown outcome %q", f[0])
	case (c.Outcome == Malformed) != (c.Canonical == ""):
		return Case{}, fmt.Errorf("what is malformed has no canonical form, and all else has one")
	}
	return c, nil
}

// repeat expands {N*X}.
func repeat(s string) string {
	for {
		start := strings.Index(s, "{")
		end := strings.Index(s, "}")
		if start < 0 || end < start {
			return s
		}
		n, what, ok := strings.Cut(s[start+1:end], "*")
		count, err := strconv.Atoi(n)
		if !ok || err != nil {
			return s
		}
		s = s[:start] + strings.Repeat(what, count) + s[end+1:]
	}
}

// Text is the policy that the corpus assumes.
const Text = `mode: limited
rules:
  - hosts: [allowed.lab, xn--bcher-kva.lab, r3---sn-x.lab]
    ports: [80, 443, 8443]
  - hosts: "*.wild.lab"
    ports: 443
  - cidrs: [198.51.100.7, "2001:db8::7"]
    ports: 443
  - hosts: paths.lab
    paths: [/repos/**, /one/*]
    methods: GET
`

// Policy returns Text, compiled.
func Policy(t testing.TB) *policy.Policy {
	t.Helper()
	d, err := policy.Parse("corpus.yaml", []byte(Text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(policy.Machine{}, d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
