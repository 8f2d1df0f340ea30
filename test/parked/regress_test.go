//go:build linux

package parked

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// regress is a program that runs a module of CPython's tests and says how each of them ends.
const regress = `
import unittest, sys
from test import support
class Outcomes(unittest.TestResult):
    def startTestRun(self): self.all = {}
    def note(self, test, how): self.all[test.id()] = how
    def addSuccess(self, test): self.note(test, "success")
    def addFailure(self, test, e): self.note(test, "failure")
    def addError(self, test, e): self.note(test, "error")
    def addSkip(self, test, why): self.note(test, "skip")
    def addExpectedFailure(self, test, e): self.note(test, "expected")
    def addSubTest(self, test, sub, e):
        if e: self.note(test, "failure")
real, sys.stdout = sys.stdout, sys.stderr
r = Outcomes()
r.startTestRun()
unittest.defaultTestLoader.loadTestsFromName("test.test_%s").run(r)
real.write("".join(sorted("%%s %%s\n" %% t for t in r.all.items())))
`

// modules of CPython's tests that run within seconds. Those of signals, threads, input and output take a minute each on
// a busy machine, and test_cmd_line is about the command line, which a snippet has not got.
var modules = []string{"atexit", "code", "exceptions", "import", "inspect", "linecache", "os", "posix", "runpy", "sys",
	"traceback", "warnings"}

// slow are run as well where COVE_TEST_LONG is set.
var slow = []string{"faulthandler", "io", "signal", "subprocess", "threading"}

// TestCPython: CPython's own tests end in a parked interpreter as they do in fresh ones. One that does not end alike in
// two fresh interpreters is left out.
func TestCPython(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for a minute; make test runs it")
	}
	if found, _ := filepath.Glob("/usr/lib/python3.*/test/test_os.py"); len(found) == 0 {
		t.Skip("needs CPython's tests, which Debian's libpython3.11-testsuite has")
	}
	l := newLab(t)
	wanted := modules
	if os.Getenv("COVE_TEST_LONG") != "" {
		wanted = append(wanted, slow...)
	}
	queue := make(chan string)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for m := range queue {
				t.Run(m, func(t *testing.T) { l.regress(t, m) })
			}
		})
	}
	for _, m := range wanted {
		queue <- m
	}
	close(queue)
	workers.Wait()
}

func (l *lab) regress(t *testing.T, module string) {
	p := program{"python", "test_" + module, fmt.Sprintf(regress, module)}
	a, b := ends(t, run(t, l.fresh, p)), ends(t, run(t, l.fresh, p))
	succeeded := 0
	for _, how := range a {
		if how == "success" {
			succeeded++
		}
	}
	for _, s := range l.of(p.language) {
		parked := ends(t, s.parked(t, p))
		for id, how := range a {
			if b[id] == how && parked[id] != how {
				t.Errorf("%s in %s: %q, fresh %q", id, s.group, parked[id], how)
			}
		}
		for id := range parked {
			if a[id] == "" && b[id] == "" {
				t.Errorf("%s is found in %s alone", id, s.group)
			}
		}
	}
	if succeeded == 0 {
		t.Errorf("none of %d tests succeeds", len(a))
	}
	t.Logf("%d tests, %d succeed", len(a), succeeded)
}

// ends are the ends of tests by their names.
func ends(t *testing.T, o outcome) map[string]string {
	t.Helper()
	if o.Status != string(api.StatusCompleted) || o.Exit != 0 {
		o.Stderr = o.Stderr[max(0, len(o.Stderr)-2000):]
		t.Fatalf("%+v", o)
	}
	all := map[string]string{}
	for line := range strings.Lines(o.Output) {
		if id, how, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all[id] = how
		}
	}
	return all
}
