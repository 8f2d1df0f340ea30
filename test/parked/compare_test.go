// Package parked proves that a program cannot tell whether its interpreter was started for it or had been waiting: each
// program of testdata runs in fresh interpreters and in a parked one, on the native engine.
package parked

import (
	"fmt"
	"regexp"
	"strings"
)

// An outcome is what a caller sees of a program.
type outcome struct {
	Output, Stderr     string
	Exit               int
	Status, Limit, Why string
	Truncated          bool
}

func (o outcome) lines() []string {
	rest := fmt.Sprintf("exit %d, %s %s %s %t", o.Exit, o.Status, o.Limit, o.Why, o.Truncated)
	var all []string
	for _, part := range []struct{ name, text string }{{"output", o.Output}, {"error output", o.Stderr}} {
		for _, line := range strings.SplitAfter(part.text, "\n") {
			all = append(all, part.name+": "+line)
		}
	}
	return append(all, rest)
}

// words and what is between them.
var words = regexp.MustCompile(`[0-9A-Za-z]+|[^0-9A-Za-z]+`)

// differences compares a parked run with two fresh ones. A word in which those differ, such as an address or a time,
// may be any word. It is an error where they differ in more than words: such a program cannot be compared.
func differences(a, b, parked outcome) (found []string, err error) {
	fresh, other, got := a.lines(), b.lines(), parked.lines()
	if len(fresh) != len(other) {
		return nil, fmt.Errorf("two fresh runs have %d and %d lines:\n%s\n%s", len(fresh), len(other),
			strings.Join(fresh, ""), strings.Join(other, ""))
	}
	for i, line := range fresh {
		free, err := varying(line, other[i])
		if err != nil {
			return nil, err
		}
		switch {
		case i >= len(got):
			found = append(found, fmt.Sprintf("fresh %q, parked nothing", line))
		case !alike(line, got[i], free):
			found = append(found, fmt.Sprintf("fresh %q, parked %q", line, got[i]))
		}
	}
	for _, line := range got[min(len(got), len(fresh)):] {
		found = append(found, fmt.Sprintf("fresh nothing, parked %q", line))
	}
	return found, nil
}

// varying returns the places of the words in which two lines of fresh runs differ.
func varying(a, b string) (map[int]bool, error) {
	v, w := words.FindAllString(a, -1), words.FindAllString(b, -1)
	free := map[int]bool{}
	if len(v) != len(w) {
		return nil, fmt.Errorf("two fresh runs differ in more than words: %q and %q", a, b)
	}
	for i := range v {
		if v[i] == w[i] {
			continue
		}
		if !isWord(v[i]) || !isWord(w[i]) {
			return nil, fmt.Errorf("two fresh runs differ in more than words: %q and %q", a, b)
		}
		free[i] = true
	}
	return free, nil
}

func isWord(s string) bool {
	c := s[0]
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func alike(want, got string, free map[int]bool) bool {
	v, w := words.FindAllString(want, -1), words.FindAllString(got, -1)
	if len(v) != len(w) {
		return false
	}
	for i := range v {
		if v[i] != w[i] && !(free[i] && isWord(w[i])) {
			return false
		}
	}
	return true
}
