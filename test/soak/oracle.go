// Package soak loads a server for a long time, kills it again and again, and holds what it says afterwards against
// everything that it has acknowledged. What the machine holds before and after is compared.
package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove/api"
)

// oracle remembers what a server has acknowledged. A request without an answer may have happened or not.
type oracle struct {
	mu         sync.Mutex
	executions map[string]answered // by id
	sandboxes  map[string]presence // by name
	lines      map[int]bool        // of a file in a sandbox, by number: whether writing it was acknowledged
}

// answered is an execution whose id is known.
type answered struct {
	output string // that it prints
	result bool   // its result was acknowledged
}

// presence is what is known about a sandbox.
type presence string

const (
	there     presence = "there"     // its making was acknowledged
	gone      presence = "gone"      // its removal was acknowledged
	uncertain presence = "uncertain" // a request was not answered
)

func newOracle() *oracle {
	return &oracle{executions: map[string]answered{}, sandboxes: map[string]presence{}, lines: map[int]bool{}}
}

func (o *oracle) execution(id string, a answered) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.executions[id] = a
}

func (o *oracle) sandbox(name string, p presence) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sandboxes[name] = p
}

func (o *oracle) line(n int, acknowledged bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines[n] = acknowledged
}

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
	known := map[string]string{}
	for _, s := range list {
		known[s.Name] = s.State
	}
	for _, name := range slices.Sorted(maps.Keys(o.sandboxes)) {
		state, found := known[name]
		switch p := o.sandboxes[name]; {
		case p == there && state != "running":
			wrong = append(wrong, fmt.Sprintf("the sandbox %s was acknowledged, and is %q", name, state))
		case p == gone && found:
			wrong = append(wrong, fmt.Sprintf("the sandbox %s was acknowledged to be gone, and is %s", name, state))
		}
		delete(known, name)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		wrong = append(wrong, fmt.Sprintf("the sandbox %s was never asked for", name))
	}
	return wrong
}

// linesWrong returns what is wrong with a file to which commands have added numbers. It is pure.
func (o *oracle) linesWrong(file string) (wrong []string) {
	count := map[string]int{}
	for _, line := range strings.Fields(file) {
		count[line]++
	}
	for _, n := range slices.Sorted(maps.Keys(o.lines)) {
		text := fmt.Sprint(n)
		if times := count[text]; times > 1 || times == 0 && o.lines[n] {
			wrong = append(wrong, fmt.Sprintf("the command %d ran %d times, acknowledged: %v", n, times, o.lines[n]))
		}
		delete(count, text)
	}
	for _, text := range slices.Sorted(maps.Keys(count)) {
		wrong = append(wrong, fmt.Sprintf("no command has written %q", text))
	}
	return wrong
}
