//go:build linux

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// onSameServer runs another command with the same server, in the same directory, at a terminal of its own.
func onSameServer(s *session, args ...string) *session {
	s.t.Helper()
	master, terminal := terminaltest.Open(s.t)
	c := &session{t: s.t, master: master, server: s.server, Cmd: &exec.Cmd{
		Path: s.Path, Args: append([]string{"cove"}, args...), Dir: s.Dir, Env: s.Env,
		Stdin: terminal, Stdout: terminal, Stderr: terminal, SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Process.Kill() })
	return c
}

// TestChosenWork: an agent's work is taken over by files and by changes within a file; the rest stays in the sandbox
// unless it is declined. Binary files and caches are named on lines of their own.
func TestChosenWork(t *testing.T) {
	const fileKeys, whole, ask = "[y,n,s,p,a,d,q,?]", "[y,n,p,a,d,q,?]", "throw the rest away?"
	for name, c := range map[string]struct {
		typed []string // what is waited for, and what is typed then
		want  string   // of what is applied
		stays bool
	}{
		"all of it":    {[]string{fileKeys, "a", "is changed", "-"}, "1 file", false},
		"nothing":      {[]string{fileKeys, "q", lastChoice, "k"}, "nothing is chosen", true},
		"some files":   {[]string{fileKeys, "n", whole, "y", whole, "n", whole, "n", ask, "n"}, "1 file", true},
		"not the rest": {[]string{fileKeys, "y", whole, "q", ask, "y"}, "1 file", false},
		"one change": {[]string{fileKeys, "s", "(1/3)", "s", "(1/3)", "y", "(2/3)", "d", whole, "d", ask, ""},
			"1 file", true},
		"what it means": {[]string{fileKeys, "?", fileKeys, "q", lastChoice, "n"}, "s: choose among its changes",
			false},
		"the end": {[]string{fileKeys, "\x04", lastChoice, "k"}, "nothing is chosen", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := commandAtTerminal(t, 200, "claude", `change choose.go`)
			got := s.expect(lastChoice)
			for _, want := range []string{"binary, which the diff does not show: logo.png",
				"caches, which programs read as their own: x/__pycache__/a.pyc"} {
				if !strings.Contains(got, want) {
					t.Errorf("it does not say %q: %s", want, got)
				}
			}
			s.typed("c\n")
			for i := 0; i < len(c.typed); i += 2 {
				got += s.expect(c.typed[i])
				switch typed := c.typed[i+1]; typed {
				case "-":
				case "\x04":
					s.typed(typed)
				default:
					s.typed(typed + "\n")
				}
			}
			if c.stays {
				got += s.expect("throw away   cove destroy run-otter")
			}
			s.ends(0)
			if !strings.Contains(got, c.want) || strings.Contains(got, "\x1b]0;owned") {
				t.Errorf("it does not say %q: %q", c.want, got)
			}
			if left := strings.Contains(commandOn(s, "list", "-q"), "run-otter"); left != c.stays {
				t.Errorf("the sandbox is there: %v, want %v", left, c.stays)
			}
		})
	}
}

// TestApplyAsks: cove apply -p asks as the question after an agent's work does.
func TestApplyAsks(t *testing.T) {
	s := preparedAtTerminal(t, 200, func(dir string) []string {
		if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
			t.Fatal(err)
		}
		return nil
	}, "claude", `change choose.go`)
	s.expect(lastChoice)
	s.typed("k\n")
	s.expect("throw away")
	s.ends(0)
	for name, c := range map[string]struct {
		typed []string
		want  string
	}{
		"a part": {[]string{"[y,n,s,p", "s", "(1/3)", "n", "(3/3)", "y", "[y,n,p", "q"},
			"changed  [{choose.go 01 [3]}]"},
		"a split": {[]string{"[y,n,s,p", "s", "(1/3)", "s", "(1/3)", "n", "(2/3)", "a", "[y,n,p", "q"},
			"[{choose.go 01 [2 3]}]"},
		"a renamed": {[]string{"[y,n,s,p", "n", "[y,n,p", "y", "[y,n,p", "q"}, "[{older.txt  []} {old.txt 02 []}]"},
		"a whole":   {[]string{"[y,n,s,p", "s", "(1/3)", "a", "[y,n,p", "d"}, "[{choose.go 01 []}]"},
	} {
		t.Run(name, func(t *testing.T) {
			a := onSameServer(s, "apply", "run-otter", "--to", ".", "-p")
			for i := 0; i < len(c.typed); i += 2 {
				a.expect(c.typed[i])
				a.typed(c.typed[i+1] + "\n")
			}
			a.expect(c.want)
			a.ends(0)
		})
	}
}
