package terminals

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is where a sandbox in memory runs whose programs are the test's.
type machine struct {
	host *fake.Host
	id   cove.SandboxID
}

// server is one that serves the terminals of the sandbox of a machine.
type server struct {
	*Set
	engine  *fake.Engine
	sandbox engine.Sandbox
	serving sync.WaitGroup
	taken   atomic.Int32 // places of programs
}

// take takes a place for a program.
func (s *server) take() (release func()) {
	s.taken.Add(1)
	return sync.OnceFunc(func() { s.taken.Add(-1) })
}

func newMachine(t *testing.T, programs map[string]fake.Program) (*machine, *server) {
	t.Helper()
	m := &machine{host: fake.NewHost(), id: cove.NewSandboxID()}
	e := fake.New(fake.Options{Host: m.host, Programs: programs})
	sb, err := provision.New(t.Context(), e, provision.Plan{ID: m.id,
		Shape: cove.Shape{User: cove.AgentUser, Lifetime: cove.LifetimeDetached}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Destroy(context.Background()) })
	return m, m.open(t, e, sb)
}

// open is a server that has the sandbox.
func (m *machine) open(t *testing.T, e *fake.Engine, sb engine.Sandbox) *server {
	s := &server{engine: e, sandbox: sb}
	s.Set = New(Options{Sandbox: sb, Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Serving: &s.serving})
	t.Cleanup(func() {
		e.Close()
		sb.Destroy(context.Background())
		s.serving.Wait()
		if n := s.taken.Load(); n != 0 {
			t.Errorf("%d places are taken at the end", n)
		}
	})
	return s
}

// next is the server after s has died, or let go.
func (m *machine) next(t *testing.T, s *server) *server {
	t.Helper()
	if err := s.engine.Close(); err != nil {
		t.Fatal(err)
	}
	s.serving.Wait()
	e := fake.New(fake.Options{Host: m.host})
	sb, err := e.Adopt(t.Context(), m.id)
	if err != nil {
		t.Fatal(err)
	}
	n := m.open(t, e, sb)
	all, err := sb.Guest().Listed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range all {
		if !Is(info) {
			t.Fatalf("process %d is no terminal", info.ID)
		}
		if err := n.Adopt(t.Context(), info, n.take()); err != nil {
			t.Fatalf("the terminal of process %d: %v", info.ID, err)
		}
	}
	return n
}

var usual = terminal.Size{Rows: 6, Columns: 30}

func (s *server) begin(t *testing.T, args ...string) *Terminal {
	t.Helper()
	spec := guest.ProcessSpec{Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"}
	p, err := s.Start(t.Context(), spec, usual, s.take())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// eye is somebody who looks, with a terminal of their own.
type eye struct {
	*Viewer
	screen *terminal.Terminal
}

func look(t *testing.T, p *Terminal, size terminal.Size) *eye {
	t.Helper()
	v, err := p.Attach(size, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return &eye{v, terminal.New(size)}
}

// sees reads until the screen has text, or the program has ended.
func (e *eye) sees(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !strings.Contains(e.screen.Text(), text) {
		p, err := e.Next(ctx)
		if err != nil {
			t.Fatalf("%v before %q was seen in\n%s", err, text, e.screen.Text())
		}
		e.screen.Write(p)
	}
}

// end reads until there is nothing more, and returns why.
func (e *eye) end(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		p, err := e.Next(ctx)
		if err != nil {
			return err
		}
		e.screen.Write(p)
	}
}

func (e *eye) types(t *testing.T, text string) {
	t.Helper()
	if err := e.Type(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// echo is a program that prints what it is told to: "say TEXT", "exit N",
// "flood N" for so many lines. It answers everything else with what it was.
func echo(p *fake.Process) int {
	fmt.Fprint(p.Stdout, "\x1b[1;32mready\x1b[m\n")
	in := bufio.NewReader(p.Stdin)
	for {
		line, err := in.ReadString('\r')
		if err != nil {
			return 1
		}
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
		n := 0
		fmt.Sscan(rest, &n)
		switch word {
		case "say":
			fmt.Fprint(p.Stdout, strings.ReplaceAll(rest, "\\e", "\x1b"))
		case "exit":
			return n
		case "flood":
			for i := range n {
				fmt.Fprintf(p.Stdout, "line %d\n", i)
			}
			fmt.Fprint(p.Stdout, "dry")
		default:
			fmt.Fprintf(p.Stdout, "%q?", line)
		}
	}
}

func programs() map[string]fake.Program { return map[string]fake.Program{"echo!": echo} }

func TestLookingAndTyping(t *testing.T) {
	_, s := newMachine(t, programs())
	p := s.begin(t, "echo!")
	first := look(t, p, usual)
	first.sees(t, "ready")
	first.types(t, "say hello\r")
	first.sees(t, "hello")

	// Somebody else sees the same screen, colors too.
	second := look(t, p, usual)
	second.sees(t, "hello")
	if a, b := first.screen.Redraw(usual, true), second.screen.Redraw(usual, true); !bytes.Equal(a, b) {
		t.Errorf("they see different things:\n%q\n%q", a, b)
	}
	second.types(t, "say , world\r")
	first.sees(t, "hello, world")
	second.sees(t, "hello, world")

	// Whoever leaves and comes back sees it again.
	first.Close()
	if err := first.end(t); cove.ErrorCode(err) != cove.Canceled {
		t.Errorf("after leaving: %v", err)
	}
	second.types(t, "say !\r")
	first = look(t, p, usual)
	first.sees(t, "hello, world!")

	second.types(t, "exit 7\r")
	for _, e := range []*eye{first, second, look(t, p, usual)} {
		if err := e.end(t); err != io.EOF || e.ExitCode() != 7 {
			t.Errorf("it ended with %v, %d", err, e.ExitCode())
		}
		if !strings.Contains(e.screen.Text(), "hello, world!") {
			t.Errorf("the last screen is %q", e.screen.Text())
		}
	}
	if a := p.Info(); a.Exit == nil || *a.Exit != 7 || a.ID != "t1" {
		t.Errorf("%+v", a)
	}
}

// TestSlowAndAbsent: neither who does not read nor who has gone holds the
// program up, and who is late sees the screen as it is.
func TestSlowAndAbsent(t *testing.T) {
	_, s := newMachine(t, programs())
	p := s.begin(t, "echo!")
	slow, typist := look(t, p, usual), look(t, p, usual)
	typist.types(t, "flood 100000\r") // more than is kept for anybody
	typist.sees(t, "dry")
	p.mu.Lock()
	behind := len(slow.queued)
	p.mu.Unlock()
	if behind > maxQueued {
		t.Errorf("%d bytes are kept for who does not read", behind)
	}
	slow.sees(t, "line 99999")
	slow.sees(t, "dry")
	if a, b := slow.screen.Redraw(usual, true), typist.screen.Redraw(usual, true); !bytes.Equal(a, b) {
		t.Errorf("they see different things:\n%q\n%q", a, b)
	}
	slow.Close()
	typist.Close()
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// TestSizes: the terminal has the size of who did something last, and others see as much as fits.
func TestSizes(t *testing.T) {
	_, s := newMachine(t, programs())
	p := s.begin(t, "echo!")
	wide := look(t, p, terminal.Size{Rows: 8, Columns: 60})
	wide.sees(t, "ready")
	small := look(t, p, usual)
	if got := p.model.Size(); got != usual {
		t.Errorf("after the small one came: %+v", got)
	}
	small.types(t, "say abcdefghijklmnopqrstuvwxyz0123456789\r")
	wide.sees(t, "abcdefghijklmnopqrstuvwxyz0123\n456789")
	wide.types(t, "say .\r")
	if got := p.model.Size(); got != wide.screen.Size() {
		t.Errorf("after the wide one typed: %+v", got)
	}
	small.Resize(terminal.Size{Rows: 3, Columns: 20})
	if got := p.Info(); got.Size.Rows != 3 || got.Size.Columns != 20 || got.Attached != 2 {
		t.Errorf("after the small one was resized: %+v", got)
	}
	wide.types(t, "say \\e[2J\\e[H\\e[?1049hfull screen\r")
	wide.sees(t, "full screen")
	small.screen.Resize(terminal.Size{Rows: 3, Columns: 20})
	small.sees(t, "full screen")
	wide.types(t, "exit 0\r")
	for _, e := range []*eye{wide, small} {
		if err := e.end(t); err != io.EOF {
			t.Error(err)
		}
	}
}

// TestQuestionsAreAnsweredOnce, whoever looks or not, and by one server.
func TestQuestionsAreAnsweredOnce(t *testing.T) {
	answers := make(chan string, 10)
	ask := func(p *fake.Process) int {
		in := bufio.NewReader(p.Stdin)
		for range 3 {
			fmt.Fprint(p.Stdout, "ab\x1b[6n")
			got, err := in.ReadString('R')
			if err != nil {
				return 1
			}
			answers <- got
			more, err := in.ReadString('\r')
			if err != nil {
				return 1
			}
			if more != "\r" {
				answers <- more
			}
		}
		return 0
	}
	m, s := newMachine(t, map[string]fake.Program{"ask": ask})
	p := s.begin(t, "ask")
	for i, want := range []string{"\x1b[1;3R", "\x1b[1;5R", "\x1b[1;7R"} {
		if got := <-answers; got != want {
			t.Errorf("it was told %q, want %q", got, want)
		}
		switch i {
		case 0:
			s = m.next(t, s)
			again, err := s.Find("")
			if err != nil {
				t.Fatal(err)
			}
			p = again
			look(t, p, usual).sees(t, "ab")
		case 1:
			look(t, p, usual)
		}
		e := look(t, p, usual)
		e.types(t, "\r")
	}
	<-p.ended
}

// TestTheNextServer: whatever becomes of a server, the next one shows the screen
// as it was, and the program has not noticed.
func TestTheNextServer(t *testing.T) {
	m, s := newMachine(t, programs())
	p := s.begin(t, "echo!", strings.Repeat("long", 500))
	e := look(t, p, usual)
	e.sees(t, "ready")
	for name, text := range map[string]string{
		"a little": "say \\e]0;title\\e\\\\\\e[?2004h\\e[33myellow \r",
		"a lot":    "flood 50000\r",
		"a screen": "say \\e[?1049h\\e[2;2H\\e[7mfull\\e[m \\e[3;1H\r",
	} {
		e.types(t, text)
		e.types(t, "say <"+name+">\r")
		e.sees(t, "<"+name+">")
		e.sees(t, "<"+name+">")
		want := p.model.Redraw(usual, true)
		if name == "a lot" {
			s.Detach(errors.New("shut down"))
			if err := e.end(t); err == nil || err.Error() != "shut down" {
				t.Errorf("who looks was told %v", err)
			}
		}
		s = m.next(t, s)
		again, err := s.Find("")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p = again
		if p.id != "t1" || p.args[0] != "echo!" || len(p.args) > 2 {
			t.Errorf("%s: it is %s, %q", name, p.id, p.args)
		}
		e = look(t, p, usual)
		e.sees(t, "<"+name+">")
		if got := e.screen.Redraw(usual, true); !bytes.Equal(got, want) {
			t.Errorf("%s: the next server shows\n%q\nnot\n%q", name, got, want)
		}
	}
	other := s.begin(t, "echo!")
	if other.id != "t2" {
		t.Errorf("the next terminal is %s", other.id)
	}
	e.types(t, "exit 3\r")
	if n := s.taken.Load(); n != 2 {
		t.Errorf("two programs have %d places", n)
	}
	if err := e.end(t); err != io.EOF || e.ExitCode() != 3 || s.taken.Load() != 1 {
		t.Errorf("%v, %d, %d places", err, e.ExitCode(), s.taken.Load())
	}
}

// TestLabelFits, however long the arguments are.
func TestLabelFits(t *testing.T) {
	for _, args := range [][]string{{"sh"}, {strings.Repeat("x", 10_000)}, {"a", strings.Repeat("é\x00", 300), "b"},
		strings.Split(strings.Repeat("x", 5_000), "")} {
		if b := (label{Terminal: "t1", Args: args}).bytes(); len(b) > guest.MaxLabel || !bytes.Contains(b, []byte(`"t1"`)) {
			t.Errorf("%d bytes: %.100s", len(b), b)
		}
	}
	for _, n := range []checkpoint{{History: bytes.Repeat([]byte("line\n"), 100_000)},
		{Screen: make([]byte, guest.MaxNote)}} {
		if b := n.bytes(); len(b) > guest.MaxNote || len(b) == 0 {
			t.Errorf("a note of %d bytes", len(b))
		}
	}
}
