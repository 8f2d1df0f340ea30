// Package inner reports the tests that another process runs, in a VM or as another user, as subtests of the test that
// started it: a failure among them is told like any other.
package inner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// node is a test that ran inside, with its subtests.
type node struct {
	name     string // the part below the parent's
	full     string
	action   string // how it ended: "pass", "fail", "skip"; empty when it did not
	elapsed  time.Duration
	output   strings.Builder
	children []*node
}

// slow is how long a test takes that report names with its duration: the duration of the subtest it makes is none.
const slow = time.Second

// report makes every test below n a subtest of t that ends as it did.
func (n *node) report(t *testing.T) {
	for _, child := range n.children {
		t.Run(child.name, func(t *testing.T) {
			child.report(t)
			if child.elapsed >= slow {
				t.Logf("took %s inside", child.elapsed)
			}
			output := strings.TrimSpace(child.output.String())
			switch child.action {
			case "pass":
				if output != "" {
					t.Log(output)
				}
			case "skip":
				t.Skip(output)
			case "fail":
				t.Error(output)
			default:
				t.Errorf("did not end:\n%s", output)
			}
		})
	}
}

func (n *node) anyFailed() bool {
	for _, child := range n.children {
		if child.action != "pass" && child.action != "skip" {
			return true
		}
	}
	return false
}

// find is the node of the test with this name, made when it is not there. Its parent is the test with the longest name
// that this one begins with, because the name of a subtest may hold a slash.
func (n *node) find(full string) *node {
	for _, child := range n.children {
		if child.full == full {
			return child
		}
		if strings.HasPrefix(full, child.full+"/") {
			return child.find(full)
		}
	}
	child := &node{full: full, name: strings.TrimPrefix(full, n.full+"/")}
	if n.full == "" {
		child.name = full
	}
	n.children = append(n.children, child)
	return child
}

// testEvent is one line of test2json (cmd/test2json).
type testEvent struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

func (n *node) apply(e testEvent) {
	at := n
	if e.Test != "" {
		at = n.find(e.Test)
	}
	switch e.Action {
	case "pass", "fail", "skip":
		at.action, at.elapsed = e.Action, time.Duration(e.Elapsed*float64(time.Second))
	case "output":
		if !isFrame(e.Output) {
			at.output.WriteString(e.Output)
		}
	}
}

// isFrame says whether a line is the test framework's own, which the outer test prints again.
func isFrame(line string) bool {
	line = strings.TrimLeft(line, " ")
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "--- PASS: ", "--- FAIL: ",
		"--- SKIP: "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// Args are the arguments with which a test binary prints what Output reads.
var Args = []string{"-test.v=test2json", "-test.paniconexit0"}

// Output takes what a test binary prints that was started with Args.
type Output struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	result chan error
	root   *node
}

// NewOutput is an Output that Report ends.
func NewOutput() (*Output, error) {
	o := &Output{cmd: exec.Command("go", "tool", "test2json", "-t"), result: make(chan error, 1), root: &node{}}
	var err error
	if o.stdin, err = o.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { o.result <- o.root.read(stdout) }()
	return o, nil
}

// Write takes a part of the output.
func (o *Output) Write(part []byte) (int, error) { return o.stdin.Write(part) }

// Report makes every test that ran a subtest of t that ends as it did, and fails t where none ran, or where the binary
// ended with an exit code that none of them explains.
func (o *Output) Report(t *testing.T, exitCode int) {
	t.Helper()
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	o.root.report(t)
	if exitCode != 0 && !o.root.anyFailed() {
		t.Errorf("the tests ended with exit code %d:\n%s", exitCode, o.root.output.String())
	}
	if exitCode == 0 && len(o.root.children) == 0 {
		t.Errorf("no test ran:\n%s", o.root.output.String())
	}
}

func (o *Output) close() error {
	return errors.Join(o.stdin.Close(), <-o.result, o.cmd.Wait())
}

func (n *node) read(r io.Reader) error {
	events := json.NewDecoder(r)
	for {
		var e testEvent
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("test2json: %w", err)
		}
		n.apply(e)
	}
}
