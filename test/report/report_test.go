//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const module = "github.com/cove-sandbox/cove/"

// lines makes a log; a word in front of each says what it is about.
func lines(events ...string) string { return strings.Join(events, "\n") + "\n" }

func ev(action, pkg, test, output string) string {
	return `{"Action":"` + action + `","Package":"` + module + pkg + `","Test":"` + test + `","Output":"` + output + `"}`
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, log, must string
		ok              bool
		want            []string // in the report
	}{
		{
			name: "all well",
			log: lines(ev("run", "a", "TestX", ""), ev("output", "a", "TestX", "noise\\n"), ev("pass", "a", "TestX", ""),
				ev("pass", "a", "", "")),
			must: "a TestX # why\n\n# nothing\n",
			ok:   true, want: []string{"ok  ", "tests: 1 passed, 0 failed, 0 skipped\n"},
		},
		{
			name: "a failure shows its output",
			log: lines(ev("run", "a", "TestX", ""), ev("output", "a", "TestX", "x_test.go:1: bad\\n"),
				ev("fail", "a", "TestX", ""),
				ev("fail", "a", "", "")),
			want: []string{"--- FAIL: a TestX\nx_test.go:1: bad\n", "tests: 0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "a skip is counted with its reason",
			log: lines(ev("run", "a", "TestX", ""), ev("output", "a", "TestX", "    x_test.go:1: needs root\\n"),
				ev("output", "a", "TestX", "--- SKIP: TestX (0.00s)\\n"),
				ev("skip", "a", "TestX", ""), ev("run", "a", "TestY", ""), ev("pass", "a", "TestY", ""), ev("pass", "a", "", "")),
			ok: true, want: []string{"   1  needs root (a TestX)", "tests: 1 passed, 0 failed, 1 skipped\n"},
		},
		{
			name: "a required test that was skipped",
			log: lines(ev("output", "a", "TestX", "    x_test.go:1: needs root\\n"), ev("skip", "a", "TestX", ""),
				ev("pass", "a", "TestY", ""),
				ev("pass", "a", "", "")),
			must: "a TestX\n", want: []string{"must run: a TestX was skipped: needs root",
				"tests: 1 passed, 1 failed, 1 skipped\n"},
		},
		{
			name: "a required test that is not there",
			log:  lines(ev("pass", "a", "TestX", ""), ev("pass", "a", "", "")),
			must: "a TestX/sub\n", want: []string{"must run: a TestX/sub did not run"},
		},
		{
			name: "a required subtest of the root package",
			log:  lines(`{"Action":"pass","Package":"github.com/cove-sandbox/cove","Test":"TestX/sub"}`),
			must: ". TestX/sub\n", ok: true,
		},
		{
			name: "a package that does not build",
			log: lines(`{"Action":"build-output","ImportPath":"`+module+`a","Output":"a.go:1: syntax error\n"}`,
				`{"Action":"fail","Package":"`+module+`a","FailedBuild":"`+module+`a"}`),
			want: []string{"--- FAIL: a\na.go:1: syntax error\n", "tests: 0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "a test that was running when its package died",
			log: lines(ev("run", "a", "TestX", ""), ev("output", "a", "TestX", "panic: boom\\n"),
				ev("fail", "a", "", "")),
			want: []string{"--- FAIL: a TestX\npanic: boom\n", "1 failed"},
		},
		{
			name: "a log that breaks off",
			log:  lines(ev("pass", "a", "TestX", ""), ev("run", "a", "TestY", "")),
			want: []string{"--- FAIL: a TestY", "tests: 1 passed, 1 failed, 0 skipped\n"},
		},
		{name: "nothing ran", log: "", want: []string{"tests: 0 passed, 0 failed, 0 skipped\n"}},
		{
			name: "words of the go command are shown",
			log:  lines("go: no such module", ev("pass", "a", "TestX", "")),
			ok:   true, want: []string{"go: no such module\n"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			must := filepath.Join(dir, "must")
			if err := os.WriteFile(must, []byte(c.must), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			ok, err := run(t.Context(), nil, strings.NewReader(c.log), &out, must, filepath.Join(dir, "log"))
			if err != nil || ok != c.ok {
				t.Errorf("ok %v, %v\n%s", ok, err, out.String())
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the report lacks %q:\n%s", want, out.String())
				}
			}
			kept, err := os.ReadFile(filepath.Join(dir, "log"))
			if err != nil || string(kept) != c.log {
				t.Errorf("the log that is kept differs: %v", err)
			}
		})
	}
}

// TestCommand runs a command instead of reading a log, in a process of its own
// because what is adopted once stays adopted.
func TestCommand(t *testing.T) {
	if mode := os.Getenv("REPORT_TEST_COMMAND"); mode != "" {
		ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
		defer stop()
		ok, err := run(ctx, []string{"sh", "-c", mode}, nil, os.Stdout, "", "")
		fmt.Printf("ok=%v err=%v\n", ok, err)
		return
	}
	pass := `echo '{"Action":"pass","Package":"github.com/cove-sandbox/cove/a","Test":"TestX"}'`
	for _, c := range []struct{ name, script, want, lacks string }{
		{"all well", pass, "ok=true err=<nil>", "left running"},
		{"the command fails by itself", pass + "; exit 3", "ok=false err=the tests passed, but their command failed", ""},
		{"something is left", pass + "; setsid sleep 98765 & sleep 0.2", "1 passed, 1 failed, 0 skipped", "ok=true"},
		{"what is left holds the output", pass + "; setsid sh -c 'sleep 98766' & sleep 0.2", `sleep 98766`, "ok=true"},
		{"a signal ends everything", "setsid sh -c 'sleep 98767 & sleep 98768' & kill $PPID; sleep 98769",
			"ok=false err=ended by a signal", "left running"},
		{"what ends soon is not left", pass + "; setsid sleep 1 & true", "ok=true", "left running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestCommand$", "-test.v")
			cmd.Env = append(os.Environ(), "REPORT_TEST_COMMAND="+c.script)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) || c.lacks != "" && strings.Contains(string(out), c.lacks) {
				t.Errorf("%v\n%s\nwant %q, and not %q", err, out, c.want, c.lacks)
			}
		})
	}
}

func TestMustRunListIsChecked(t *testing.T) {
	if _, err := parseRequirements(strings.NewReader("a TestX extra\n")); err == nil {
		t.Error("a malformed line was taken")
	}
}

// TestMustRunListReads: the list itself is well formed and names tests that are there.
func TestMustRunListReads(t *testing.T) {
	f, err := os.Open("../mustrun.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := parseRequirements(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("the list is empty")
	}
	for _, m := range all {
		function, _, _ := strings.Cut(m.test, "/")
		files, err := filepath.Glob(filepath.Join("../..", m.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(f string) bool {
			text, err := os.ReadFile(f)
			return err == nil && strings.Contains(string(text), "\nfunc "+function+"(")
		}) {
			t.Errorf("%s: there is no such test", m)
		}
	}
}
