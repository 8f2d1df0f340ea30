package doctor

import (
	"context"
	"slices"
)

// check is one row of the table.
type check struct {
	id, area, title string
	// needs is the engine that requires the feature, or everyEngine; empty for a check that concerns no engine, and then
	// it never fails.
	needs string
	run   func(ctx context.Context, h *host) outcome
}

const everyEngine = "*"

type outcome struct {
	status Status
	found  string
	fix    string
}

func ok(found string) outcome              { return outcome{status: OK, found: found} }
func info(found string) outcome            { return outcome{status: Info, found: found} }
func warn(found, fix string) outcome       { return outcome{Warn, found, fix} }
func fail(found, fix string) outcome       { return outcome{Fail, found, fix} }
func unknown(what string, e error) outcome { return warn(what+": "+e.Error(), "") }

// finding judges an outcome: only features that the default engine needs can fail.
func (c check) finding(o outcome, engine string) Finding {
	if o.status == Fail && c.needs != engine && c.needs != everyEngine {
		o.status = Warn
	}
	return Finding{ID: c.id, Area: c.area, Title: c.title, Status: o.status, Found: o.found, Fix: o.fix}
}

func healthy(findings []Finding) bool {
	return !slices.ContainsFunc(findings, func(f Finding) bool { return f.Status == Fail })
}

func (r Report) count(s Status) int {
	n := 0
	for _, f := range r.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}
