package soak

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestOracle: what is lost, made up or done twice is noticed, and what may be so is not.
func TestOracle(t *testing.T) {
	o := newOracle()
	o.execution("ex_a", answered{output: "a", result: true})
	o.execution("ex_b", answered{output: "b"})
	o.sandbox("one", there)
	o.sandbox("two", gone)
	o.sandbox("three", uncertain)
	o.upload("up_a", there)
	o.upload("up_b", gone)
	o.upload("up_c", uncertain)
	o.line("log", 1, true)
	o.line("log", 2, false)
	o.run("ru_a", func(r *streamed) { r.events, r.end = []string{"hello", "done"}, api.RunSucceeded })
	o.run("ru_b", func(r *streamed) { r.events = []string{"hello"} })
	o.acted("sandbox-exec", "sb_a")
	o.acted("sandbox-exec", "sb_a")
	a := api.Execution{ID: "ex_a", Status: api.StatusCompleted, Output: "a"}
	b := api.Execution{ID: "ex_b", Status: api.StatusFailed}
	other, less, removed := a, a, a
	other.Output, less.Output, less.Truncated, removed.Output, removed.OutputGone = "b", "", true, "", "history_size"
	ofExecutions := func(history ...api.Execution) []string { return o.executionsWrong(history) }
	ofSandboxes := func(list ...api.Sandbox) []string { return o.sandboxesWrong(list) }
	one := api.Sandbox{Name: "one", State: "running"}
	ofUploads := func(found ...string) []string {
		all := map[string]bool{}
		for _, id := range found {
			all[id] = true
		}
		return presenceWrong("upload", o.uploads, all)
	}
	ra, rb := api.Run{ID: "ru_a", Status: api.RunSucceeded}, api.Run{ID: "ru_b", Status: api.RunError}
	ofRuns := func(events []string, list ...api.Run) []string {
		return o.runsWrong(list, map[string][]string{"ru_a": events, "ru_b": {"hello", "more"}})
	}
	both, done := []string{"hello", "and", "done"}, api.AuditRecord{Action: "execute", Object: "ex_a", Verdict: "ok"}
	command := api.AuditRecord{Action: "sandbox-exec", Object: "sb_a", Verdict: "ok"}
	failed := command
	failed.Verdict = "error"
	died := api.AuditRecord{Action: "execute", Object: "ex_b", Verdict: "error"}
	ofAudit := func(log ...api.AuditRecord) []string {
		return o.auditWrong(log, api.AuditVerification{Intact: true, Records: int64(len(log))})
	}
	for _, c := range []struct {
		name  string
		wrong []string
		want  string // in one of them; empty: there is none
	}{
		{"all executions", ofExecutions(a, b), ""},
		{"one more", ofExecutions(a, b, api.Execution{ID: "ex_c", Status: api.StatusKilled}), ""},
		{"a lost one", ofExecutions(a), "ex_b is lost"},
		{"one twice", ofExecutions(a, a, b), "twice"},
		{"one that runs for ever", ofExecutions(a, api.Execution{ID: "ex_b", Status: api.StatusRunning}), "said to"},
		{"another end", ofExecutions(api.Execution{ID: "ex_a", Status: api.StatusFailed}, b), "is said to be failed"},
		{"another output", ofExecutions(other, b), "is said to have printed"},
		{"less output", ofExecutions(less, b), ""},
		{"no output any more", ofExecutions(removed, b), ""},
		{"all sandboxes", ofSandboxes(one), ""},
		{"an uncertain one", ofSandboxes(one, api.Sandbox{Name: "three", State: "stopped"}), ""},
		{"a lost sandbox", ofSandboxes(), "the sandbox one was acknowledged, and is lost"},
		{"a stopped one", ofSandboxes(api.Sandbox{Name: "one", State: "stopped"}), `is "stopped"`},
		{"one that has come back", ofSandboxes(one, api.Sandbox{Name: "two", State: "running"}), "to be gone"},
		{"a stranger", ofSandboxes(one, api.Sandbox{Name: "four"}), "was never asked for"},
		{"all uploads", ofUploads("up_a"), ""},
		{"more uploads", ofUploads("up_a", "up_c", "up_d"), ""},
		{"a lost upload", ofUploads("up_c"), "the upload up_a was acknowledged"},
		{"an upload taken twice", ofUploads("up_a", "up_b"), "the upload up_b was acknowledged to be gone"},
		{"all lines", o.linesWrong("log", "1\n2\n"), ""},
		{"without an uncertain one", o.linesWrong("log", "1\n"), ""},
		{"a lost line", o.linesWrong("log", "2\n"), "line 1 0 times"},
		{"a line twice", o.linesWrong("log", "1\n2\n2\n"), "line 2 2 times"},
		{"a strange line", o.linesWrong("log", "1\n7\n"), "nothing has written"},
		{"all runs", ofRuns(both, ra, rb), ""},
		{"a lost run", ofRuns(both, ra), "ru_b is lost"},
		{"a run twice", ofRuns(both, ra, ra, rb), "twice"},
		{"a run without an end", ofRuns(both, ra, api.Run{ID: "ru_b", Status: api.RunRunning}), "comes to no end"},
		{"another end of a run", ofRuns(both, api.Run{ID: "ru_a", Status: api.RunError}, rb), "is said to be error"},
		{"a lost event", ofRuns([]string{"hello"}, ra, rb), "has lost what it streamed: done"},
		{"events in another order", ofRuns([]string{"done", "hello"}, ra, rb), "has lost what it streamed: done"},
		{"all actions", ofAudit(done, died, command, command), ""},
		{"a lost line of the audit log", ofAudit(done, died, command), "acknowledged 2 times, and has 1 lines"},
		{"a failure's line instead", ofAudit(done, died, command, failed), "acknowledged 2 times, and has 1 lines"},
		{"an execution without one", ofAudit(died, command, command), "execute of ex_a"},
		{"one that died without one", ofAudit(done, command, command), "execute of ex_b"},
		{"a changed log", o.auditWrong(nil, api.AuditVerification{Broken: 3}), "record 3 does not"},
	} {
		says := func(s string) bool { return strings.Contains(s, c.want) }
		if c.want == "" && len(c.wrong) > 0 || c.want != "" && !slices.ContainsFunc(c.wrong, says) {
			t.Errorf("%s: %q", c.name, c.wrong)
		}
	}
}
