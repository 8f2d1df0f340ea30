// Package soak loads a server for a long time, kills it again and again, and holds what it says afterwards against
// everything that it has acknowledged. What the machine holds before and after is compared.
package soak

import "sync"

// oracle remembers what a server has acknowledged. A request without an answer may have happened or not.
type oracle struct {
	mu         sync.Mutex
	executions map[string]answered     // by id
	sandboxes  map[string]presence     // by name
	uploads    map[string]presence     // by id
	approvals  map[string]presence     // by what is approved
	lines      map[string]map[int]bool // of each file in a sandbox, by number: whether writing it was acknowledged
	runs       map[string]streamed     // by id
	actions    map[action]int          // how often each was acknowledged
}

// answered is an execution whose id is known.
type answered struct {
	output string // that it prints
	result bool   // its result was acknowledged
}

// streamed is an agent's run whose id is known.
type streamed struct {
	events []string // messages and decisions that came, in their order
	end    string   // the status that was acknowledged as its end; empty: none was
}

// action is what an audit log has lines of.
type action struct{ name, object string }

// presence is what is known about a thing that comes and goes.
type presence string

const (
	there     presence = "there"     // its making was acknowledged
	gone      presence = "gone"      // its removal was acknowledged
	uncertain presence = "uncertain" // a request was not answered
)

func newOracle() *oracle {
	return &oracle{executions: map[string]answered{}, sandboxes: map[string]presence{}, uploads: map[string]presence{},
		approvals: map[string]presence{}, lines: map[string]map[int]bool{}, runs: map[string]streamed{},
		actions: map[action]int{}}
}

func (o *oracle) execution(id string, a answered) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.actions[action{"execute", id}] = 1 // also of one whose server died
	o.executions[id] = a
}

func (o *oracle) sandbox(name string, p presence) { o.present(o.sandboxes, name, p) }

func (o *oracle) upload(id string, p presence) { o.present(o.uploads, id, p) }

func (o *oracle) approval(about string, p presence) { o.present(o.approvals, about, p) }

func (o *oracle) present(in map[string]presence, what string, p presence) {
	o.mu.Lock()
	defer o.mu.Unlock()
	in[what] = p
}

func (o *oracle) line(file string, n int, acknowledged bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lines[file] == nil {
		o.lines[file] = map[int]bool{}
	}
	o.lines[file][n] = acknowledged
}

// run changes what is known of a run.
func (o *oracle) run(id string, change func(r *streamed)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.runs[id]
	change(&r)
	o.runs[id] = r
}

// acted remembers that an action was acknowledged.
func (o *oracle) acted(name, object string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.actions[action{name, object}]++
}

// acknowledged counts what was acknowledged, by its kind.
func (o *oracle) acknowledged() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	count := map[string]int{"executions": 0, "commands": 0, "typed lines": 0, "sandboxes": 0, "uploads": 0,
		"approvals": 0, "runs": len(o.runs), "ends of runs": 0}
	for _, a := range o.executions {
		if a.result {
			count["executions"]++
		}
	}
	for _, r := range o.runs {
		if r.end != "" {
			count["ends of runs"]++
		}
	}
	for file, kind := range map[string]string{"log": "commands", "typed": "typed lines"} {
		for _, acknowledged := range o.lines[file] {
			if acknowledged {
				count[kind]++
			}
		}
	}
	for kind, all := range map[string]map[string]presence{"sandboxes": o.sandboxes, "uploads": o.uploads,
		"approvals": o.approvals} {
		for _, p := range all {
			if p != uncertain {
				count[kind]++
			}
		}
	}
	return count
}

// hasAll reports whether something of each kind was acknowledged.
func (o *oracle) hasAll() bool {
	for _, n := range o.acknowledged() {
		if n == 0 {
			return false
		}
	}
	return true
}
