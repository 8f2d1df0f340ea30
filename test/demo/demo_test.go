package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stub is a "cove" that does what a shell script says.
func stub(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cove")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ncase $1 in version) echo cove stub; exit;; esac\n"+script),
		0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func show(t *testing.T, cove string) (bool, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ok, err := play(t.Context(), cove, newStage(out))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return ok, string(text)
}

// TestDemoNoticesWhatIsNotStopped: a Cove that contains nothing fails it.
func TestDemoNoticesWhatIsNotStopped(t *testing.T) {
	ok, text := show(t, stub(t, `exit 0`))
	if ok {
		t.Errorf("a Cove that stops nothing passed:\n%s", text)
	}
	for _, act := range []string{"Fork bomb", "Memory hog", "Endless loop", "Disk filler", "A way out"} {
		if !strings.Contains(text, act) {
			t.Errorf("the demonstration lacks %q", act)
		}
	}
}

// TestDemoNoticesAWayOut: a connection from inside fails it, whatever the program prints about it.
func TestDemoNoticesAWayOut(t *testing.T) {
	target, err := newTarget()
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	if why := target.untouched(result{}); why != "" {
		t.Errorf("nobody was there yet: %s", why)
	}
	target.reached.Add(1)
	if why := target.untouched(result{}); why == "" {
		t.Error("a connection went unnoticed")
	}
}

// TestDemoGoesOnWithoutAToolchain: what is missing is said and is no failure.
func TestDemoGoesOnWithoutAToolchain(t *testing.T) {
	ok, text := show(t, stub(t, `echo "cove: node is not installed on this host" >&2; exit 127`))
	if !ok || !strings.Contains(text, "not shown: node is not installed") {
		t.Errorf("ok is %v:\n%s", ok, text)
	}
}

func TestJudges(t *testing.T) {
	for _, c := range []struct {
		name  string
		judge func(result) string
		r     result
		ok    bool
	}{
		{"stopped", stopped("out of memory"), result{stderr: "x\ncove: stopped: out of memory (limit 1 MiB)\n"}, true},
		{"stopped by something else", stopped("out of memory"), result{stderr: "cove: stopped: out of time\n"}, false},
		{"the program's own words do not count", stopped("out of memory"),
			result{stdout: "cove: stopped: out of memory\n"}, false},
		{"a note is no verdict", stopped("out of time"),
			result{stderr: "cove: stopped: out of time\ncove: note: line 1\n"}, true},
		{"prints", prints("x"), result{stdout: "x"}, true},
		{"prints and fails", prints("x"), result{stdout: "x", code: 1}, false},
		{"lacks", lacks("OPEN"), result{stdout: "OPEN"}, false},
		{"sees itself", sees(3), result{stdout: "2\n0\n"}, true},
		{"sees too many", sees(3), result{stdout: "200\n"}, false},
		{"sees nothing", sees(3), result{}, false},
		{"all", all(prints("x"), lacks("y")), result{stdout: "xy"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := c.judge(c.r); (why == "") != c.ok {
				t.Errorf("%q", why)
			}
		})
	}
}

// TestWhatCoveSaidIsShown: however much the program printed before.
func TestWhatCoveSaidIsShown(t *testing.T) {
	_, text := show(t, stub(t,
		`i=0; while [ $i -lt 20 ]; do echo "line $i" >&2; i=$((i+1)); done; echo "cove: stopped: by a test" >&2; exit 1`))
	if !strings.Contains(text, "more lines\n   │ cove: stopped: by a test\n") || strings.Contains(text, "line 19") {
		t.Errorf("the demonstration shows\n%s", text)
	}
}

// TestDemo: the demonstration itself, with the programs of this run.
func TestDemo(t *testing.T) {
	bin := os.Getenv("COVE_TEST_BIN")
	switch {
	case bin == "":
		t.Skip("needs the programs that \"make test\" builds: COVE_TEST_BIN")
	case os.Geteuid() != 0:
		t.Skip("needs root: without it the machine may lack a delegated control group")
	}
	if ok, text := show(t, filepath.Join(bin, "cove")); !ok {
		t.Errorf("it does not go as it should:\n%s", text)
	}
}
