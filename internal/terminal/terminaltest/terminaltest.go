//go:build linux

// Package terminaltest simulates people at real terminals, for tests: they type, and see what a command shows.
package terminaltest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/terminal"
)

// Open returns the two ends of a terminal.
func Open(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// Person sits at a terminal, in which a command runs.
type Person struct {
	t      testing.TB
	master *os.File
	slave  *os.File
	before *unix.Termios // of the terminal
	cmd    *exec.Cmd
	ended  chan struct{}

	mu     sync.Mutex
	screen *terminal.Terminal
	came   chan struct{} // closed at new output
}

// Sit starts a command at a terminal of a size. It is killed at the end of the test.
func Sit(t testing.TB, size terminal.Size, cmd *exec.Cmd) *Person {
	t.Helper()
	p := &Person{t: t, cmd: cmd, screen: terminal.New(size), came: make(chan struct{}), ended: make(chan struct{})}
	p.master, p.slave = Open(t)
	p.Resize(size)
	var err error
	if p.before, err = unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	go p.read()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-p.ended })
	return p
}

func (p *Person) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.master.Read(buf)
		p.mu.Lock()
		p.screen.Write(buf[:n])
		close(p.came)
		p.came = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Resize changes the terminal's size.
func (p *Person) Resize(size terminal.Size) {
	p.t.Helper()
	p.mu.Lock()
	p.screen.Resize(size)
	p.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Columns)}); err != nil {
		p.t.Fatal(err)
	}
}

// Types types.
func (p *Person) Types(text string) {
	p.t.Helper()
	if _, err := p.master.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// patience bounds the wait for expected output.
const patience = 2 * time.Minute

// Sees waits until the text of the terminal matches.
func (p *Person) Sees(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		text, came := p.screen.Text(), p.came
		p.mu.Unlock()
		if re.MatchString(text) {
			return
		}
		select {
		case <-came:
		case <-deadline:
			p.t.Fatalf("%q is not seen in\n%s", pattern, text)
		}
	}
}

// Text returns the terminal's text.
func (p *Person) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.Text()
}

// Picture returns the screen with its colors.
func (p *Person) Picture() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.screen.Redraw(p.screen.Size(), true))
}

// Signals signals the command.
func (p *Person) Signals(s os.Signal) { p.cmd.Process.Signal(s) }

// Ended reports whether the command has ended.
func (p *Person) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Leaves waits for the command's exit with a code. The terminal must be in its initial state.
func (p *Person) Leaves(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("it does not end\n%s", p.Text())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d\n%s", got, code, p.Text())
	}
	after, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *p.before {
		p.t.Errorf("the terminal was %+v and is %+v, %v", p.before, after, err)
	}
	p.slave.WriteString("the shell\r\n")
	p.Sees("(?m)^the shell")
	p.mu.Lock()
	defer p.mu.Unlock()
	if calm := terminal.New(p.screen.Size()); p.screen.Alternate() ||
		!bytes.HasSuffix(p.screen.Redraw(p.screen.Size(), false), modes(calm.Redraw(calm.Size(), false))) {
		p.t.Errorf("modes are left: %q", modes(p.screen.Redraw(p.screen.Size(), false)))
	}
}

// modes returns the part of a redraw that sets modes.
func modes(b []byte) []byte { return b[bytes.LastIndex(b, []byte("\x1b[0m")):] }
