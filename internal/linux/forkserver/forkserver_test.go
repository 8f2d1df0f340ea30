//go:build linux

package forkserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// TestMain is also the program that is started: a fork server, or a process that says who it is and waits for its
// standard input to end.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "--fork":
		conn, err := unixconn.New(3)
		if err == nil {
			err = Serve(conn)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 1 && os.Args[1] == "--say":
		fmt.Printf("%d %s\n", os.Getpid(), os.Getenv("SAY"))
		io.Copy(io.Discard, os.Stdin)
	case len(os.Args) > 1 && os.Args[1] == "--end":
	default:
		os.Exit(m.Run())
	}
}

func own(t *testing.T) *Program {
	t.Helper()
	p, err := OpenProgram("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func launch(t *testing.T) *Client {
	t.Helper()
	c, err := Launch(t.Context(), own(t), []string{"fork server", "--fork"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// ways are both of starting a process.
func ways(t *testing.T) map[string]func(Spec, ...*os.File) (Process, error) {
	program, server := own(t), launch(t)
	return map[string]func(Spec, ...*os.File) (Process, error){
		"from this process": func(s Spec, files ...*os.File) (Process, error) {
			return Fork(program, s, cgroup.Door{}, files...)
		},
		"by a fork server": func(s Spec, files ...*os.File) (Process, error) {
			return server.Fork(context.Background(), s, cgroup.Door{}, files...)
		},
	}
}

func say(word string) Spec {
	return Spec{Args: []string{"say", "--say"}, Env: []string{"SAY=" + word}, As: os.Geteuid(),
		Namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWPID}
}

// started is a process with its streams.
type started struct {
	Process
	in  *os.File
	out *bufio.Reader
}

func start(t *testing.T, fork func(Spec, ...*os.File) (Process, error), s Spec) started {
	t.Helper()
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirIn.Close()
	defer theirOut.Close()
	t.Cleanup(func() { in.Close(); out.Close() })
	p, err := fork(s, theirIn, theirOut, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return started{p, in, bufio.NewReader(out)}
}

func (s started) says(t *testing.T, want string) {
	t.Helper()
	if line, err := s.out.ReadString('\n'); line != want+"\n" {
		t.Errorf("%q, %v; want %q", line, err, want)
	}
}

// exists reports whether a process has an id, be it one that has ended and is not collected.
func exists(pid int) bool { return unix.Kill(pid, 0) == nil }

func TestFork(t *testing.T) {
	for name, fork := range ways(t) {
		t.Run(name, func(t *testing.T) {
			p := start(t, fork, say("hello"))
			p.says(t, "1 hello") // PID 1 of its namespace
			if sid, err := unix.Getsid(p.PID()); err != nil || sid != p.PID() {
				t.Errorf("session %d, %v", sid, err)
			}
			p.in.Close()
			if _, err := p.out.ReadByte(); err != io.EOF {
				t.Error(err)
			}
			if !exists(p.PID()) {
				t.Error("its id is free before Wait")
			}
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
			if err := p.Kill(); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("kill after Wait: %v", err)
			}
		})
	}
}

// TestNoServer: a program that is none is not taken for one.
func TestNoServer(t *testing.T) {
	if _, err := Launch(t.Context(), own(t), []string{"none", "--end"}, nil); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Launch(ctx, own(t), []string{"none", "--say"}, nil)
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrGone) { // its standard input has ended
		t.Errorf("%v", err)
	}
}

func TestKill(t *testing.T) {
	for name, fork := range ways(t) {
		t.Run(name, func(t *testing.T) {
			p := start(t, fork, say("hello"))
			p.says(t, "1 hello")
			if err := errors.Join(p.Kill(), p.Wait()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestForkFails(t *testing.T) {
	for name, fork := range ways(t) {
		t.Run(name, func(t *testing.T) {
			s := say("hello")
			s.Namespaces |= unix.CLONE_FS // not with a user namespace
			_, err := fork(s)
			failure, ok := errors.AsType[*Error](err)
			if !ok || failure.Op != OpFork || !errors.Is(err, unix.EINVAL) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestDescriptors has many processes started at once, so that their files have all the descriptors around that of the
// program.
func TestDescriptors(t *testing.T) {
	server := launch(t)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				p, err := server.Fork(context.Background(), say("hello"), cgroup.Door{}, null, null, os.Stderr)
				if err != nil {
					t.Error(err)
					return
				}
				p.Wait()
			}
		})
	}
	all.Wait()
}

// TestServerKilled: what a fork server has started outlives it.
func TestServerKilled(t *testing.T) {
	server := launch(t)
	fork := func(s Spec, files ...*os.File) (Process, error) {
		return server.Fork(context.Background(), s, cgroup.Door{}, files...)
	}
	p := start(t, fork, say("hello"))
	server.process.Kill()
	<-server.Done()
	p.says(t, "1 hello")
	if _, err := fork(say("hello")); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(p.Kill(), p.Wait()); err != nil {
		t.Error(err)
	}
}

// TestCloseStopped: a fork server that is stopped does not keep the one that closes it.
func TestCloseStopped(t *testing.T) {
	server := launch(t)
	if err := server.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if exists(server.PID()) {
		t.Error("it is there")
	}
}

// TestCanceled: a process that has been started too late is ended.
func TestCanceled(t *testing.T) {
	server := launch(t)
	if err := server.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := server.Fork(ctx, say("late"), cgroup.Door{}, in, theirs); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	in.Close()
	theirs.Close()
	if err := server.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(out) // to its end
	if err != nil || !strings.HasSuffix("1 late\n", string(said)) {
		t.Errorf("%q, %v", said, err)
	}
}
