package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// drop reads a stream that a test does not look at.
func drop(p *sandbox.Process) { go io.Copy(io.Discard, p.Stderr()) }

// TestProcessOutlivesItsServer: the next one goes on where the output was safe.
func TestProcessOutlivesItsServer(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	made := s.make(t, sandbox.Request{Name: "one"})
	p, err := s.processes.Start(t.Context(), owner, "one",
		sandbox.ProcessRequest{Dir: "/tmp", Name: "ru_1", Args: []string{"cat"}, Stdin: "first\nsecond\n"})
	if err != nil {
		t.Fatal(err)
	}
	drop(p)
	lines := bufio.NewReader(p.Stdout())
	for _, want := range []string{"first\n", "second\n"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("read %q, %v", line, err)
		}
	}
	if e, err := p.Wait(); err != nil || e.ExitCode != 0 || e.Limit != "" {
		t.Errorf("ended %+v, %v", e, err)
	}
	if err := p.Forget(); err != nil {
		t.Error(err)
	}

	p, err = s.processes.Start(t.Context(), owner, "one",
		sandbox.ProcessRequest{Dir: "/tmp", Name: "ru_2", Args: []string{"sh", "-c", "echo one; echo two; sleep 100"}})
	if err != nil {
		t.Fatal(err)
	}
	drop(p)
	lines = bufio.NewReader(p.Stdout())
	for range 2 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Safe(4); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	if _, err := p.Wait(); cove.ErrorCode(err) != cove.Shutdown {
		t.Errorf("the end of its server: %v", err)
	}

	s = h.serve(t)
	var left []sandbox.LeftProcess
	with := h.lasting()
	with.Successor = successor{&left}
	if err := s.Adopt(t.Context(), with); err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name != "ru_2" || string(left[0].Sandbox) != made.ID || left[0].From > 4 ||
		left[0].To != 8 {
		t.Fatalf("left are %+v", left)
	}
	if _, err := left[0].TakeUp(t.Context(), 9, nil); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("from what has not been written: %v", err)
	}
	p, err = left[0].TakeUp(t.Context(), 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	drop(p)
	if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "two\n" {
		t.Errorf("read %q, %v", line, err)
	}
	if err := p.Signal(t.Context(), syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if e, err := p.Wait(); err != nil || e.ExitCode != 128+int(syscall.SIGINT) {
		t.Errorf("ended %+v, %v", e, err)
	}
}

// TestInputOfALeftProcess: a program has the whole of its input, whatever of it an earlier server has sent. One that
// claims to have more is not taken up.
func TestInputOfALeftProcess(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	input := strings.Repeat("0123456789abcde\n", 100_000)
	p, err := s.processes.Start(t.Context(), owner, "one",
		sandbox.ProcessRequest{Dir: "/tmp", Name: "ru_1", Stdin: input, Args: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	drop(p)
	got := make([]byte, 16)
	if _, err := io.ReadFull(p.Stdout(), got); err != nil {
		t.Fatal(err)
	}
	if err := p.Safe(16); err != nil {
		t.Fatal(err)
	}
	takeUp := func(input string) (*sandbox.Process, error) { // by the next server
		s.end(t)
		s = h.serve(t)
		var left []sandbox.LeftProcess
		with := h.lasting()
		with.Successor = successor{&left}
		if err := s.Adopt(t.Context(), with); err != nil {
			t.Fatal(err)
		}
		return left[0].TakeUp(t.Context(), 16, &input)
	}
	if _, err := takeUp("short"); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("with an input that is not its own: %v", err)
	}
	if p, err = takeUp(input); err != nil {
		t.Fatal(err)
	}
	drop(p)
	rest := bytes.NewBuffer(got)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.Stdout().Read(buf)
		rest.Write(buf[:n])
		if err != nil {
			break
		}
		if err := p.Safe(uint64(rest.Len())); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := p.Wait(); err != nil || e.ExitCode != 0 || rest.String() != input {
		t.Errorf("it ends with %+v, %v, and has printed %d bytes of %d", e, err, rest.Len(), len(input))
	}
}

// TestProcessThatNobodyTakesUp: it is ended with what else was left.
func TestProcessThatNobodyTakesUp(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	for _, name := range []string{"ru_1", "ru_2"} {
		p, err := s.processes.Start(t.Context(), owner, "one",
			sandbox.ProcessRequest{Dir: "/tmp", Name: name, Args: []string{"sleep", "100"}})
		if err != nil {
			t.Fatal(err)
		}
		drop(p)
	}
	s.end(t)
	s = h.serve(t)
	with := h.lasting()
	var left []sandbox.LeftProcess
	with.Successor = successor{&left}
	if err := s.Adopt(t.Context(), with); err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if err := l.End(t.Context()); err != nil {
			t.Error(err)
		}
	}
	s.wantNoProcesses(t, "one")
}

// TestProcessOfASandboxThatEnds: whoever has it learns why.
func TestProcessOfASandboxThatEnds(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	p, err := s.processes.Start(t.Context(), owner, "one",
		sandbox.ProcessRequest{Dir: "/tmp", Name: "ru_1", Args: []string{"sh", "-c", "echo begun; sleep 100"}})
	if err != nil {
		t.Fatal(err)
	}
	drop(p)
	if _, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stop(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	// it may have heard that it was asked to end
	if _, err := p.Wait(); err != nil && cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("the end of its sandbox: %v", err)
	}
	_, err = s.processes.Start(t.Context(), owner, "one",
		sandbox.ProcessRequest{Dir: "/tmp", Name: "ru_1", Args: []string{"true"}})
	wantCode(t, "in one that does not run", err, cove.Conflict)
}

// wantNoProcesses waits until a sandbox has none that were started.
func (s *server) wantNoProcesses(t *testing.T, ref string) {
	t.Helper()
	in, err := s.Enter(t.Context(), owner, ref)
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "no process is left", func() bool {
		all, err := in.Guest.Guest().Listed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == 0
	})
}

// successor keeps the processes of an earlier server.
type successor struct{ left *[]sandbox.LeftProcess }

func (s successor) Unlisted(cove.SandboxID) {}

func (s successor) TakeUp(l sandbox.LeftProcess) { *s.left = append(*s.left, l) }

// TestNothingStartsUnrecorded: a program without its line in the audit log does not start, in whichever way.
func TestNothingStartsUnrecorded(t *testing.T) {
	h := newHome(t)
	full := &fullLog{Store: h.store}
	h.store = full
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	ways := map[string]func() error{
		"a command": func() error {
			var out heard
			_, err := s.processes.Command(t.Context(), owner, "one",
				sandbox.CommandRequest{Args: []string{"sh", "-c", "echo here"}}, func(cove.ExecutionID) {}, &out)
			if (err == nil) != (out.String() == "here\n") {
				t.Errorf("%v, and it said %q", err, out.String())
			}
			return err
		},
		"a program": func() error {
			p, err := s.processes.Start(t.Context(), owner, "one",
				sandbox.ProcessRequest{Args: []string{"sh", "-c", "echo here"}})
			if err == nil {
				drop(p)
				io.Copy(io.Discard, p.Stdout())
				_, err = p.Wait()
			}
			return err
		},
		"a terminal": func() error {
			_, err := s.processes.OpenTerminal(t.Context(), owner, "one", sandbox.TerminalRequest{New: true,
				Args: []string{"sh", "-c", "echo here"}, Size: terminal.Size{Columns: 80, Rows: 24}})
			if all, _ := s.processes.Terminals(t.Context(), owner, "one"); (err == nil) != (len(all) == 1) {
				t.Errorf("%v, and the terminals are %v", err, all)
			}
			return err
		},
	}
	for name, start := range ways {
		full.is.Store(true)
		if err := start(); cove.ErrorCode(err) != cove.StorageFull {
			t.Errorf("%s: %v", name, err)
		}
		full.is.Store(false)
		if err := start(); err != nil {
			t.Errorf("%s, with room: %v", name, err)
		}
	}
}

// heard keeps the output of a command.
type heard struct{ bytes.Buffer }

func (h *heard) Stdout(p []byte) error { h.Write(p); return nil }
func (h *heard) Stderr([]byte) error   { return nil }

// fullLog takes no records while it is full.
type fullLog struct {
	store.Store
	is atomic.Bool
}

func (s *fullLog) Append(ctx context.Context, r store.Record) error {
	if s.is.Load() {
		return cove.Errorf(cove.StorageFull, "the disk is full")
	}
	return s.Store.Append(ctx, r)
}
