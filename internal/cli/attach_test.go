package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/terminal"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// place is a state of Cove's own, with a server that starts by itself.
type place struct{ env []string }

func newPlace(t *testing.T) place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make (the test VM runs sandboxes as other users)")
	}
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := place{append(os.Environ(), "COVE_HOME="+filepath.Join(dir, "home"), "COVE_RUN_DIR="+filepath.Join(dir, "run"),
		"COVE_LISTEN=",
		"COVE_GUEST="+buildGuest(t), "COVE_SANDBOX_CGROUP_PARENT="+cgroupParent, "NO_COLOR=1", "COVE_SERVER=",
		"LC_ALL=C.UTF-8", "TERM=xterm-256color")}
	t.Cleanup(func() {
		p.cove("destroy", "box", "--yes").Run()
		p.cove("server", "stop").Run()
		os.RemoveAll(dir)
	})
	return p
}

func (p place) cove(args ...string) *exec.Cmd {
	c := exec.Command("cove", args...)
	c.Env = p.env
	return c
}

func (p place) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.cove(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("cove %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// sit starts a command at a terminal of a size.
func (p place) sit(t *testing.T, rows, columns int, args ...string) *terminaltest.Person {
	t.Helper()
	return terminaltest.Sit(t, terminal.Size{Rows: rows, Columns: columns}, p.cove(args...))
}

// patience is how long something that has to come may take.
const patience = time.Minute

// TestAttach is a day at terminals of a sandbox.
func TestAttach(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	p := newPlace(t)
	p.run(t, "new", "--empty", "--name", "box", "--no-attach")

	one := p.sit(t, 24, 80, "attach", "box")
	one.Sees(`(?m)^cove@box:/workspace\$`) // the prompt names the sandbox
	one.Types("PS1='<$?> '; stty size\r")
	one.Sees("(?m)^24 80$")
	one.Resize(terminal.Size{Rows: 30, Columns: 100})
	for deadline := time.Now().Add(patience); ; { // the resize is on its way while this is typed
		one.Types("clear; stty size; echo done\r")
		one.Sees("(?m)^done$")
		if strings.Contains("\n"+one.Text(), "\n30 100\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program does not learn the size")
		}
	}
	one.Types("printf '\\033[31mre%s\\033[m 日本 e\\xcc\\x81 \\033]52;c;eA==\\007%s\\n' d end\r")
	one.Sees("(?m)^red 日本 e\u0301 end$")
	if !strings.Contains(one.Picture(), "\x1b[0;31mred\x1b[0m") {
		t.Errorf("no red in %q", one.Picture())
	}
	one.Types("sh -c 'echo na''p; exec sleep 1000'\r")
	one.Sees("(?m)^nap$") // what is typed now is for it, and not for the shell
	one.Types("\x03")
	one.Sees("<130>")
	one.Types("seq 1 500 | less\r")
	one.Sees(`(?m)^29\n:$`)
	one.Types("G")
	one.Sees(`(?m)^500\n\(END\)$`)

	// A second person sees the same, and the size follows who did something.
	two := p.sit(t, 30, 100, "attach", "box")
	two.Sees(`(?m)^500\n\(END\)$`)
	if a, b := one.Picture(), two.Picture(); a != b {
		t.Errorf("they see different things:\n%q\n%q", a, b)
	}
	if out := p.run(t, "attach", "box", "--list"); !regexp.MustCompile(`t1 +runs +100x30 +2 `).MatchString(out) {
		t.Errorf("the list is\n%s", out)
	}

	// One is killed, and another leaves; the program goes on.
	picture := two.Picture()
	one.Signals(syscall.SIGTERM)
	one.Leaves(128 + int(syscall.SIGTERM))
	two.Types("\x10\x11")
	two.Sees(`detached from terminal t1 of box, which goes on; "cove attach box" is back`)
	two.Leaves(0)

	// The server dies, with somebody looking.
	three := p.sit(t, 30, 100, "attach", "box", "--detach-keys", "ctrl-],q")
	three.Sees(`(?m)^500\n\(END\)$`)
	if got := three.Picture(); got != picture {
		t.Errorf("who comes back sees\n%q\nnot\n%q", got, picture)
	}
	pid := regexp.MustCompile(`process (\d+)`).FindStringSubmatch(p.run(t, "server", "status"))
	if pid == nil {
		t.Fatal("no server")
	}
	exec.Command("kill", "-9", pid[1]).Run()
	three.Sees("the connection is lost, and the program goes on")
	three.Sees(`(?m)^500\n\(END\)$`)
	if got := three.Picture(); got != picture {
		t.Errorf("the next server shows\n%q\nnot\n%q", got, picture)
	}
	three.Types("g")
	three.Sees(`(?m)^1\n2\n3\n`)
	three.Types("q\x10\x11\x1d\x1d")
	three.Types("stty -echo; echo a wor''d\r")
	three.Sees("(?m)^a word$")

	// What was on the screen is there as text.
	if out := p.run(t, "logs", "box"); !strings.Contains(out, "red 日本 e\u0301 end\n") ||
		strings.ContainsAny(out, "\x1b\a") {
		t.Errorf("the log is %q", out)
	}
	three.Types("exit 7\r")
	three.Leaves(7)
}

// TestShellAndExec: other terminals, and commands without one.
func TestShellAndExec(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	p := newPlace(t)
	p.run(t, "new", "--empty", "--name", "box", "--no-attach")
	shell := p.sit(t, 24, 80, "shell", "box", "--wd", "/tmp", "--env", "X=y z", "--", "-c", `echo "$0: $X $PWD $TERM"`)
	shell.Sees(`(?m)^(ba)?sh: y z /tmp xterm-256color$`)
	shell.Leaves(0)

	tty := p.sit(t, 24, 80, "exec", "-t", "box", "--", "sh", "-c", "tty && read x; exit $x")
	tty.Sees("/dev/pts/")
	tty.Types("9\r")
	tty.Leaves(9)

	missing := p.cove("exec", "box", "--", "no-such-program")
	if out, err := missing.CombinedOutput(); missing.ProcessState.ExitCode() != 127 {
		t.Errorf("a missing program: %v\n%s", err, out)
	}

	// Bytes stay bytes, both ways.
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * 7 >> (i % 5))
	}
	var out, errs bytes.Buffer
	cat := p.cove("exec", "box", "--", "sh", "-c", "cat; echo to the operator >&2; exit 3")
	cat.Stdin, cat.Stdout, cat.Stderr = bytes.NewReader(data), &out, &errs
	cat.Run()
	if code := cat.ProcessState.ExitCode(); code != 3 || !bytes.Equal(out.Bytes(), data) ||
		errs.String() != "to the operator\n" {
		t.Errorf("exit code %d, %d bytes of %d or others, %q", code, out.Len(), len(data), errs.String())
	}

	// A signal is passed on, and a time limit ends.
	trap := p.cove("exec", "box", "--", "sh", "-c",
		"trap 'echo caught; exit 5' INT; echo set; while :; do sleep 0.1; done")
	pipe, err := trap.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := trap.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4)
	if _, err := pipe.Read(line); err != nil || string(line) != "set\n" {
		t.Fatalf("%q, %v", line, err)
	}
	trap.Process.Signal(os.Interrupt)
	rest := new(bytes.Buffer)
	rest.ReadFrom(pipe)
	trap.Wait()
	if trap.ProcessState.ExitCode() != 5 || rest.String() != "caught\n" {
		t.Errorf("exit code %d, %q", trap.ProcessState.ExitCode(), rest)
	}
	late := p.cove("exec", "box", "--timeout", "200ms", "--json", "--", "sh", "-c", "echo begun; sleep 1000")
	text, err := late.Output()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 124 ||
		!strings.Contains(string(text), `"limit_hit": "timeout"`) || !strings.Contains(string(text), `"stdout": "begun\n"`) {
		t.Errorf("%v: %s", err, text)
	}

	// Who leaves ends the command; what is detached goes on.
	left := p.cove("exec", "box", "--", "sh", "-c", "echo $$; exec sleep 1001")
	if pipe, err = left.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Read(line); err != nil {
		t.Fatal(err)
	}
	left.Process.Kill()
	left.Wait()
	p.run(t, "exec", "--detach", "box", "--", "sh", "-c", "echo nobody sees this; exec sleep 1002")
	for deadline := time.Now().Add(patience); ; {
		got := p.run(t, "exec", "box", "--", "sh", "-c", `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done`)
		if strings.Contains(got, "sleep 1002") && !strings.Contains(got, "sleep 1001") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there run\n%s", got)
		}
	}
	if out := p.run(t, "attach", "box", "--list"); strings.Contains(out, " runs ") {
		t.Errorf("terminals run:\n%s", out)
	}
	// Without a terminal there is none.
	if out, err := p.cove("attach", "box").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "not a terminal") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestExecStarts: a sandbox that does not run is started for a command that asks for it, and is the one of its name.
func TestExecStarts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	p := newPlace(t)
	ensure := []string{"new", "--empty", "--name", "box", "--if-exists", "return", "--no-attach"}
	p.run(t, ensure...)
	p.run(t, "exec", "box", "--", "sh", "-c", "echo kept >file")
	for _, action := range []string{"stop", "pause"} {
		p.run(t, action, "box")
		if out, err := p.cove("exec", "box", "--", "cat", "file").CombinedOutput(); err == nil {
			t.Errorf("after %s a command runs without --start: %s", action, out)
		}
		if got := p.run(t, "exec", "--start", "box", "--", "cat", "file"); got != "kept\n" {
			t.Errorf("after %s: %q", action, got)
		}
	}
	p.run(t, "stop", "box")
	if got := p.run(t, ensure...); !strings.HasSuffix(got, "\nbox\n") {
		t.Errorf("again: %q", got)
	}
	if got := p.run(t, "exec", "box", "--", "cat", "file"); got != "kept\n" {
		t.Errorf("it has %q", got)
	}
}
