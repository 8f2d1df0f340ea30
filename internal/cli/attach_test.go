package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/terminal"
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
	p := place{append(os.Environ(), "COVE_HOME="+filepath.Join(dir, "home"), "COVE_RUN_DIR="+filepath.Join(dir, "run"), "COVE_LISTEN=",
		"COVE_GUEST="+buildGuest(t), "COVE_SANDBOX_CGROUP_PARENT="+cgroupParent, "NO_COLOR=1", "COVE_SERVER=", "LC_ALL=C.UTF-8", "TERM=xterm-256color")}
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

// person sits at a terminal, in which a command runs.
type person struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	before *unix.Termios // of the terminal
	cmd    *exec.Cmd
	ended  chan struct{}

	mu     sync.Mutex
	screen *terminal.Terminal
	came   chan struct{} // closed when something has come
}

// sit starts a command at a terminal of a size.
func (p place) sit(t *testing.T, rows, columns int, args ...string) *person {
	t.Helper()
	h := &person{t: t, screen: terminal.New(terminal.Size{Rows: rows, Columns: columns}), came: make(chan struct{}), ended: make(chan struct{})}
	h.master, h.slave = openTerminal(t)
	h.resize(rows, columns)
	var err error
	if h.before, err = unix.IoctlGetTermios(int(h.slave.Fd()), unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	go h.read()
	h.cmd = p.cove(args...)
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = h.slave, h.slave, h.slave
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.cmd.Wait(); close(h.ended) }()
	t.Cleanup(func() { h.cmd.Process.Kill(); <-h.ended })
	return h
}

func (h *person) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := h.master.Read(buf)
		h.mu.Lock()
		h.screen.Write(buf[:n])
		close(h.came)
		h.came = make(chan struct{})
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (h *person) resize(rows, columns int) {
	h.t.Helper()
	h.mu.Lock()
	h.screen.Resize(terminal.Size{Rows: rows, Columns: columns})
	h.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(h.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *person) types(text string) {
	h.t.Helper()
	if _, err := h.master.WriteString(text); err != nil {
		h.t.Fatal(err)
	}
}

// patience is how long something that has to come may take.
const patience = time.Minute

// sees waits until the text of the terminal matches.
func (h *person) sees(pattern string) {
	h.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		text, came := h.screen.Text(), h.came
		h.mu.Unlock()
		if re.MatchString(text) {
			return
		}
		select {
		case <-came:
		case <-deadline:
			h.t.Fatalf("%q is not seen in\n%s", pattern, text)
		}
	}
}

// picture is what is on the screen, with its colors.
func (h *person) picture() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.screen.Redraw(h.screen.Size(), true))
}

// leaves waits for the command's end. The terminal is as it was.
func (h *person) leaves(code int) {
	h.t.Helper()
	select {
	case <-h.ended:
	case <-time.After(patience):
		h.t.Fatal("it does not end")
	}
	if got := h.cmd.ProcessState.ExitCode(); got != code {
		h.t.Errorf("exit code %d, want %d", got, code)
	}
	after, err := unix.IoctlGetTermios(int(h.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *h.before {
		h.t.Errorf("the terminal was %+v and is %+v, %v", h.before, after, err)
	}
	h.slave.WriteString("the shell\r\n")
	h.sees("(?m)^the shell")
	h.mu.Lock()
	defer h.mu.Unlock()
	if calm := terminal.New(h.screen.Size()); h.screen.Alternate() || !bytes.HasSuffix(h.screen.Redraw(h.screen.Size(), false), tail(calm.Redraw(calm.Size(), false))) {
		h.t.Errorf("modes are left: %q", tail(h.screen.Redraw(h.screen.Size(), false)))
	}
}

// tail is the part of what draws a terminal that is about its modes.
func tail(b []byte) []byte { return b[bytes.LastIndex(b, []byte("\x1b[0m")):] }

// TestAttach is a day at terminals of a sandbox.
func TestAttach(t *testing.T) {
	p := newPlace(t)
	p.run(t, "new", "--empty", "--name", "box", "--no-attach")

	one := p.sit(t, 24, 80, "attach", "box")
	one.types("PS1='<$?> '; stty size\r")
	one.sees("(?m)^24 80$")
	one.resize(30, 100)
	for deadline := time.Now().Add(patience); ; { // the resize is on its way while this is typed
		one.types("clear; stty size; echo done\r")
		one.sees("(?m)^done$")
		one.mu.Lock()
		right := strings.Contains(one.screen.Text(), "\n30 100\n") || strings.HasPrefix(one.screen.Text(), "30 100\n")
		one.mu.Unlock()
		if right {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program does not learn the size")
		}
	}
	one.types("printf '\\033[31mre%s\\033[m 日本 e\\xcc\\x81 \\033]52;c;eA==\\007%s\\n' d end\r")
	one.sees("(?m)^red 日本 e\u0301 end$")
	if !strings.Contains(one.picture(), "\x1b[0;31mred\x1b[0m") {
		t.Errorf("no red in %q", one.picture())
	}
	one.types("sh -c 'echo na''p; exec sleep 1000'\r")
	one.sees("(?m)^nap$") // what is typed now is for it, and not for the shell
	one.types("\x03")
	one.sees("<130>")
	one.types("seq 1 500 | less\r")
	one.sees(`(?m)^29\n:$`)
	one.types("G")
	one.sees(`(?m)^500\n\(END\)$`)

	// A second person sees the same, and the size follows who did something.
	two := p.sit(t, 30, 100, "attach", "box")
	two.sees(`(?m)^500\n\(END\)$`)
	if a, b := one.picture(), two.picture(); a != b {
		t.Errorf("they see different things:\n%q\n%q", a, b)
	}
	if out := p.run(t, "attach", "box", "--list"); !regexp.MustCompile(`t1 +runs +100x30 +2 `).MatchString(out) {
		t.Errorf("the list is\n%s", out)
	}

	// One is killed, and another leaves; the program goes on.
	picture := two.picture()
	one.cmd.Process.Signal(syscall.SIGTERM)
	one.leaves(128 + int(syscall.SIGTERM))
	two.types("\x10\x11")
	two.sees(`detached from terminal t1 of box, which goes on; "cove attach box" is back`)
	two.leaves(0)

	// The server dies, with somebody looking.
	three := p.sit(t, 30, 100, "attach", "box", "--detach-keys", "ctrl-],q")
	three.sees(`(?m)^500\n\(END\)$`)
	if got := three.picture(); got != picture {
		t.Errorf("who comes back sees\n%q\nnot\n%q", got, picture)
	}
	pid := regexp.MustCompile(`process (\d+)`).FindStringSubmatch(p.run(t, "server", "status"))
	if pid == nil {
		t.Fatal("no server")
	}
	exec.Command("kill", "-9", pid[1]).Run()
	three.sees("the connection is lost, and the program goes on")
	three.sees(`(?m)^500\n\(END\)$`)
	if got := three.picture(); got != picture {
		t.Errorf("the next server shows\n%q\nnot\n%q", got, picture)
	}
	three.types("g")
	three.sees(`(?m)^1\n2\n3\n`)
	three.types("q\x10\x11\x1d\x1d")
	three.types("stty -echo; echo a wor''d\r")
	three.sees("(?m)^a word$")

	// What was on the screen is there as text.
	if out := p.run(t, "logs", "box"); !strings.Contains(out, "red 日本 e\u0301 end\n") || strings.ContainsAny(out, "\x1b\a") {
		t.Errorf("the log is %q", out)
	}
	three.types("exit 7\r")
	three.leaves(7)
}

// TestShellAndExec: other terminals, and commands without one.
func TestShellAndExec(t *testing.T) {
	p := newPlace(t)
	p.run(t, "new", "--empty", "--name", "box", "--no-attach")
	shell := p.sit(t, 24, 80, "shell", "box", "--wd", "/tmp", "--env", "X=y z", "--", "-c", `echo "$0: $X $PWD $TERM"`)
	shell.sees(`(?m)^(ba)?sh: y z /tmp xterm-256color$`)
	shell.leaves(0)

	tty := p.sit(t, 24, 80, "exec", "-t", "box", "--", "sh", "-c", "tty && read x; exit $x")
	tty.sees("/dev/pts/")
	tty.types("9\r")
	tty.leaves(9)

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
	if code := cat.ProcessState.ExitCode(); code != 3 || !bytes.Equal(out.Bytes(), data) || errs.String() != "to the operator\n" {
		t.Errorf("exit code %d, %d bytes of %d or others, %q", code, out.Len(), len(data), errs.String())
	}

	// A signal is passed on, and a time limit ends.
	trap := p.cove("exec", "box", "--", "sh", "-c", "trap 'echo caught; exit 5' INT; echo set; while :; do sleep 0.1; done")
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
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 124 || !strings.Contains(string(text), `"limit_hit": "timeout"`) || !strings.Contains(string(text), `"stdout": "begun\n"`) {
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
	if out, err := p.cove("attach", "box").CombinedOutput(); err == nil || !strings.Contains(string(out), "not a terminal") {
		t.Errorf("%v: %s", err, out)
	}
}
