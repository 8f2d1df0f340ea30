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
	o.line(1, true)
	o.line(2, false)
	a := api.Execution{ID: "ex_a", Status: api.StatusCompleted, Output: "a"}
	b := api.Execution{ID: "ex_b", Status: api.StatusFailed}
	other, less, removed := a, a, a
	other.Output, less.Output, less.Truncated, removed.Output, removed.OutputGone = "b", "", true, "", "history_size"
	ofExecutions := func(history ...api.Execution) []string { return o.executionsWrong(history) }
	ofSandboxes := func(list ...api.Sandbox) []string { return o.sandboxesWrong(list) }
	one := api.Sandbox{Name: "one", State: "running"}
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
		{"a lost sandbox", ofSandboxes(), "the sandbox one was acknowledged"},
		{"a stopped one", ofSandboxes(api.Sandbox{Name: "one", State: "stopped"}), `is "stopped"`},
		{"one that has come back", ofSandboxes(one, api.Sandbox{Name: "two", State: "running"}), "to be gone"},
		{"a stranger", ofSandboxes(one, api.Sandbox{Name: "four"}), "was never asked for"},
		{"all lines", o.linesWrong("1\n2\n"), ""},
		{"without an uncertain one", o.linesWrong("1\n"), ""},
		{"a lost line", o.linesWrong("2\n"), "command 1 ran 0 times"},
		{"a line twice", o.linesWrong("1\n2\n2\n"), "command 2 ran 2 times"},
		{"a strange line", o.linesWrong("1\n7\n"), "no command has written"},
	} {
		says := func(s string) bool { return strings.Contains(s, c.want) }
		if c.want == "" && len(c.wrong) > 0 || c.want != "" && !slices.ContainsFunc(c.wrong, says) {
			t.Errorf("%s: %q", c.name, c.wrong)
		}
	}
}
