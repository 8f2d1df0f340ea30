//go:build linux

package forkserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// TestMain is also the program that is started: a fork server, or a process that says something and waits for its
// standard input to end.
func TestMain(m *testing.M) {
	switch {
	case slices.Contains(os.Args, "--end"):
	case slices.Contains(os.Args, "--say"):
		fmt.Println("something")
		io.Copy(io.Discard, os.Stdin)
	case len(os.Args) > 1 && slices.Contains([]string{modeCopy, modeServe}, os.Args[1]):
		if err := Run(os.Args[1], os.Getenv("WITHOUT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 2 && os.Args[1] == "--ahead":
		handOver(os.Args[2])
	case len(os.Args) > 2 && os.Args[1] == "--takes":
		takeOver(os.Args[2])
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
	return launchWithout(t, "")
}

func launchWithout(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Launch(t.Context(), own(t), []string{"fork server"}, []string{"WITHOUT=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var apart = Spec{As: os.Geteuid(), Namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWPID}

// started is an executor with its connection.
type started struct {
	*Process
	*executor.Client
}

func start(t *testing.T, server *Client, s Spec) started {
	t.Helper()
	return startIn(t, server, s, cgroup.Door{})
}

func startIn(t *testing.T, server *Client, s Spec, door cgroup.Door) started {
	t.Helper()
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	p, err := server.Fork(context.Background(), s, door, append(nulls(t), theirs)...)
	if err != nil {
		t.Fatal(err)
	}
	e := started{p, executor.NewClient(conn, func(int, unix.WaitStatus) error { return nil })}
	t.Cleanup(func() { e.Close() })
	return e
}

// nulls are the standard streams of an executor.
func nulls(t *testing.T) []*os.File {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	return []*os.File{null, null, null}
}

// answers has an executor look at who it is: PID 1 of its namespace.
func (s started) answers(t *testing.T) {
	t.Helper()
	script := executor.New(8, 0)
	script.Store(script.Answer(), 8, script.Call(unix.SYS_GETPID))
	answer, _, err := s.Run(t.Context(), script)
	if err != nil || binary.NativeEndian.Uint64(answer) != 1 {
		t.Errorf("%v, %v", answer, err)
	}
}

// exists reports whether a process has an id, be it one that has ended and is not collected.
func exists(pid int) bool { return unix.Kill(pid, 0) == nil }

func TestFork(t *testing.T) {
	p := start(t, launch(t), apart)
	p.answers(t)
	if sid, err := unix.Getsid(p.PID()); err != nil || sid != p.PID() {
		t.Errorf("session %d, %v", sid, err)
	}
	if err := p.Close(); err != nil {
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
	p := start(t, launch(t), apart)
	p.answers(t)
	if err := errors.Join(p.Kill(), p.Wait()); err != nil {
		t.Error(err)
	}
}

func TestForkFails(t *testing.T) {
	s := apart
	s.Namespaces |= unix.CLONE_FS // not with a user namespace
	null := nulls(t)
	_, err := launch(t).Fork(context.Background(), s, cgroup.Door{}, append(null, null[0])...)
	failure, ok := errors.AsType[*Error](err)
	if !ok || failure.Op != OpFork || !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v", err)
	}
}

// TestCrowd has many executors started at once. Each has its own connection.
func TestCrowd(t *testing.T) {
	server := launch(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				p := start(t, server, apart)
				p.answers(t)
				p.Close()
				p.Wait()
			}
		})
	}
	all.Wait()
}

// TestServerKilled: what a fork server has started outlives it.
func TestServerKilled(t *testing.T) {
	server := launch(t)
	p := start(t, server, apart)
	server.process.Kill()
	<-server.Done()
	p.answers(t)
	_, err := server.Fork(context.Background(), apart, cgroup.Door{}, nulls(t)...)
	if !errors.Is(err, ErrGone) {
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
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = server.Fork(ctx, apart, cgroup.Door{}, append(nulls(t), theirs)...)
	theirs.Close()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := server.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); err != nil || len(said) > 0 { // to its end
		t.Errorf("%q, %v", said, err)
	}
}

// TestNeverInTheGroup: a fork server is at no time in a group for which it forks, with whose processes it would be
// killed, and what it has forked is in no other before it answers.
func TestNeverInTheGroup(t *testing.T) {
	h, err := cgroup.Find(fmt.Sprintf("cove-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	g, err := h.Create("g")
	if err != nil || !h.Has(cgroup.PIDs) {
		t.Skip("this user cannot make control groups here: ", err, h.Missing(cgroup.PIDs))
	}
	defer g.Remove(5 * time.Second)
	defer g.Kill()
	server := launch(t)
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() {
		for ctx.Err() == nil {
			if g.Has(server.PID()) {
				t.Error("the fork server is in the group")
				return
			}
		}
	})
	door, err := g.Door()
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	for range 100 {
		p := startIn(t, server, apart, door)
		p.answers(t)
		if !g.Has(p.PID()) {
			t.Error("an executor answers that is not in the group")
		}
		p.Close()
		p.Wait()
	}
}

// TestOwner: the user of a spec owns the namespaces, and the fork server is itself again for the next ones.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: other users")
	}
	server := launch(t)
	for _, want := range []int{100_001, 0, 100_002, 100_001} {
		p := start(t, server, Spec{As: want, Namespaces: apart.Namespaces})
		p.answers(t)
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.PID()))
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		const ownerOf = 0xb704 // NS_GET_OWNER_UID, of nsfs.h
		if got, err := unix.IoctlGetUint32(int(ns.Fd()), ownerOf); err != nil || int(got) != want {
			t.Errorf("the namespace is of the user %d, %v; want %d", got, err, want)
		}
		p.Close()
		p.Wait()
	}
}
