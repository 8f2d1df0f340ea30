package inner

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestOutput(t *testing.T) {
	o, err := NewOutput()
	if err != nil {
		t.Fatal(err)
	}
	// What a binary prints with -test.v=test2json, where ^V marks its own lines.
	_, err = o.Write([]byte(strings.ReplaceAll(`^=== RUN   TestA
^=== RUN   TestA/with/slash
    a_test.go:1: why it failed
^--- FAIL: TestA (0.00s)
^    --- FAIL: TestA/with/slash (0.00s)
^=== RUN   TestB
    a_test.go:2: why it is skipped
^--- SKIP: TestB (0.00s)
^=== RUN   TestC
`, "^", "\x16")))
	if err := errors.Join(err, o.close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	var walk func(n *node, depth int)
	walk = func(n *node, depth int) {
		for _, c := range n.children {
			got = append(got, strings.Repeat("  ", depth)+c.name+": "+c.action+" "+strings.TrimSpace(c.output.String()))
			walk(c, depth+1)
		}
	}
	walk(o.root, 0)
	want := []string{
		"TestA: fail ",
		"  with/slash: fail a_test.go:1: why it failed",
		"TestB: skip a_test.go:2: why it is skipped",
		"TestC:  ", // it did not end, and is reported so
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !o.root.anyFailed() {
		t.Error("anyFailed is false")
	}
}

// TestReport looks from outside at what report makes of each outcome: a test
// that reports wrongly could not tell of itself.
func TestReport(t *testing.T) {
	if outcome := os.Getenv("COVE_TEST_REPORT"); outcome != "" {
		root := &node{}
		parent, child := root.find("TestInner"), root.find("TestInner/case")
		parent.action, child.action = "pass", outcome
		child.output.WriteString("the reason")
		if outcome == "fail" {
			parent.action = "fail"
		}
		root.report(t)
		return
	}
	for _, c := range []struct{ outcome, line string }{
		{"pass", "--- PASS: TestReport/TestInner/case"},
		{"skip", "--- SKIP: TestReport/TestInner/case"},
		{"fail", "--- FAIL: TestReport/TestInner/case"},
		{"lost", "--- FAIL: TestReport/TestInner/case"},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestReport$", "-test.v")
			cmd.Env = append(os.Environ(), "COVE_TEST_REPORT="+c.outcome)
			out, err := cmd.CombinedOutput()
			failed := strings.Contains(c.line, "FAIL")
			if (err != nil) != failed || !strings.Contains(string(out), c.line) || !strings.Contains(string(out), "the reason") {
				t.Errorf("want %q, got %v and\n%s", c.line, err, out)
			}
		})
	}
}
