package cli_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// session is a command of Cove's at a terminal of its own.
type session struct {
	*exec.Cmd
	t      *testing.T
	master *os.File
	server string
}

func atTerminal(t *testing.T, program string, flags ...string) *session {
	t.Helper()
	return commandAtTerminal(t, 80, append([]string{"run", "python", "-c", program, "--allow", "x.test"}, flags...)...)
}

// commandAtTerminal starts a command of Cove's at a terminal that is so wide, in a directory of its own.
func commandAtTerminal(t *testing.T, columns int, args ...string) *session {
	t.Helper()
	return preparedAtTerminal(t, columns, nil, args...)
}

// preparedAtTerminal is the same in a directory that was prepared; what prepare returns is added to the environment.
func preparedAtTerminal(t *testing.T, columns int, prepare func(dir string) []string, args ...string) *session {
	t.Helper()
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := newFakeServer().serve(l)
	t.Cleanup(func() { s.Close() })
	master, terminal := terminaltest.Open(t)
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: uint16(columns), Row: 50}); err != nil {
		t.Fatal(err)
	}
	cove, err := exec.LookPath("cove") // of TestMain, beside cove-server
	if err != nil {
		t.Fatal(err)
	}
	c := &session{t: t, master: master, server: "COVE_SERVER=unix:" + filepath.Join(dir, "s"), Cmd: &exec.Cmd{
		Path: cove, Args: append([]string{"cove"}, args...), Dir: dir,
		Stdin: terminal, Stdout: terminal, Stderr: terminal, SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}}
	c.Env = append(os.Environ(), c.server, "NO_COLOR=1", "TERM=xterm", "HOME="+dir,
		"COVE_HOME="+filepath.Join(dir, "home"), "COVE_RUN_DIR="+filepath.Join(dir, "run"))
	if prepare != nil {
		c.Env = append(c.Env, prepare(dir)...)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	return c
}

// commandOn runs another command with the same server, and returns what it prints.
func commandOn(s *session, args ...string) string {
	s.t.Helper()
	other := &exec.Cmd{Path: s.Path, Args: append([]string{"cove"}, args...), Env: s.Env}
	out, err := other.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// expect waits until the terminal shows a word, and returns all up to it.
func (s *session) expect(word string) string {
	s.t.Helper()
	got := seen(s.t, s.master, word)
	if !strings.Contains(got, word) {
		s.t.Fatalf("%q, want %q", got, word)
	}
	return got
}

func (s *session) typed(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) ends(code int) {
	s.t.Helper()
	s.Wait()
	if got := s.ProcessState.ExitCode(); got != code {
		s.t.Errorf("exit code %d, want %d", got, code)
	}
}

const lastWord = "[d]eny it? "

// TestAskedAtATerminal: whoever runs something is asked, and what is typed goes.
func TestAskedAtATerminal(t *testing.T) {
	for typed, want := range map[string]string{
		"o": `{"allow":true,"scope":"once"}`, "S": `{"allow":true,"scope":"sandbox"}`,
		" policy ": `{"allow":true,"scope":"policy"}`, "d": `{"allow":false}`,
		"y": `{"allow":true,"scope":"once"}`, "Yes": `{"allow":true,"scope":"once"}`,
		"n": `{"allow":false}`, "no": `{"allow":false}`,
	} {
		t.Run(strings.TrimSpace(typed), func(t *testing.T) {
			s := atTerminal(t, `out up; ask api.example.com; out after\n`)
			if got := s.expect(lastWord); !strings.Contains(got,
				"up\r\n\x1b[!pcove: POST api.example.com:443/x: needs a person (policy.yaml:3)\r\n      allow it [o]nce") {
				t.Errorf("%q", got)
			}
			s.typed("what?\n")
			if got := s.expect(lastWord); !strings.Contains(got, `"what?" is none of o, s, p and d`) {
				t.Errorf("%q", got)
			}
			s.typed(typed + "\n")
			if got := s.expect("after"); !strings.Contains(got, want) {
				t.Errorf("%q, want %s", got, want)
			}
			s.ends(0)
		})
	}
}

// TestNothingAnswersInAPersonsPlace: not what was typed before the question,
// and not what the terminal says when the program asks it to.
func TestNothingAnswersInAPersonsPlace(t *testing.T) {
	s := atTerminal(t, `out up\n; ask api.example.com; out after\n`)
	s.expect(lastWord)
	s.typed("\x1b[24;80R\x1b]lo\x1b\\")
	s.typed("o\n") // behind it on one line
	s.expect(lastWord)
	s.typed("d\n")
	if got := s.expect("after"); !strings.Contains(got, `{"allow":false}`) {
		t.Errorf("%q", got)
	}
	s.ends(0)
}

// TestAnsweredElsewhere: a question goes when another client has answered it.
func TestAnsweredElsewhere(t *testing.T) {
	s := atTerminal(t, `ask api.example.com; out after\n`)
	s.expect(lastWord)
	commandOn(s, "approve", "--all")
	if got := s.expect("after"); !strings.Contains(got, "it does not wait any more") ||
		!strings.Contains(got, `{"allow":true}`) {
		t.Errorf("%q", got)
	}
	s.ends(0)
}

// TestInterruptedQuestion: Ctrl-C ends the program, as at any other time.
func TestInterruptedQuestion(t *testing.T) {
	s := atTerminal(t, `ask api.example.com`)
	s.expect(lastWord)
	s.typed("\x03")
	s.expect("stopped: killed")
	s.ends(130)
}

// TestNobodyToAsk: the end of input is no answer, and a terminal that the
// program reads is not asked at; then the command is said that answers.
func TestNobodyToAsk(t *testing.T) {
	s := atTerminal(t, `ask api.example.com`)
	s.expect(lastWord)
	s.typed("\x04")
	s.expect("left: cove approve ho_")
	s.typed("\x03")
	s.ends(130)

	s = atTerminal(t, `ask api.example.com`, "-i")
	if got := s.expect("left: cove approve ho_"); strings.Contains(got, lastWord) {
		t.Errorf("%q", got)
	}
	s.typed("\x03")
	s.ends(130)
}

// TestOutputWaits: output of the program that comes during a question is shown after the answer.
func TestOutputWaits(t *testing.T) {
	s := atTerminal(t, `meanwhile api.example.com; out after\n`)
	got := s.expect(lastWord)
	s.expectNothing()
	s.typed("o\n")
	if got += s.expect("after"); !strings.Contains(got, lastWord+"o\r\n") {
		t.Errorf("%q", got)
	}
	s.ends(0)
}

// expectNothing: what has been written already would be there.
func (s *session) expectNothing() {
	s.t.Helper()
	p := []unix.PollFd{{Fd: int32(s.master.Fd()), Events: unix.POLLIN}}
	if n, _ := unix.Poll(p, 300); n > 0 {
		b := make([]byte, 1000)
		n, _ := s.master.Read(b)
		s.t.Errorf("there is %q", b[:n])
	}
}
