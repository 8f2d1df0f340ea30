// Package detect finds escape attempts in submitted code, by declared patterns with severities. It is a tripwire and a
// record; the wall is the sandbox. Obfuscated code passes it, and is contained.
//
// Critical events refuse the code. So only recipes without any other use are critical, and only in code that can
// execute them: a comment, or a program that prints an article about escapes, is recorded as high and runs.
package detect

import (
	"bytes"
	"cmp"
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Severity orders events; Critical ones refuse the code.
type Severity string

const (
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

func (s Severity) rank() int { return slices.Index([]Severity{Low, Medium, High, Critical}, s) }

// NetworkDenied is the rule of events about what a program wanted to reach and policy did not allow; their detail is
// the place.
const NetworkDenied = "network_denied"

// NetworkUntrusted is the rule of events about places whose certificate, by the sandbox's own authority, the program
// did not accept.
const NetworkUntrusted = "network_untrusted"

// MadeInMount is the rule of events about files that came into being in a writable mount and decide what programs of
// its owner run; their paths are where.
const MadeInMount = "made_in_mount"

// Event is one match. Its JSON is part of the records of executions.
type Event struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Line     int      `json:"line"`             // 1-based; 0 when it is not about the code
	Detail   string   `json:"detail"`           // what the pattern indicates
	Remedy   string   `json:"remedy,omitempty"` // the flag that would have let it
	Paths    []string `json:"paths,omitempty"`  // on the host
}

// Rule is one declared pattern.
type Rule struct {
	ID        string
	Severity  Severity
	Languages []string // runtime names; nil is every language
	// Literals are lower-case texts around which the code is searched, in any case; every match of Pattern contains one.
	Literals []string
	Pattern  string // RE2
	Detail   string // what it indicates
}

const (
	maxEvents  = 50 // maximum of Scan's result; the gravest are kept
	maxPerRule = 5
	// Context of a literal that a pattern sees, in bytes.
	windowBefore, windowAfter = 192, 320
	// budget bounds the bytes that one pattern searches, so that code full of literals costs little.
	budget = 128 << 10
)

// IsCritical reports whether code with these events must be refused.
func IsCritical(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Severity == Critical })
}

// Scan returns the escape attempts in code, by line; at most maxEvents, the gravest. Its time is linear in len(code).
func Scan(language string, code []byte) []Event {
	lower := lowerASCII(code)
	var events []Event
	for _, r := range compiled() {
		if r.Languages == nil || slices.Contains(r.Languages, language) {
			events = append(events, r.scan(code, lower)...)
		}
	}
	if len(events) == 0 {
		return nil
	}
	if IsCritical(events) {
		soften(events, language, code)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(b.Severity.rank(), a.Severity.rank()) })
	events = events[:min(len(events), maxEvents)]
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Line, b.Line) })
	return events
}

// soften lowers critical events to high where the recipe is only text: in comments, or where nothing can run it.
func soften(events []Event, language string, code []byte) {
	lines := bytes.Split(code, []byte("\n"))
	idle := !slices.Contains(shells, language) && !acts().Match(code)
	for i := range events {
		if events[i].Severity == Critical && (idle || isComment(language, events[i].Line, lines[events[i].Line-1])) {
			events[i].Severity = High
		}
	}
}

var shells = []string{"bash", "sh"}

// acts matches the languages' ways to run commands and open files.
var acts = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?i)(?:system|popen|exec\\w*|spawn\\w*|subprocess|child_process|syscall\\w*|ctypes|ffi|" +
		"open\\w*|write_?(?:file|text|bytes)\\w*|(?:file|io)\\.write)\\W" +
		"|`[^`]*`|%x[\\[({]|\\bqx\\b")
})

func isComment(language string, number int, line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	switch language {
	case "node", "go":
		return bytes.HasPrefix(line, []byte("//")) || bytes.HasPrefix(line, []byte("*"))
	}
	interpreter := number == 1 && bytes.HasPrefix(line, []byte("#!"))
	return bytes.HasPrefix(line, []byte("#")) && !interpreter
}

type compiledRule struct {
	Rule
	re func() *regexp.Regexp // compiled at a literal's first occurrence: ordinary code has none
}

var compiled = sync.OnceValue(func() []compiledRule {
	var all []compiledRule
	for _, r := range Rules() {
		all = append(all, compiledRule{r, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Pattern) })})
	}
	return all
})

// scan returns the rule's matches, at most one a line and maxPerRule in total.
func (r compiledRule) scan(code []byte, lower string) []Event {
	var events []Event
	left, last := budget, 0
	for _, w := range r.windows(lower) {
		if left -= w.to - w.from; left < 0 {
			break
		}
		for _, m := range r.re().FindAllIndex(code[w.from:w.to], 4*maxPerRule) {
			line := 1 + bytes.Count(code[:w.from+m[0]], []byte("\n"))
			if line == last {
				continue
			}
			last = line
			events = append(events, Event{Rule: r.ID, Severity: r.Severity, Line: line, Detail: r.Detail})
			if len(events) == maxPerRule {
				return events
			}
		}
	}
	return events
}

type window struct{ from, to int }

// windows returns the stretches around the rule's literals, in order, merged where they overlap, up to the budget.
func (r compiledRule) windows(lower string) []window {
	var found []window
	for _, l := range r.Literals {
		size := 0
		for at := 0; size <= budget; {
			i := strings.Index(lower[at:], l)
			if i < 0 {
				break
			}
			at += i
			w := window{max(0, at-windowBefore), min(len(lower), at+len(l)+windowAfter)}
			if n := len(found); n > 0 && found[n-1].from <= w.from && w.from <= found[n-1].to {
				size += w.to - found[n-1].to
				found[n-1].to = w.to
			} else {
				size += w.to - w.from
				found = append(found, w)
			}
			at += len(l)
		}
	}
	return join(found)
}

func join(windows []window) []window {
	slices.SortFunc(windows, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	var joined []window
	for _, w := range windows {
		if n := len(joined); n > 0 && w.from <= joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, w.to)
		} else {
			joined = append(joined, w)
		}
	}
	return joined
}

// lowerASCII preserves every offset, unlike bytes.ToLower.
func lowerASCII(b []byte) string {
	lower := bytes.Clone(b)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}

//go:embed rules.txt
var rulesText string

// Rules returns the table, the gravest first.
func Rules() []Rule {
	var all []Rule
	for line := range strings.Lines(rulesText) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '\t':
			word, value, _ := strings.Cut(line[1:], " ")
			all[len(all)-1].set(word, strings.TrimLeft(value, " "))
		default:
			f := strings.SplitN(line, " ", 3)
			all = append(all, Rule{Severity: Severity(f[0]), ID: f[1], Detail: f[2]})
		}
	}
	return all
}

// set takes a line of a rule.
func (r *Rule) set(word, value string) {
	alternative := func(pattern string) {
		if r.Pattern != "" {
			r.Pattern += "|"
		}
		r.Pattern += pattern
	}
	switch word {
	case "near":
		r.Literals = append(r.Literals, strings.Split(strings.Trim(value, `"`), `", "`)...)
	case "match":
		alternative(value)
	case "writes":
		alternative(writesTo(value))
	case "+":
		r.Pattern += value
	default:
		panic("detect: rules.txt: " + word)
	}
}

// Context of a path that is written: a redirection, tee or dd before it, or a call with a writing mode around it.
const (
	shellWrite = `(?:>{1,2}\s*|\btee\s+(?:-a\s+)?|\bof=)["']?`
	callWrite  = `["']\s*,\s*(?:mode\s*=\s*)?(?:["'][^"'\n]*[wa+]|[^)\n]*O_(?:WRONLY|RDWR))`
	callName   = `\b(?:open\w*|write_?file\w*|File\.(?:write|open)|Path)\s*\(\s*`
)

// writesTo matches a write to a path that ends in the given expression.
func writesTo(path string) string {
	return shellWrite + `[^\s"'|;&]*` + path + `\b` +
		`|` + callName + `[furb]{0,2}["'][^"'\n]*` + path + callWrite +
		`|(?i:\bwrite_?file\w*|\bFile\.write)\s*\(\s*["'][^"'\n]*` + path + `["']`
}
