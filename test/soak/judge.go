package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/api"
)

// executionsWrong returns what a history has wrong. Nobody uses the server meanwhile. It is pure.
func (o *oracle) executionsWrong(history []api.Execution) (wrong []string) {
	known := map[string]api.Execution{}
	for _, e := range history {
		if _, twice := known[e.ID]; twice {
			wrong = append(wrong, e.ID+" is there twice")
		}
		known[e.ID] = e
		if e.Status == api.StatusRunning {
			wrong = append(wrong, e.ID+" does not run, and is said to")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(o.executions)) {
		e, found := known[id]
		switch want := o.executions[id]; {
		case !found:
			wrong = append(wrong, id+" is lost")
		case want.result && e.Status != api.StatusCompleted:
			wrong = append(wrong, fmt.Sprintf("%s was acknowledged as completed, and is said to be %s", id, e.Status))
		case want.result && !keeps(e, want.output):
			wrong = append(wrong, fmt.Sprintf("%s has answered %.40q, and is said to have printed %.40q", id, want.output,
				e.Output))
		}
	}
	return wrong
}

// keeps reports whether a history has an output, or says that it has less of it. It is pure.
func keeps(e api.Execution, output string) bool {
	return e.Output == output || e.OutputGone != "" || e.Truncated && strings.HasPrefix(output, e.Output)
}

// sandboxesWrong returns what a list of sandboxes has wrong. It is pure.
func (o *oracle) sandboxesWrong(list []api.Sandbox) (wrong []string) {
	known := map[string]bool{}
	for _, s := range list {
		p, asked := o.sandboxes[s.Name]
		if !asked {
			wrong = append(wrong, fmt.Sprintf("the sandbox %s was never asked for", s.Name))
		}
		if p == there && s.State != "running" {
			wrong = append(wrong, fmt.Sprintf("the sandbox %s was acknowledged, and is %q", s.Name, s.State))
		}
		known[s.Name] = true
	}
	return append(wrong, presenceWrong("sandbox", o.sandboxes, known)...)
}

// presenceWrong returns what of one kind was acknowledged to be there, or gone, and is not. It is pure.
func presenceWrong(kind string, acknowledged map[string]presence, found map[string]bool) (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(acknowledged)) {
		switch p := acknowledged[name]; {
		case p == there && !found[name]:
			wrong = append(wrong, fmt.Sprintf("the %s %s was acknowledged, and is lost", kind, name))
		case p == gone && found[name]:
			wrong = append(wrong, fmt.Sprintf("the %s %s was acknowledged to be gone, and is there", kind, name))
		}
	}
	return wrong
}

// linesWrong returns what is wrong with a file to which commands have added numbers. It is pure.
func (o *oracle) linesWrong(file, content string) (wrong []string) {
	count := map[string]int{}
	for _, line := range strings.Fields(content) {
		count[line]++
	}
	for _, n := range slices.Sorted(maps.Keys(o.lines[file])) {
		text, acknowledged := fmt.Sprint(n), o.lines[file][n]
		if times := count[text]; times > 1 || times == 0 && acknowledged {
			wrong = append(wrong, fmt.Sprintf("%s has line %d %d times, acknowledged: %v", file, n, times, acknowledged))
		}
		delete(count, text)
	}
	for _, text := range slices.Sorted(maps.Keys(count)) {
		wrong = append(wrong, fmt.Sprintf("%s has %q, which nothing has written", file, text))
	}
	return wrong
}

// runsWrong returns what a list of runs, which have had time to end, and their events have wrong. It is pure.
func (o *oracle) runsWrong(list []api.Run, events map[string][]string) (wrong []string) {
	known := map[string]api.Run{}
	for _, r := range list {
		if _, twice := known[r.ID]; twice {
			wrong = append(wrong, r.ID+" is there twice")
		}
		known[r.ID] = r
		if r.Status == api.RunRunning {
			wrong = append(wrong, r.ID+" comes to no end")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(o.runs)) {
		r, found := known[id]
		want := o.runs[id]
		switch {
		case !found:
			wrong = append(wrong, id+" is lost")
		case want.end != "" && r.Status != want.end:
			wrong = append(wrong, fmt.Sprintf("%s was acknowledged as %s, and is said to be %s", id, want.end, r.Status))
		}
		if lost := missing(want.events, events[id]); found && lost != "" {
			wrong = append(wrong, fmt.Sprintf("%s has lost what it streamed: %.200s", id, lost))
		}
	}
	return wrong
}

// missing returns the first of some events that is not among others, in their order. It is pure.
func missing(events, among []string) string {
	for _, e := range events {
		i := slices.Index(among, e)
		if i < 0 {
			return e
		}
		among = among[i+1:]
	}
	return ""
}

// auditWrong returns what an audit log has wrong, and its verification. It is pure.
func (o *oracle) auditWrong(log []api.AuditRecord, v api.AuditVerification) (wrong []string) {
	if !v.Intact || v.Records < int64(len(log)) {
		wrong = append(wrong, fmt.Sprintf("of the %d records of the audit log %d fit, and record %d does not", len(log),
			v.Records, v.Broken))
	}
	lines := map[action]int{}
	for _, r := range log {
		if r.Verdict != "error" || r.Action == "execute" { // an execution that failed is acknowledged as one
			lines[action{r.Action, r.Object}]++
		}
	}
	for a, times := range o.actions {
		if lines[a] < times {
			wrong = append(wrong, fmt.Sprintf("%s of %s was acknowledged %d times, and has %d lines in the audit log", a.name,
				a.object, times, lines[a]))
		}
	}
	slices.Sort(wrong)
	return wrong
}
