package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/terminal"
)

// screenSize is the terminal of a recording.
var screenSize = terminal.Size{Columns: 100, Rows: 32}

const (
	keystroke   = 35 * time.Millisecond // between characters that are typed
	beforeEnter = 500 * time.Millisecond
	afterLine   = 900 * time.Millisecond // before the next command is typed
	longestRest = 1200 * time.Millisecond
	lastRest    = 6 * time.Second // before the recording begins again
	frameTime   = 80 * time.Millisecond
)

// line is one command of a recording, and the answer to the question it asks.
type line struct {
	typed    string // as the viewer reads it
	argv     []string
	question string // text of the question; empty is none
	answer   string
}

// session is what README's recording shows: an agent mends a project, reaches
// only its model, holds no key, and its work is taken over.
func session(cove string) []line {
	return []line{
		{typed: `cove claude "the test fails: mend it"`, argv: []string{cove, "claude", "the test fails: mend it"},
			question: "[k]eep it", answer: "y\n"},
		{typed: "git diff --stat", argv: []string{"git", "--no-pager", "diff", "--stat"}},
	}
}

// frame is the screen at a moment of the recording.
type frame struct {
	at     time.Duration
	screen []byte // as terminal.Redraw draws it
}

// recorder writes what programs print onto a screen, and keeps its frames.
type recorder struct {
	mu     sync.Mutex
	screen *terminal.Terminal
	frames []frame
	clock  time.Duration // of the recording; long rests are cut
	seen   time.Time     // when clock was last moved
}

// record plays a session in a project's directory and returns its frames.
func record(ctx context.Context, lines []line, dir string, env []string) ([]frame, error) {
	r := &recorder{screen: terminal.New(screenSize), seen: time.Now()}
	for _, l := range lines {
		r.put("\x1b[1;32m$\x1b[0m ")
		r.rest(afterLine)
		for _, c := range l.typed {
			r.rest(keystroke)
			r.put(string(c))
		}
		r.rest(beforeEnter)
		r.put("\r\n")
		if err := r.run(ctx, l, dir, env); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", l.typed, err, r.screen.Text())
		}
	}
	r.put("\x1b[1;32m$\x1b[0m ")
	r.rest(lastRest)
	r.put("")
	return r.frames, nil
}

// put writes to the screen and keeps a frame.
func (r *recorder) put(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.screen.Write([]byte(text))
	drawn := r.screen.Redraw(screenSize, false)
	if n := len(r.frames); n > 0 && r.clock-r.frames[n-1].at < frameTime/4 {
		r.frames[n-1].screen = drawn
		return
	}
	r.frames = append(r.frames, frame{at: r.clock, screen: drawn})
}

// rest moves the recording's clock on.
func (r *recorder) rest(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock += d
	r.seen = time.Now()
}

// tick moves the recording's clock by the time that has passed, at most longestRest.
func (r *recorder) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.clock += min(now.Sub(r.seen), longestRest)
	r.seen = now
}

// run plays one command in a terminal of its own.
func (r *recorder) run(ctx context.Context, l line, dir string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	master, slave, err := openTerminal(screenSize)
	if err != nil {
		return err
	}
	defer master.Close()
	defer slave.Close()
	cmd := exec.CommandContext(ctx, l.argv[0], l.argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(slices.Clone(env), "TERM=xterm-256color", "COLORTERM=truecolor")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	slave.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		r.copy(master, l)
	}()
	err = cmd.Wait()
	<-copied
	return err
}

// copy shows what a program prints until it ends, and answers its question.
func (r *recorder) copy(master *os.File, l line) {
	asked := l.question == ""
	buffer := make([]byte, 32<<10)
	for {
		n, err := master.Read(buffer)
		if n > 0 {
			r.tick()
			r.put(string(buffer[:n]))
		}
		if !asked && strings.Contains(r.screen.Text(), l.question) {
			asked = true
			r.rest(2 * beforeEnter)
			master.WriteString(l.answer)
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return // EIO: every process has closed it
		}
	}
}

// openTerminal opens a pseudo-terminal of a size.
func openTerminal(s terminal.Size) (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	size := &unix.Winsize{Row: uint16(s.Rows), Col: uint16(s.Columns)}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size))
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
	}
	return master, slave, err
}

// makeRecording records README's session and writes it as an animated SVG.
func makeRecording(ctx context.Context, cove, file string) error {
	cove, err := filepath.Abs(cove)
	if err != nil {
		return err
	}
	here, err := newPlace()
	if err != nil {
		return err
	}
	defer here.leave()
	service, err := newService(here.dir)
	if err != nil {
		return err
	}
	defer service.close()
	project, err := newProject(here.dir)
	if err != nil {
		return err
	}
	if installed, err := showAgents(here.state); err != nil || !installed {
		return errors.Join(err, errors.New("Claude Code is not installed (scripts/agents.sh installs it)"))
	}
	env := append(here.environ(), service.environ(here.dir)...)
	defer perform(context.WithoutCancel(ctx), cove, env, act{args: []string{"server", "stop"}})
	// The server starts and makes guests ahead before the viewer looks.
	perform(ctx, cove, env, act{args: []string{"server", "start"}})
	frames, err := record(ctx, session(cove), project.dir, env)
	if err != nil {
		return err
	}
	return os.WriteFile(file, animate(frames, screenSize), 0o644)
}
