package github

import (
	_ "embed"
	"iter"
	"strings"
	"sync"
)

// route is one row of the REST table.
type route struct {
	methods  string // "POST", "GET,HEAD", or "write" for all methods that do not read
	pattern  string
	effect   effect
	event    eventRule // of the body
	segments []string  // of pattern
}

// eventRule is the condition on the "event" of a review, which publishes it.
type eventRule string

const (
	noEvent       eventRule = ""               // no condition
	eventOptional eventRule = "event-optional" // absent, which leaves the review pending, or COMMENT
	eventRequired eventRule = "event-required" // COMMENT
)

//go:embed routes.txt
var routesTable string

// routes returns the table. The first matching row counts. A request without a row is allowed if it reads, and refused
// as unknown otherwise. Rows that refuse only add a reason, except those about GET.
var routes = sync.OnceValue(func() (all []route) {
	for row := range tableRows(routesTable, 3) {
		segments := strings.Split(strings.TrimPrefix(row[2], "/"), "/")
		all = append(all, route{methods: row[1], pattern: row[2], effect: effect(row[0]), event: eventRule(row[3]),
			segments: segments})
	}
	return all
})

// tableRows returns the rows of an embedded table: an effect, the other columns, and last the event rule or "".
func tableRows(table string, columns int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(table) {
			row := strings.Fields(line)
			if len(row) == 0 || row[0] == "#" {
				continue
			}
			if len(row) == columns {
				row = append(row, string(noEvent))
			}
			rule := eventRule(row[len(row)-1])
			known := rule == noEvent || rule == eventOptional || rule == eventRequired
			if len(row) != columns+1 || !known || words[effect(row[0])] == "" {
				panic("github: no row of a table: " + line)
			}
			if !yield(row) {
				return
			}
		}
	}
}

// find returns the first row for a request. A row that refuses matches a path in any case and with a trailing slash, as
// some server might; a row that allows does not, and matches only names and numbers in GitHub's own form.
func find(method, path string) *route {
	exact := strings.Split(strings.TrimPrefix(path, "/"), "/")
	loose := strings.Split(strings.Trim(path, "/"), "/")
	all := routes()
	for i := range all {
		r := &all[i]
		segments, same := loose, loosely
		if r.effect.granted() {
			segments, same = exact, exactly
		}
		if r.hasMethod(method) && r.match(segments, same) {
			return r
		}
	}
	return nil
}

func (r *route) hasMethod(method string) bool {
	for m := range strings.SplitSeq(r.methods, ",") {
		if m == method || m == "write" && method != "GET" && method != "HEAD" {
			return true
		}
	}
	return false
}

func (r *route) match(path []string, same func(pattern, segment string) bool) bool {
	for i, s := range r.segments {
		if s == "**" {
			return true
		}
		if i >= len(path) || !same(s, path[i]) {
			return false
		}
	}
	return len(path) == len(r.segments)
}

func loosely(pattern, segment string) bool {
	return pattern[0] == '{' || strings.EqualFold(pattern, segment)
}

func exactly(pattern, segment string) bool {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
	switch {
	case pattern[0] != '{':
		return pattern == segment
	case segment == "" || segment == "." || segment == "..":
		return false
	case pattern == "{number}" || pattern == "{id}":
		return strings.Trim(segment, digits) == ""
	}
	return strings.Trim(segment, letters+digits) == ""
}

func judgeBody(data []byte, r *route) (Judged, error) {
	body, err := readObject(data)
	if err != nil {
		return Judged{}, form(err.Error())
	}
	event, has := body["event"]
	if err := r.event.judge(event, has); err != nil {
		return Judged{}, err
	}
	written, err := writeJSON(body)
	return Judged{Body: written}, err
}

func (e eventRule) judge(event any, has bool) error {
	switch {
	case e == noEvent, event == "COMMENT", e == eventOptional && (!has || event == nil):
		return nil
	}
	return refuse(judgement)
}
