//go:build linux && amd64

package zygote

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
	"github.com/cove-sandbox/cove/test/await"
)

// TestMain starts the tests again in a process whose C library, with cgo as for -race, has the kernel know of no
// restartable sequences: executors have none, and neither must a fork of this process.
func TestMain(m *testing.M) {
	const tunables = "GLIBC_TUNABLES"
	if os.Getenv(tunables) == "" {
		err := unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), tunables+"=glibc.pthread.rseq=0"))
		panic(err)
	}
	os.Exit(m.Run())
}

// machine is an executor in a pid namespace of its own.
type machine struct {
	*executor.Client
	pid   int
	ended chan unix.WaitStatus
}

func start(t *testing.T) machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: a pid namespace")
	}
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	n := int(null.Fd())
	pid, err := executor.Clone(unix.CLONE_NEWPID, -1, nil, [4]int{n, n, n, int(theirs.Fd())})
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	m := machine{pid: pid, ended: make(chan unix.WaitStatus, 1)}
	m.Client = executor.NewClient(conn, func(_ int, status unix.WaitStatus) error {
		m.ended <- status
		return nil
	})
	t.Cleanup(func() {
		m.Close()
		unix.Wait4(pid, nil, 0, nil)
	})
	return m
}

// child starts a child whose output and errors are a pipe, which is returned.
func (m machine) child(t *testing.T, f func(s *executor.Script), fds ...int) (io.Reader, error) {
	t.Helper()
	s := executor.New(8, len(fds))
	pipe := s.Space(8)
	s.Do(unix.SYS_PIPE2, pipe, executor.Number(unix.O_CLOEXEC))
	s.Give(s.Load(pipe, 4))
	s.Store(s.Answer(), 8, s.Fork(func() {
		s.Do(unix.SYS_FCNTL, executor.Number(0), executor.Number(unix.F_SETFD), executor.Number(0))
		w := s.Load(pipe.At(4), 4)
		for fd := 1; fd <= 2; fd++ {
			s.Do(unix.SYS_DUP3, w, executor.Number(fd), executor.Number(0))
		}
		s.Do(unix.SYS_RT_SIGPROCMASK, executor.Number(2), s.Space(8), executor.Number(0), executor.Number(8))
		f(s)
	}))
	answer, files, err := m.Run(t.Context(), s, fds...)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { files[0].Close() })
	if pid := binary.NativeEndian.Uint64(answer); pid != 2 {
		t.Fatalf("the process is %d", pid)
	}
	return files[0], nil
}

// parked starts Python in a pid namespace, where it waits for its code at a pipe, and returns its id out here.
func parked(t *testing.T, m machine, pipe *os.File) (pid int, out io.Reader) {
	t.Helper()
	return waiting(t, m, pipe.Name())
}

// waiting is parked with arguments of Python.
func waiting(t *testing.T, m machine, args ...string) (pid int, out io.Reader) {
	t.Helper()
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("python3 is missing: apt-get install python3")
	}
	out, err = m.child(t, func(s *executor.Script) {
		words := []executor.Value{s.Text(python)}
		for _, a := range args {
			words = append(words, s.Text(a))
		}
		s.Do(unix.SYS_EXECVE, s.Text(python), s.Words(append(words, executor.Number(0))...),
			s.Words(s.Text("A=b"), executor.Number(0)))
	})
	if err != nil {
		t.Fatal(err)
	}
	children, err := os.ReadFile("/proc/" + strconv.Itoa(m.pid) + "/task/" + strconv.Itoa(m.pid) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.Fields(string(children))[0]); err != nil {
		t.Fatal(err)
	}
	await.That(t, "Python waits for its code", func() bool {
		at, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/wchan")
		return strings.Contains(string(at), "pipe_read")
	})
	return pid, out
}

// fifo makes a named pipe, which is open for both directions.
func fifo(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "main.py")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// say gives the reader of a pipe its code.
func say(t *testing.T, pipe *os.File, code string) {
	t.Helper()
	if _, err := pipe.WriteString(code); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
}

// ended checks what a process has written, and its end.
func (m machine) wants(t *testing.T, out io.Reader, want string, code int) {
	t.Helper()
	text, err := io.ReadAll(out)
	if string(text) != want || err != nil {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
	if status := <-m.ended; status.ExitStatus() != code {
		t.Errorf("it ended with %#x, want the code %d", status, code)
	}
}

// shown is a program that shows what its process is.
const shown = `
import os, sys, time, json, random, threading, ctypes, signal, resource
x = threading.Thread(target=lambda: print("in a thread")); x.start(); x.join()
print(sys.argv, sys.executable, sys.flags, os.environ, os.getpid(), threading.get_native_id())
print(os.readlink("/proc/self/exe"), open("/proc/self/cmdline").read().split("\0"), open("/proc/self/comm").read())
print(open("/proc/self/environ").read(), os.listdir("/proc/self/fd"), os.getcwd(), hash("a string"))
print([l for l in open("/proc/self/status") if l.split(":")[0] in ("SigBlk", "SigIgn", "SigCgt", "Groups")])
print(sorted((l.split() + [0])[5] for l in open("/proc/self/maps") if "r-xp" in l or "[" in l), id(None))
print(sum(map(len, [str(i) for i in range(200000)])), time.time() > 1e9)
kept = [bytearray(n) for n in range(1, 1 << 21, 50001)]
print(os.spawnv(os.P_WAIT, "/bin/echo", ["echo", "a child"]), resource.getrlimit(resource.RLIMIT_STACK))
def deep(n): return n and deep(n - 1)
try: deep(10**6)
except RecursionError as e: print(e)
signal.signal(signal.SIGALRM, lambda *a: print("an alarm")); signal.setitimer(signal.ITIMER_REAL, 0.001); signal.pause()
sys.exit(7)
`

// TestCopies: copies of Python show themselves as the first one does, with the same layout of memory.
func TestCopies(t *testing.T) {
	first, pipe := start(t), fifo(t)
	pid, out := parked(t, first, pipe)
	image, err := Take(pid, pipe.Name(), func(p *Program) { p.Do(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 50001) })
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	say(t, pipe, shown)
	text, err := io.ReadAll(out)
	if status := <-first.ended; err != nil || status.ExitStatus() != 7 {
		t.Fatalf("%q, %v, %#x", text, err, status)
	}
	for n := range 4 {
		m, pipe := start(t), again(t, pipe.Name())
		out, err := m.copy(t, image, pipe, n%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		say(t, pipe, shown)
		m.wants(t, out, string(text), 7)
	}
	m, pipe := start(t), again(t, pipe.Name())
	if out, err = m.become(t, image, pipe); err != nil {
		t.Fatal(err)
	}
	say(t, pipe, "print(open('/proc/self/timerslack_ns').read())")
	m.wants(t, out, "50001\n\n", 0)
}

// become starts a sparse copy.
func (m machine) become(t *testing.T, image, pipe *os.File, changes ...func(*Image)) (io.Reader, error) {
	t.Helper()
	return m.copy(t, image, pipe, true, changes...)
}

func (m machine) copy(t *testing.T, image, pipe *os.File, sparse bool, changes ...func(*Image)) (io.Reader, error) {
	t.Helper()
	i, err := Open(image)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(i)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	own, err := Layout(maps)
	if err != nil {
		t.Fatal(err)
	}
	return m.child(t, func(s *executor.Script) {
		fifo := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(pipe.Name()), executor.Number(unix.O_RDONLY),
			executor.Number(0))
		if err := i.Become(s, s.File(0), fifo, own, sparse); err != nil {
			t.Fatal(err)
		}
	}, int(image.Fd()))
}

// TestRefused: a copy whose files have changed, or of which a call has failed, tells so.
func TestRefused(t *testing.T) {
	first, pipe := start(t), fifo(t)
	pid, _ := parked(t, first, pipe)
	image, err := Take(pid, pipe.Name(), func(p *Program) { p.Do(unix.SYS_CHDIR, p.Bytes([]byte("/none\x00"))) })
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	m := start(t)
	_, err = m.become(t, image, pipe, func(i *Image) { i.Files[1].Mtime[1]++ })
	if !errors.Is(err, unix.ESTALE) {
		t.Errorf("%v, want ESTALE", err)
	}
	m = start(t)
	_, err = m.become(t, image, pipe)
	if failure, ok := errors.AsType[*executor.Error](err); !ok || failure.Errno < failed {
		t.Errorf("%v, want a call that failed", err)
	}
}

// again makes a named pipe anew.
func again(t *testing.T, path string) *os.File {
	t.Helper()
	os.Remove(path)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestKilledMeanwhile: a process that is killed while it is stopped is gone for its parent.
func TestKilledMeanwhile(t *testing.T) {
	m, pipe := start(t), fifo(t)
	pid, _ := parked(t, m, pipe)
	_, err := Take(pid, pipe.Name(), func(*Program) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
	select {
	case status := <-m.ended:
		if status.Signal() != unix.SIGKILL {
			t.Errorf("it ended with %#x", status)
		}
	case <-time.After(30 * time.Second):
		t.Error("its parent is not told of its end")
	}
}

// TestUnsupported: there is no image of a process that does not wait at the pipe, has another descriptor, or more
// threads.
func TestUnsupported(t *testing.T) {
	m, pipe := start(t), fifo(t)
	pid, _ := parked(t, m, pipe)
	if _, err := Take(pid, "/other", func(*Program) {}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, err := Take(os.Getpid(), pipe.Name(), func(*Program) {}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	sleeps := exec.Command("sleep", "1000")
	if err := sleeps.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeps.Wait()
	defer sleeps.Process.Kill()
	if _, err := Take(sleeps.Process.Pid, pipe.Name(), func(*Program) {}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
