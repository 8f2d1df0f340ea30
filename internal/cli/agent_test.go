package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/terminal"
)

const lastChoice = "[k]eep it in the sandbox: "

// onScreen returns the screen of a terminal after text was written to it.
func onScreen(columns int, written ...string) string {
	model := terminal.New(terminal.Size{Rows: 60, Columns: columns})
	model.Write([]byte(strings.Join(written, "")))
	text := regexp.MustCompile(`ru_[0-9a-z]{26}`).ReplaceAllString(model.Text(), "RUN")
	text = regexp.MustCompile(`\([0-9]+ [µm]s\)`).ReplaceAllString(text, "(TIME)")
	return regexp.MustCompile(`/[^ ]*/cove-cli-[0-9]+`).ReplaceAllString(text, "/DIR")
}

// TestAgentAtATerminal: what is shown is what an agent says and does, and the
// line below leaves nothing behind; then somebody decides about the work.
func TestAgentAtATerminal(t *testing.T) {
	s := commandAtTerminal(t, 150, "claude",
		`say I look.; call 1 Bash {"command":"go test"}; result 1 ok; deny api.example.com; usage 1200 30 0.5; say All is \x1b[2Jwell.; change a.go; answer All is \x1b[2Jwell.`)
	got := s.expect(lastChoice)
	s.typed("what\n")
	got += s.expect(lastChoice)
	s.typed("d\n")
	got += s.expect(lastChoice)
	s.typed("y\n")
	got += s.expect("is changed\r\n")
	s.ends(0)
	shown := onScreen(150, got)
	const want = `cove: copying /DIR (TIME)
cove: starting claude (TIME)
cove: claude 1.2.3 works in the sandbox run-otter, on a copy of /DIR
I look.

● Bash  go test
  │ ok
cove: not let out: GET https://api.example.com/x\x1b[2J: no rule allows it (default)
      to allow it: cove policy allow run-otter api.example.com

All is well.

cove: claude has done it (72 s, 1 turn, 1.2k tokens in, 30 out, $0.5000)
      transcript  cove runs show RUN
cove: it has changed 1 file:
 a.go | 1 +
cove: take it over into /DIR? [y]es, [c]hoose, show the [d]iff, [n]o and throw it away, ` +
		`or [k]eep it in the sandbox: what
cove: "what" is none of y, c, d, n and k
cove: take it over into /DIR? [y]es, [c]hoose, show the [d]iff, [n]o and throw it away, or [k]eep it in the sandbox: d
diff --git a/a b/a
--- a/a
+++ b/a
@@ -1 +1 @@
-old
+       new \x1b]0;owned\x07
cove: take it over into /DIR? [y]es, [c]hoose, show the [d]iff, [n]o and throw it away, or [k]eep it in the sandbox: y
cove: 1 file of /DIR is changed
`
	if strings.TrimRight(shown, "\n")+"\n" != want {
		t.Errorf("%s\nwant\n%s", shown, want)
	}
	if !strings.Contains(got, "0:00 · claude works") {
		t.Error("there was no line below")
	}
}

// TestWorkOfAnAgent: declined work goes with its sandbox; kept, or left without an answer, it stays and is named.
func TestWorkOfAnAgent(t *testing.T) {
	for name, c := range map[string]struct {
		typed string
		stays bool
		code  int
		aside string // what it has done besides
	}{
		"no": {"n\n", false, 0, ""}, "yes": {"YES\n", false, 0, ""}, "keep": {"k\n", true, 0, ""},
		"the end of input": {"\x04", true, 0, ""}, "ctrl-c": {"\x03", true, 130, ""},
		"yes, and there is a branch": {"y\n", true, 0, "; aside"}, "no to all of it": {"n\n", false, 0, "; aside"},
	} {
		t.Run(name, func(t *testing.T) {
			s := commandAtTerminal(t, 200, "claude", `change a.go`+c.aside)
			s.expect(lastChoice)
			s.typed(c.typed)
			if c.stays {
				s.expect("throw away   cove destroy run-otter")
			}
			s.ends(c.code)
			other := commandOn(s, "list", "-q")
			if got := strings.Contains(other, "run-otter"); got != c.stays {
				t.Errorf("the sandbox is there: %v, want %v", got, c.stays)
			}
		})
	}
}

// TestInterruptedAgent: once asks, twice ends.
func TestInterruptedAgent(t *testing.T) {
	s := commandAtTerminal(t, 80, "claude", `say up; wait; say I stop here.; answer half of it`)
	s.expect("claude works")
	s.typed("\x03")
	got := s.expect("it has changed nothing")
	for _, want := range []string{"claude is asked to stop; ctrl-c again ends it at once", "I stop here.", "half of it",
		"claude was interrupted"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	s.ends(130)

	s = commandAtTerminal(t, 80, "claude", `say up; stubborn`)
	s.expect("claude works")
	s.typed("\x03")
	s.expect("ctrl-c again ends it at once")
	s.typed("\x03")
	if got := s.expect("claude was interrupted"); !strings.Contains(got, "claude is ended") {
		t.Errorf("%q", got)
	}
	s.ends(130)
}

// TestAgentAsks: what waits for an answer is asked about in place.
func TestAgentAsks(t *testing.T) {
	s := commandAtTerminal(t, 80, "claude", `ask api.example.com`)
	s.expect(lastWord)
	s.typed("s\n")
	if got := s.expect("changed nothing"); !strings.Contains(got, "answered truesandbox") {
		t.Errorf("%q", got)
	}
	s.ends(0)
}

// bare is a directory with a profile of the mode none, and with a program in the
// place of an agent's. It returns what the environment has to say of it.
func bare(t *testing.T, program, script string) func(dir string) []string {
	return func(dir string) []string {
		t.Helper()
		for path, content := range map[string]string{
			"home/profiles.yaml": "profiles:\n  - {name: bare, mode: none, env: {A: of the profile}}\n",
			"bin/" + program:     "#!/bin/sh\n" + script,
		} {
			file := filepath.Join(dir, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
				os.WriteFile(file, []byte(content), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		return []string{"COVE_SERVER=", "PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")}
	}
}

// TestScreenHere: without a sandbox, an agent's own screen is that of its program
// on this terminal, and its end is the program's.
func TestScreenHere(t *testing.T) {
	s := preparedAtTerminal(t, 150, bare(t, "claude",
		`test -t 0 && test -t 1 && read line && echo "$A, $line: $*"; exit 7`), "claude", "--profile", "bare",
		"--model", "m1")
	s.expect("without a sandbox and without asking, because the profile bare says so")
	s.typed("typed\n")
	s.expect("of the profile, typed: --dangerously-skip-permissions --model m1")
	s.ends(7)
}

// TestInterruptedHere: without a sandbox, too, once asks and twice ends, and nothing is left.
func TestInterruptedHere(t *testing.T) {
	const up = `shift; sleep 600 & echo $! > "$HOME/pid"; echo '{"version":1,"type":"thinking","content":"up"}'` + "\n"
	gone := func(s *session) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(s.Dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		// One that has been killed may still be exiting.
		n, err := 0, error(unix.EINTR)
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000)
		}
		if n != 1 {
			t.Errorf("the process %d is left: %v", pid, err)
		}
	}
	s := preparedAtTerminal(t, 80, bare(t, "cove-worker",
		`trap 'echo "{\"version\":1,\"type\":\"result\",\"content\":\"half of it\"}"; exit' INT`+"\n"+
			up+`while :; do sleep 0.05; done`), "worker", "--profile", "bare", "x")
	got := s.expect("up\r\n")
	s.typed("\x03")
	got += s.expect("it has worked in")
	for _, want := range []string{"worker works on this machine itself",
		"worker is asked to stop; ctrl-c again ends it at once", "half of it", "worker was interrupted"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	s.ends(130)
	gone(s)

	s = preparedAtTerminal(t, 80, bare(t, "cove-worker", "trap '' INT\n"+up+`while :; do sleep 0.05; done`), "worker",
		"--profile", "bare", "x")
	s.expect("up\r\n")
	s.typed("\x03")
	s.expect("ctrl-c again ends it at once")
	s.typed("\x03")
	if got := s.expect("worker was interrupted"); !strings.Contains(got, "worker is ended") {
		t.Errorf("%q", got)
	}
	s.ends(130)
	gone(s)
}

// TestScreenWithinRepository: the screen of an agent that is to work in a directory
// of a repository begins there, in a copy of all of it.
func TestScreenWithinRepository(t *testing.T) {
	s := preparedAtTerminal(t, 120, func(dir string) []string {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, ".git"), 0o755),
			os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755)); err != nil {
			t.Fatal(err)
		}
		return nil
	}, "claude", "--dir", "a/b")
	s.expect("stays, with the work in it") // the server here has no terminals
	request := commandOn(s, "info", "brave-otter", "--json")
	for _, want := range []string{`\"work_dir\":\"a/b\"`, `\"source\":\"` + s.Dir + `\"`, `\"uncommitted\":true`} {
		if !strings.Contains(request, want) {
			t.Errorf("no %s in %s", want, request)
		}
	}
}
